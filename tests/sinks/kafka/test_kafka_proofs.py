"""The rules by which ledger and side topic say what is committed; no broker is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import side_topic as name_of
from abs_core.contracts import Conflict
from abs_core.errors import ConfigError, CorruptionError, PreflightError
from abs_core.lookback import Past
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_core.wal import FolderSegments, SegmentWriter
from abs_sinks.kafka import ledger, side_topic, wal
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.topic import StoredCell
from abs_sinks.kafka.side_topic import Birth
from abs_sinks.kafka.wal import WalCommitter
from abs_testing.case import raises

Patch = pytest.MonkeyPatch

REGISTER = "0123456789abcdef"
OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
BATCH = pa.record_batch({"value": ["a", "b"]})
SIDE = name_of("t")


def handle(epoch: int, generation: int = 1) -> HandleName:
    return HandleName(REGISTER, "job", generation, epoch, 0, "abc")


def state(frontier: int | None, generation: int = 1) -> JobState:
    begun = JobState(REGISTER, "job", "here", "lineage", generation, "run")
    return replace(begun, frontier=frontier)


def written(log: FolderSegments, epoch: int, place: LedgerPlace | None = None) -> Committable:
    writer = SegmentWriter(log, handle(epoch), BATCH.schema)
    writer.write(BATCH)
    seal = writer.finish()
    assert seal is not None
    made = seal.committable()
    return made if place is None else place.noted(made)


class Cells:
    """The ledger's cell; the first few changes find that another came first."""

    def __init__(self, handles: Sequence[HandleName] = (), conflicts: int = 0) -> None:
        self.text, self.conflicts = ledger.to_text(set(handles)), conflicts
        self.theirs: set[HandleName] = set()
        self.sent: list[Any] = []
        self.swaps = 0

    @property
    def handles(self) -> set[HandleName]:
        return ledger.handles_in_ledger("job", self.text)

    def load_text(self, key: str) -> StoredCell:
        assert key == wal.ledger_key("job")
        return StoredCell(f"{self.swaps}-x", self.text)

    def swap_text(self, key: str, version: str, text: str, rows: Any = None) -> str | Conflict:
        self.swaps += 1
        if self.conflicts:
            self.conflicts -= 1
            self.text = ledger.to_text(self.handles | self.theirs)
            return Conflict()
        self.text = text
        if rows is not None:
            self.sent.append(rows)
        return f"{self.swaps}-x"


@pytest.fixture
def log(tmp_path: Path) -> FolderSegments:
    return FolderSegments(tmp_path)


def committer(log: FolderSegments, cells: Any, patch: Patch) -> WalCommitter:
    made = WalCommitter(OPTIONS, log)
    patch.setattr(made, "_register", cells)
    patch.setattr(wal, "sending", lambda _options, _log, ready, _point: [c.handle for c in ready])
    return made


def test_what_the_ledger_names_is_not_sent_again(log: FolderSegments, monkeypatch: Patch) -> None:
    done, new = written(log, 0), written(log, 1)
    cells = Cells([done.handle])
    found = committer(log, cells, monkeypatch).commit([done, new])
    assert set(found.values()) == {Outcome.COMMITTED}
    assert cells.sent == [[new.handle]]
    assert cells.handles == {done.handle, new.handle}
    assert log.list("job") == []


