"""Batches arrive once and in order, whatever happens to requests and replies on their way."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abs_sinks.kafka.columnar import outbox
from abs_sinks.kafka.columnar.outbox import FLYING, Batch, Outbox, Verdict

PARTITIONS = 3
LOST = 13
MOVED = 6
BUSY = 19
REMEMBERED = 5
"""Batches of a producer that a partition's leader knows again (NumBatchesToRetain)."""


@dataclass
class Log:
    """One partition, as its leader takes a producer's batches; the first whatever it is."""

    taken: list[int] = field(default_factory=list)

    def append(self, batch: Batch) -> int:
        if not self.taken or batch.number == self.taken[-1] + 1:
            self.taken.append(batch.number)
            return 0
        known = batch.number in self.taken[-REMEMBERED:]
        return 0 if known else 45  # known: acknowledged, and not taken twice


class Chaos:
    """A broker behind one connection: it answers late, in part or not at all, or leads no more.

    What was on its way when a connection was lost may be read from it yet, up to some request.
    """

    def __init__(self, data: st.DataObject, trouble: int) -> None:
        self.logs: dict[int, Log] = defaultdict(Log)
        self._draw: Any = data.draw
        self._trouble = trouble
        self._flying: deque[Batch] = deque()
        self._late: deque[Batch] = deque()

    def send(self, batches: list[Batch]) -> None:
        self._flying.extend(batches)

    def answer(self) -> list[tuple[Batch, int]]:
        while self._late and self._draw(st.booleans()):
            late = self._late.popleft()
            self.logs[late.partition].append(late)
        fates = ["fine", "fine", "lost", "busy", "moved"] if self._trouble else ["fine"]
        fate = self._draw(st.sampled_from(fates))
        self._trouble -= fate != "fine"
        if fate in ("fine", "busy"):
            batch = self._flying.popleft()
            return [(batch, BUSY if fate == "busy" else self.logs[batch.partition].append(batch))]
        if fate == "moved":
            moved = self._flying[0].partition
            away = [batch for batch in self._flying if batch.partition == moved]
            self._flying = deque(b for b in self._flying if b.partition != moved)
            return [(batch, MOVED) for batch in away]
        lost = list(self._flying)
        self._flying.clear()
        self._late.extend(lost[: self._draw(st.integers(0, len(lost)))])
        return [(batch, LOST) for batch in lost]


def _run(data: st.DataObject, kind: type[Outbox] = Outbox) -> dict[int, Log]:
    """Send batches through chaos until all are acknowledged; what the partitions have then."""
    counts = data.draw(st.lists(st.integers(0, 12), min_size=PARTITIONS, max_size=PARTITIONS))
    chaos, box = Chaos(data, data.draw(st.integers(0, 8))), kind()
    box.add(Batch(p, n, 1, b"x") for p, count in enumerate(counts) for n in range(count))
    steps = 0
    while box.unfinished:
        steps += 1
        assert steps < 1_000, "it does not come to an end"
        while taken := box.take(100):
            assert len({batch.partition for batch in taken}) == len(taken)
            chaos.send(taken)
        for batch, code in chaos.answer():
            assert box.answered(batch, code) is not Verdict.REFUSED, (batch, code)
    assert (box.unsent_bytes, box.flying_bytes) == (0, 0)
    assert {p: chaos.logs[p].taken for p in range(PARTITIONS)} == {
        p: list(range(count)) for p, count in enumerate(counts)
    }
    return chaos.logs


@given(st.data())
def test_every_batch_arrives_once_and_in_order(data: st.DataObject) -> None:
    _run(data)


@pytest.mark.parametrize(("flying", "known"), [(FLYING, True), (FLYING + 1, False)])
def test_more_on_their_way_than_a_broker_remembers_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch, flying: int, known: bool
) -> None:
    monkeypatch.setattr(outbox, "FLYING", flying)  # one more: a planted bug
    log = Log([0])
    box = _known(10)
    sent = []
    while taken := box.take(100):
        sent += taken
    for batch in sent:
        assert log.append(batch) == 0
        box.answered(batch, LOST)
    again = box.take(100)[0]
    assert (box.answered(again, log.append(again)) is Verdict.ACKNOWLEDGED) is known


