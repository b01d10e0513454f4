"""Batches arrive once and in order, whatever happens to requests and replies on their way."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abs_sinks.kafka.columnar import outbox
from abs_sinks.kafka.columnar.outbox import FLYING, Batch, Outbox, Verdict

PARTITIONS = 3
LOST = 13
MOVED = 6
REMEMBERED = 5
"""Batches of a producer that a partition's leader knows again (NumBatchesToRetain)."""


@dataclass
class Log:
    """One partition, as its leader takes a producer's batches."""

    taken: list[int] = field(default_factory=list)

    def append(self, batch: Batch) -> int:
        if batch.number == len(self.taken):
            self.taken.append(batch.number)
            return 0
        if len(self.taken) - REMEMBERED <= batch.number < len(self.taken):
            return 0  # known, and not taken twice
        return 45


class Chaos:
    """Brokers and connections: answers in any order among partitions, late, lost, or not at all."""

    def __init__(self, data: st.DataObject, trouble: int) -> None:
        self.logs: dict[int, Log] = defaultdict(Log)
        self._draw = data.draw
        self._trouble = trouble
        self._flying: dict[int, deque[Batch]] = defaultdict(deque)
        self._late: list[Batch] = []

    def send(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._flying[batch.partition].append(batch)

    def answer(self) -> tuple[Batch, int]:
        at = self._draw(st.sampled_from(sorted(p for p, queue in self._flying.items() if queue)))
        batch = self._flying[at].popleft()
        if self._late and self._draw(st.booleans()):
            late = self._late.pop(self._draw(st.integers(0, len(self._late) - 1)))
            self.logs[late.partition].append(late)
        if self._trouble == 0:
            return batch, self.logs[at].append(batch)
        fate = self._draw(
            st.sampled_from(["fine", "fine", "no reply", "no request", "moved", "late"])
        )
        self._trouble -= fate != "fine"
        match fate:
            case "fine":
                return batch, self.logs[at].append(batch)
            case "no reply":
                self.logs[at].append(batch)
                return batch, LOST
            case "late":  # its connection is given up here, and read to its end there
                self._late.append(batch)
                return batch, LOST
            case "moved":
                return batch, MOVED
            case _:
                return batch, LOST


def _run(data: st.DataObject) -> dict[int, Log]:
    """Send batches through chaos until all are acknowledged; what the partitions have then."""
    counts = data.draw(st.lists(st.integers(0, 12), min_size=PARTITIONS, max_size=PARTITIONS))
    chaos, box = Chaos(data, data.draw(st.integers(0, 8))), Outbox()
    box.add(Batch(p, n, 1, b"x") for p, count in enumerate(counts) for n in range(count))
    steps = 0
    while box.unfinished:
        steps += 1
        assert steps < 1_000, "it does not come to an end"
        while taken := box.take(100):
            assert len({batch.partition for batch in taken}) == len(taken)
            chaos.send(taken)
        batch, code = chaos.answer()
        assert box.answered(batch, code) is not Verdict.REFUSED, (batch, code)
    assert box.waiting_bytes == 0
    assert {p: chaos.logs[p].taken for p in range(PARTITIONS)} == {
        p: list(range(count)) for p, count in enumerate(counts)
    }
    return chaos.logs


@settings(max_examples=400)
@given(st.data())
def test_every_batch_arrives_once_and_in_order(data: st.DataObject) -> None:
    _run(data)


@pytest.mark.parametrize(("flying", "known"), [(FLYING, True), (FLYING + 1, False)])
def test_more_on_their_way_than_a_broker_remembers_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch, flying: int, known: bool
) -> None:
    monkeypatch.setattr(outbox, "FLYING", flying)  # one more: a planted bug
    box, log = Outbox(), Log()
    box.add(Batch(0, n, 1, b"x") for n in range(10))
    sent = []
    while taken := box.take(100):
        sent += taken
    codes = [log.append(batch) for batch in sent]
    for batch, code in zip(sent, [LOST, *codes[1:]], strict=True):
        box.answered(batch, code)
    (again,) = box.take(100)
    assert (box.answered(again, log.append(again)) is Verdict.ACKNOWLEDGED) is known


def test_to_take_a_lost_reply_for_an_acknowledgement_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "_DUPLICATE", LOST)  # a planted bug
    _must_fail()


def test_to_take_a_gap_for_an_acknowledgement_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_DUPLICATE", 45)  # a planted bug
    _must_fail()


def _must_fail() -> None:
    @settings(max_examples=3_000, database=None, report_multiple_bugs=False)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        _run(data)

    with pytest.raises(AssertionError):
        run()


def test_one_that_is_sent_again_is_awaited_before_the_next_five() -> None:
    box = Outbox()
    box.add(Batch(0, n, 1, b"x") for n in range(7))
    flying = [box.take(100)[0] for _ in range(FLYING)]
    for batch in flying:
        box.answered(batch, LOST if batch.number == 0 else 0)
    (again,) = box.take(100)
    assert again.number == 0
    assert box.take(100) == []  # with the sixth in its log a broker would not know the first again
    box.answered(again, 0)
    assert [b.number for b in box.take(100)] == [5]


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
    assert [(b.partition, b.number) for b in box.take(10)] == [(0, 1)]
    assert box.waiting_bytes == 180


def test_what_could_not_be_sent_waits_in_its_place() -> None:
    box = Outbox()
    box.add(Batch(0, n, 1, bytes(5)) for n in range(2))
    (batch,) = box.take(5)
    box.postponed(batch)
    assert box.waiting_bytes == 10
    assert [b.number for b in box.take(5)] == [0]