def test_what_another_has_sent_meanwhile_is_not_sent_again(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    first, second = written(log, 0), written(log, 1)
    cells = Cells(conflicts=1)
    cells.theirs = {first.handle}
    found = committer(log, cells, monkeypatch).commit([first, second])
    assert set(found.values()) == {Outcome.COMMITTED}
    assert cells.sent == [[second.handle]]


def test_a_segment_that_is_gone_is_committed_by_the_ledger_alone(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    done, unknown, whole = (written(log, epoch) for epoch in range(3))
    log.delete([done.handle, unknown.handle])
    made = committer(log, Cells([done.handle]), monkeypatch)
    given = [done, unknown, whole]
    expected = [Outcome.COMMITTED, Outcome.UNKNOWN, Outcome.PREPARED]
    assert [made.inspect(given)[c.handle].outcome for c in given] == expected
    found = made.commit(given)
    assert [found[c.handle] for c in given] == [*expected[:2], Outcome.COMMITTED]


def test_a_segment_of_unknown_outcome_stays_as_it_is(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    damaged, whole = written(log, 0), written(log, 1)
    cells = Cells()
    made = committer(log, cells, monkeypatch)
    monkeypatch.setattr(wal, "is_whole", lambda _, committable: committable is whole)
    found = made.commit([damaged, whole])
    assert found == {damaged.handle: Outcome.UNKNOWN, whole.handle: Outcome.COMMITTED}
    assert [entry.handle for entry in log.list("job")] == [damaged.handle]


def test_a_segment_that_is_gone_in_another_log_is_not_called_unknown(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    place = LedgerPlace(OPTIONS.registertopic, None, "file:///another")
    given = written(log, 0, place)
    log.delete([given.handle])
    told = raises(ConfigError, lambda: committer(log, Cells(), monkeypatch).commit([given]))
    assert "wal=file:///another" in told.remedy


def test_the_ledger_forgets_what_is_finished_and_has_no_segment(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    finished, with_segment, open_one = written(log, 0), written(log, 1), written(log, 2)
    log.delete([finished.handle, open_one.handle])
    cells = Cells([c.handle for c in (finished, with_segment, open_one)])
    committer(log, cells, monkeypatch).forget(state(frontier=1))
    assert cells.handles == {with_segment.handle, open_one.handle}
    committer(log, cells, monkeypatch).forget(state(frontier=1))
    assert cells.swaps == 1


def test_the_newest_finished_handle_stays_until_the_next_epoch_is_committed(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    first, last, following = map(handle, range(3))
    also = replace(last, partition=1)
    cells = Cells([first, last, also])
    committer(log, cells, monkeypatch).forget(state(frontier=1))
    [kept] = cells.handles
    assert kept in (last, also)
    cells.text = ledger.to_text({kept, following})
    committer(log, cells, monkeypatch).forget(state(frontier=1))
    assert cells.handles == {following}


def test_a_ledger_that_names_a_later_epoch_than_the_register_tells_that_the_register_went_back(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    made = committer(log, Cells([handle(5)]), monkeypatch)
    past = Past(REGISTER, "job", (1, 4))
    assert [look.ahead for look in made.look_back(past)] == [(1, 5)]
    for same in (
        replace(past, decided=(1, 5)),
        replace(past, decided=(2, -1)),
        replace(past, register="f" * 16),
    ):
        assert made.look_back(same) == []


def test_a_handle_is_forsaken_once_its_ledger_was_written(
    log: FolderSegments, monkeypatch: Patch
) -> None:
    lost, kept = written(log, 0), written(log, 1)
    cells = Cells([kept.handle], conflicts=2)
    committer(log, cells, monkeypatch).forsake([lost])
    assert cells.swaps == 4  # two that others were before, one before the deletion and one after it
    assert cells.handles == {kept.handle}
    assert [entry.handle for entry in log.list("job")] == [kept.handle]


@pytest.mark.parametrize(
    ("noted", "now", "lost"),
    [
        ("a", "a", False),
        ("a", "b", True),  # it was made again
        ("a", "", True),  # it is gone
        ("a", None, False),  # the brokers tell no ids any more
        (None, "b", False),
        (None, "", False),
    ],
)
def test_a_ledger_that_is_gone_or_was_made_again_is_no_proof(
    noted: str | None, now: str | None, lost: bool, log: FolderSegments, monkeypatch: Patch
) -> None:
    place = LedgerPlace(OPTIONS.registertopic, noted, log.url)
    given = written(log, 0, place)
    facts: Any = {} if now == "" else {OPTIONS.registertopic: SimpleNamespace(id=now)}
    monkeypatch.setattr(ledger, "topics_in_time", lambda *_, **__: facts)
    assert ledger.without_proof(OPTIONS, [given, written(log, 1)]) == ([given] if lost else [])
    cells = Cells()
    made = committer(log, cells, monkeypatch)
    if lost:
        raises(CorruptionError, lambda: made.commit([given]))
        assert cells.sent == []
        assert [entry.handle for entry in log.list("job")] == [given.handle, handle(1)]
    else:
        made.commit([given])
        assert cells.sent == [[given.handle]]


def test_a_ledger_in_another_topic_is_not_asked_for(log: FolderSegments) -> None:
    given = written(log, 0, LedgerPlace("another", "a", log.url))
    told = raises(ConfigError, lambda: ledger.without_proof(OPTIONS, [written(log, 1), given]))
    assert "registertopic=another" in told.remedy


def test_the_place_of_the_ledger_is_looked_for_once_in_each_epoch(monkeypatch: Patch) -> None:
    learnt: dict[Any, Any] = {}
    known = SimpleNamespace(learnt=learnt.get, learn=learnt.__setitem__)
    monkeypatch.setattr(ledger, "cluster", lambda _: known)
    ids = count()
    topic = lambda *_: SimpleNamespace(name="registers", id=str(next(ids)))  # noqa: E731
    monkeypatch.setattr(ledger, "make_topic", topic)
    tasks = [
        SimpleNamespace(register=REGISTER, job="job", generation=1, epoch=n) for n in (0, 0, 1)
    ]
    places: list[Any] = [ledger.place_for(OPTIONS, task) for task in tasks]  # type: ignore[arg-type]
    assert [place.id for place in places] == ["0", "0", "1"]


def facts(**ids: str) -> Any:
    """Topics by name; ``side`` is the side topic."""
    return {
        (SIDE if name == "side" else name): SimpleNamespace(id=id_) for name, id_ in ids.items()
    }


GONE, AGAIN = "is gone", "was deleted and created again"


@pytest.mark.parametrize(
    ("birth", "first", "later", "frontier", "said"),
    [
        (Birth("a", "b"), facts(t="a", side="b"), None, 1, None),
        (Birth("a", "b"), facts(t="a"), facts(t="a", side="b"), 1, None),
        (Birth("a", "b"), facts(t="a"), facts(t="a"), 1, GONE),
        (Birth("a", "b"), facts(t="a", side="c"), None, 1, AGAIN),
        (Birth("a", "b"), facts(t="a"), facts(t="a", side="c"), 1, AGAIN),
        (Birth("a", "b"), facts(t="z", side="c"), None, 1, None),
        (Birth("a", "b"), facts(t="z"), facts(t="z"), 1, None),
        (Birth("a", "b"), facts(), facts(), 1, None),
        (Birth(None, None), facts(t="a", side="b"), None, 1, None),
        (Birth(None, None), facts(t="a"), facts(t="a"), 1, GONE),
        (None, facts(t="a", side="b"), None, 1, None),
        (None, facts(t="a"), facts(t="a"), None, None),
        (None, facts(t="a"), facts(t="a", side="b"), 0, None),
        (None, facts(t="a"), facts(t="a"), 0, GONE),
    ],
)
def test_a_side_topic_that_is_gone_or_was_made_again_is_told(
    birth: Birth | None,
    first: Any,
    later: Any,
    frontier: int | None,
    said: str | None,
    monkeypatch: Patch,
) -> None:
    def load(*_: object) -> Any:
        return SimpleNamespace(state=state(frontier))

    monkeypatch.setattr(side_topic, "KafkaRegister", lambda _: SimpleNamespace(load=load))
    monkeypatch.setattr(side_topic, "_seen", lambda *_: later)
    found = side_topic._loss(OPTIONS, "t", "job", birth, first)
    assert (found is None) if said is None else (found is not None and said in found.what)


DAY = 86_400_000
RIGHT = {"cleanup.policy": "delete", "retention.ms": str(DAY + 17), "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("data", "side", "partitions", "said"),
    [
        ("10", {}, 1, ""),
        ("10", {"retention.ms": str(DAY + 16)}, 1, "retention.ms"),
        ("10", {"retention.ms": "-1"}, 1, ""),
        ("-1", {}, 1, "retention.ms"),
        ("-1", {"retention.ms": "-1"}, 1, ""),
        ("10", {"retention.bytes": "1000"}, 1, "retention.bytes"),
        ("10", {"cleanup.policy": "compact"}, 1, "cleanup.policy"),
        ("10", {"cleanup.policy": "compact,delete"}, 1, "cleanup.policy"),
        ("10", {}, 2, "2 partitions"),
    ],
)
def test_a_side_topic_must_keep_winners_longer_than_the_data(
    data: str, side: dict[str, str], partitions: int, said: str, monkeypatch: Patch
) -> None:
    configs = {"t": {"retention.ms": data, "segment.ms": "7"}, SIDE: RIGHT | side}
    monkeypatch.setattr(side_topic, "configs_in_time", lambda _, name: configs[name])
    known = {"t": SimpleNamespace(compacted=False), SIDE: SimpleNamespace(partitions=partitions)}
    monkeypatch.setattr(side_topic, "topics_in_time", lambda *_, **__: known)
    monkeypatch.setattr(side_topic, "topic_facts", lambda *_, **__: known)
    found = side_topic.findings(OPTIONS)
    assert len(found) == bool(said)
    assert all(said in each.what for each in found)
    made = side_topic.side_config(OPTIONS.kafka, "t")
    assert made["retention.ms"] == ("-1" if data == "-1" else RIGHT["retention.ms"])
    assert (made["cleanup.policy"], made["retention.bytes"]) == ("delete", "-1")


def test_a_side_topic_is_checked_once_and_again_where_that_is_asked(monkeypatch: Patch) -> None:
    learnt: dict[Any, Any] = {}
    known = SimpleNamespace(
        learnt=learnt.get, learn=learnt.__setitem__, kept=lambda _, make: make()
    )
    monkeypatch.setattr(side_topic, "cluster", lambda _: known)
    settled = list[str]()
    monkeypatch.setattr(side_topic, "_settle", lambda *given: settled.append(given[-1]))
    wrong = [SimpleNamespace(what="It is compacted.", remedy="do not.")]
    monkeypatch.setattr(side_topic, "findings", lambda _: wrong)
    for _ in range(2):
        raises(PreflightError, lambda: side_topic.winners_topic(OPTIONS, "job"))
    assert settled == []
    wrong.clear()
    assert side_topic.winners_topic(OPTIONS, "one") == SIDE
    side_topic.winners_topic(OPTIONS, "two")
    side_topic.winners_topic(OPTIONS, "three", again=True)
    assert settled == ["one", "three"]


def test_a_side_topic_that_was_refused_is_checked_again(monkeypatch: Patch) -> None:
    learnt: dict[Any, Any] = {}
    known = SimpleNamespace(
        learnt=learnt.get, learn=learnt.__setitem__, kept=lambda _, make: make()
    )
    monkeypatch.setattr(side_topic, "cluster", lambda _: known)
    monkeypatch.setattr(side_topic, "findings", lambda _: [])

    def lost(*_: object) -> None:
        raise CorruptionError("it is gone (on purpose).")

    monkeypatch.setattr(side_topic, "_settle", lost)
    for _ in range(2):
        raises(CorruptionError, lambda: side_topic.winners_topic(OPTIONS, "job"))