def test_to_take_a_lost_reply_for_an_acknowledgement_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "_DUPLICATE", LOST)  # a planted bug
    _must_fail()


def test_to_take_a_gap_for_an_acknowledgement_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_DUPLICATE", 45)  # a planted bug
    _must_fail()


def _known(count: int) -> Outbox:
    """So many batches of a partition, of which it has acknowledged the first."""
    box = Outbox()
    box.add(Batch(0, n, 1, b"x") for n in range(count))
    box.answered(box.take(100)[0], 0)
    return box


def _must_fail(kind: type[Outbox] = Outbox) -> None:
    @settings(max_examples=1_000, database=None, report_multiple_bugs=False)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        _run(data, kind)

    with pytest.raises(AssertionError):
        run()


def test_one_that_is_sent_again_is_awaited_before_the_next_five() -> None:
    box = _known(8)
    flying = [box.take(100)[0] for _ in range(FLYING)]
    for batch in flying:
        box.answered(batch, LOST if batch.number == 1 else 0)
    (again,) = box.take(100)
    assert again.number == 1
    assert box.take(100) == []  # with the sixth in its log a broker would not know the first again
    box.answered(again, 0)
    assert [b.number for b in box.take(100)] == [6]


def test_what_is_refused_is_told_and_stays_unfinished() -> None:
    box = Outbox()
    box.add([Batch(0, 0, 1, b"x")])
    (batch,) = box.take(100)
    assert box.answered(batch, 10) is Verdict.REFUSED
    assert box.unfinished == 1


def test_records_that_a_broker_has_lost_after_it_acknowledged_them_are_refused() -> None:
    box = Outbox()
    box.add([Batch(0, 0, 1, b"x"), Batch(0, 1, 1, b"x")])
    for code, verdict in ((0, Verdict.ACKNOWLEDGED), (45, Verdict.REFUSED)):
        (batch,) = box.take(100)
        assert box.answered(batch, code) is verdict


def test_a_request_has_one_batch_of_a_partition_and_no_more_bytes_than_asked() -> None:
    box = Outbox()
    box.add(Batch(p, n, 1, bytes(60)) for n in range(2) for p in range(3))
    assert [(b.partition, b.number) for b in box.take(150)] == [(0, 0), (1, 0)]
    assert [(b.partition, b.number) for b in box.take(10)] == [(2, 0)]
    assert box.unsent_bytes == 180


def test_what_was_not_sent_goes_first_again() -> None:
    box = Outbox()
    box.add(Batch(0, n, 1, bytes(5)) for n in range(2))
    (batch,) = box.take(5)
    box.answered(batch, LOST)
    assert box.unsent_bytes == 10
    assert [b.number for b in box.take(5)] == [0]


def test_after_a_failure_nothing_is_sent_to_its_partition_before_all_is_answered() -> None:
    box = _known(9)
    flying = [box.take(100)[0] for _ in range(FLYING)]
    for number, batch in enumerate(flying):
        assert box.take(100) == []
        box.answered(batch, MOVED if number == 0 else 45)
    assert [b.number for b in box.take(100)] == [1]


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    box = Outbox()
    box.add(Batch(0, n, 1, b"x") for n in range(3))
    (first,) = box.take(100)
    assert box.take(100) == []
    box.answered(first, LOST)
    (first,) = box.take(100)
    assert (first.number, box.take(100)) == (0, [])
    box.answered(first, 0)
    assert [box.take(100)[0].number, box.take(100)[0].number] == [1, 2]


def test_a_first_batch_that_is_overtaken_is_found_out() -> None:
    class Hasty(Outbox):
        """The planted bug: five at once from the beginning."""

        def add(self, batches: Iterable[Batch]) -> None:
            super().add(batches)
            for queue in self._queues.values():
                queue.known = True

    _must_fail(Hasty)
