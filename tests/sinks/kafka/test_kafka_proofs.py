"""The rules by which ledger and side topic say what is committed; no broker is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import side_topic as name_of
from abs_clients.kafka.cluster import close_clusters
from abs_core.codec import state_to_text
from abs_core.contracts import Task
from abs_core.errors import ConfigError, ContentionError, CorruptionError, PreflightError
from abs_core.lookback import Past
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_core.wal import FolderSegments, SegmentWriter
from abs_core.wal.contracts import name_of as name_of_segment
from abs_core.wal.folder import OPEN
from abs_sinks.kafka import ledger, side_topic, wal
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.side_topic import Birth
from abs_sinks.kafka.wal import WalCommitter
from abs_testing.case import raises
from tests.sinks.kafka.standins import Broker, Registers, id_of

REGISTER = "0123456789abcdef"
OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "wal", "wal": "file:///x"}
)
SIDE = name_of("t")


def handle(epoch: int, generation: int = 1) -> HandleName:
    return HandleName(REGISTER, "job", generation, epoch, 0, "abc")


def state(frontier: int | None, generation: int = 1) -> JobState:
    begun = JobState(REGISTER, "job", "here", "lineage", generation, "run")
    return replace(begun, frontier=frontier)


def written(log: FolderSegments, epoch: int, place: LedgerPlace | None = None) -> Committable:
    batch = pa.record_batch({"value": [f"{epoch}-a", f"{epoch}-b"]})
    writer = SegmentWriter(log, handle(epoch), batch.schema)
    writer.write(batch)
    seal = writer.finish()
    assert seal is not None
    made = seal.committable()
    return made if place is None else place.noted(made)


class Ledger(Registers):
    """The ledger's cell of the job."""

    def __init__(self, handles: Sequence[HandleName] = ()) -> None:
        super().__init__()
        self.note(handles)
        self.used_by(OPTIONS)

    def note(self, handles: Sequence[HandleName]) -> None:
        """As another process does."""
        self.put(wal.ledger_key("job"), ledger.to_text({*handles}))

    @property
    def handles(self) -> set[HandleName]:
        return ledger.handles_in_ledger("job", self.cells[wal.ledger_key("job")].text)

    @property
    def sent_epochs(self) -> list[list[int]]:
        """The epochs whose records each transaction has sent."""
        return [sorted({int(value.partition(b"-")[0]) for value in sent}) for sent in self.sent]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """What stands for brokers here is forgotten."""
    close_clusters()
    yield
    close_clusters()


@pytest.fixture
def log(tmp_path: Path) -> FolderSegments:
    return FolderSegments(tmp_path)


@pytest.fixture
def topic(standins: list[Broker]) -> None:
    """A broker that has the topic of the options."""
    standins += [Broker(["t"], ids={"t": 1})]


def committer(log: FolderSegments) -> WalCommitter:
    return WalCommitter(OPTIONS, log)


@pytest.mark.usefixtures("topic")
def test_what_the_ledger_names_is_not_sent_again(log: FolderSegments) -> None:
    done, new = written(log, 0), written(log, 1)
    cell = Ledger([done.handle])
    found = committer(log).commit([done, new])
    assert set(found.values()) == {Outcome.COMMITTED}
    assert cell.sent_epochs == [[1]]
    assert cell.handles == {done.handle, new.handle}
    assert log.list("job") == []


@pytest.mark.usefixtures("topic")
def test_what_another_has_sent_meanwhile_is_not_sent_again(log: FolderSegments) -> None:
    first, second = written(log, 0), written(log, 1)
    cell = Ledger()
    cell.before = [lambda: cell.note([first.handle])]
    found = committer(log).commit([first, second])
    assert set(found.values()) == {Outcome.COMMITTED}
    assert cell.sent_epochs == [[1]]


@pytest.mark.usefixtures("topic")
def test_a_segment_that_is_gone_is_committed_by_the_ledger_alone(log: FolderSegments) -> None:
    done, unknown, whole = (written(log, epoch) for epoch in range(3))
    log.delete([done.handle, unknown.handle])
    Ledger([done.handle])
    made, given = committer(log), [done, unknown, whole]
    expected = [Outcome.COMMITTED, Outcome.UNKNOWN, Outcome.PREPARED]
    assert [made.inspect(given)[c.handle].outcome for c in given] == expected
    found = made.commit(given)
    assert [found[c.handle] for c in given] == [*expected[:2], Outcome.COMMITTED]


@pytest.mark.usefixtures("topic")
def test_a_segment_that_is_not_sealed_stays_beside_one_that_is_committed(
    log: FolderSegments, tmp_path: Path
) -> None:
    half, whole = written(log, 0), written(log, 1)
    (tmp_path / name_of_segment(half.handle)).rename(
        tmp_path / f"{name_of_segment(half.handle)}{OPEN}"
    )
    cell = Ledger()
    found = committer(log).commit([half, whole])
    assert found == {half.handle: Outcome.UNKNOWN, whole.handle: Outcome.COMMITTED}
    assert (cell.sent_epochs, cell.handles) == ([[1]], {whole.handle})
    assert [(entry.handle, entry.sealed) for entry in log.list("job")] == [(half.handle, False)]


def test_a_segment_that_is_gone_in_another_log_is_not_called_unknown(log: FolderSegments) -> None:
    place = LedgerPlace(OPTIONS.registertopic, None, "file:///another")
    given = written(log, 0, place)
    log.delete([given.handle])
    Ledger()
    told = raises(ConfigError, lambda: committer(log).commit([given]))
    assert "wal=file:///another" in told.remedy


def test_the_ledger_forgets_what_is_finished_and_has_no_segment(log: FolderSegments) -> None:
    finished, with_segment, open_one = written(log, 0), written(log, 1), written(log, 2)
    log.delete([finished.handle, open_one.handle])
    cell = Ledger([c.handle for c in (finished, with_segment, open_one)])
    committer(log).forget(state(frontier=1))
    assert cell.handles == {with_segment.handle, open_one.handle}
    committer(log).forget(state(frontier=1))
    assert len(cell.tried) == 1


def test_the_newest_finished_handle_stays_until_the_next_epoch_is_committed(
    log: FolderSegments,
) -> None:
    first, last, following = map(handle, range(3))
    also = replace(last, partition=1)
    cell = Ledger([first, last, also])
    committer(log).forget(state(frontier=1))
    [kept] = cell.handles
    assert kept in (last, also)
    cell.note([kept, following])
    committer(log).forget(state(frontier=1))
    assert cell.handles == {following}


def test_a_ledger_that_names_a_later_epoch_than_the_register_tells_that_the_register_went_back(
    log: FolderSegments,
) -> None:
    Ledger([handle(5)])
    made = committer(log)
    past = Past(REGISTER, "job", (1, 4))
    assert [look.ahead for look in made.look_back(past)] == [(1, 5)]
    for same in (
        replace(past, decided=(1, 5)),
        replace(past, decided=(2, -1)),
        replace(past, register="f" * 16),
    ):
        assert made.look_back(same) == []


def test_a_handle_is_forsaken_once_its_ledger_was_written(log: FolderSegments) -> None:
    lost, kept = written(log, 0), written(log, 1)
    cell = Ledger([kept.handle])
    cell.before = [lambda: cell.note([kept.handle])] * 2
    there: list[bool] = []
    cell.before.append(lambda: there.append(bool(log.list("job")[1:])))
    cell.before.append(lambda: there.append(bool(log.list("job")[1:])))
    committer(log).forsake([lost])
    assert there == [True, False], "it is written before the deletion, and after it"
    assert len(cell.tried) == 2
    assert cell.handles == {kept.handle}
    assert [entry.handle for entry in log.list("job")] == [kept.handle]


@pytest.mark.parametrize(
    ("noted", "now", "lost"),
    [
        (1, 1, False),
        (1, 2, True),  # it was made again
        (1, 0, True),  # it is gone
        (1, None, False),  # the brokers tell no ids any more
        (None, 2, False),
        (None, 0, False),
    ],
)
def test_a_ledger_that_is_gone_or_was_made_again_is_no_proof(
    noted: int | None, now: int | None, lost: bool, log: FolderSegments, standins: list[Broker]
) -> None:
    place = LedgerPlace(OPTIONS.registertopic, id_of(noted) if noted else None, log.url)
    given = written(log, 0, place)
    topic = OPTIONS.registertopic
    standins += [Broker([] if now == 0 else [topic], ids={topic: now} if now else {})]
    assert ledger.without_proof(OPTIONS, [given, written(log, 1)]) == ([given] if lost else [])
    cell = Ledger()
    made = committer(log)
    if lost:
        raises(CorruptionError, lambda: made.commit([given]))
        assert cell.sent == []
        assert [entry.handle for entry in log.list("job")] == [given.handle, handle(1)]
    else:
        made.commit([given])
        assert cell.sent_epochs == [[0]]


def test_a_ledger_in_another_topic_is_not_asked_for(log: FolderSegments) -> None:
    given = written(log, 0, LedgerPlace("another", "a", log.url))
    told = raises(ConfigError, lambda: ledger.without_proof(OPTIONS, [written(log, 1), given]))
    assert "registertopic=another" in told.remedy


def test_the_place_of_the_ledger_is_looked_for_once_in_each_epoch(standins: list[Broker]) -> None:
    topic = OPTIONS.registertopic
    compacted = {"cleanup.policy": "compact"}
    standins += [Broker([topic], configs=compacted, ids={topic: 1}, partitions=4)]
    tasks = [Task(REGISTER, "job", 1, epoch, 0, "ab") for epoch in (0, 0, 1)]
    places = [ledger.place_for(OPTIONS, task) for task in tasks]
    assert [place.id for place in places] == [id_of(1)] * 3
    assert standins[0].looks == [[topic]] * 2


GONE, AGAIN = "is gone", "was deleted and created again"


def knowing(**ids: int) -> Broker:
    """A broker of these topics, with their ids; ``side`` is the side topic."""
    of = {(SIDE if name == "side" else name): number for name, number in ids.items()}
    return Broker([*of], ids={name: number for name, number in of.items() if number})


ATTEMPTS = replace(OPTIONS, common=replace(OPTIONS.common, protocol="idempotent"))


@pytest.mark.parametrize(
    ("birth", "first", "later", "frontier", "said"),
    [
        ((1, 2), {"t": 1, "side": 2}, None, 1, None),
        ((1, 2), {"t": 1}, {"t": 1, "side": 2}, 1, None),
        ((1, 2), {"t": 1}, {"t": 1}, 1, GONE),
        ((1, 2), {"t": 1, "side": 3}, None, 1, AGAIN),
        ((1, 2), {"t": 1}, {"t": 1, "side": 3}, 1, AGAIN),
        ((1, 2), {"t": 9, "side": 3}, None, 1, None),
        ((1, 2), {"t": 9}, {"t": 9}, 1, None),
        ((1, 2), {}, {}, 1, None),
        ((0, 0), {"t": 1, "side": 2}, None, 1, None),
        ((0, 0), {"t": 1}, {"t": 1}, 1, GONE),
        (None, {"t": 1, "side": 2}, None, 1, None),
        (None, {"t": 1}, {"t": 1}, None, None),
        (None, {"t": 1}, {"t": 1, "side": 2}, 0, None),
        (None, {"t": 1}, {"t": 1}, 0, GONE),
    ],
)
def test_a_side_topic_that_is_gone_or_was_made_again_is_told(
    birth: tuple[int, int] | None,
    first: dict[str, int],
    later: dict[str, int] | None,
    frontier: int | None,
    said: str | None,
    standins: list[Broker],
) -> None:
    """By the first broker that is asked, and by another one where that does not know it."""
    standins += [knowing(**first), *([] if later is None else [knowing(**later)])]
    there = Registers().used_by(ATTEMPTS)
    there.put("job", state_to_text(state(frontier)))
    if birth is not None:
        ids = (id_of(number) if number else None for number in birth)
        there.put("t+winners", Birth(*ids).to_text())
    found = side_topic.side_loss(ATTEMPTS, "t", "job")
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
    data: str, side: dict[str, str], partitions: int, said: str, standins: list[Broker]
) -> None:
    configs = {"t": {"retention.ms": data, "segment.ms": "7"}, SIDE: RIGHT | side}
    standins += [Broker(["t", SIDE], more=configs, partitions=partitions)]
    found = side_topic.findings(ATTEMPTS)
    assert len(found) == bool(said)
    assert all(said in each.what for each in found)
    made = side_topic.side_config(ATTEMPTS.kafka, "t")
    assert made["retention.ms"] == ("-1" if data == "-1" else RIGHT["retention.ms"])
    assert (made["cleanup.policy"], made["retention.bytes"]) == ("delete", "-1")


@pytest.fixture
def broker(standins: list[Broker]) -> Broker:
    """One that has data and side topic as they should be."""
    configs = {"t": {"retention.ms": "10", "segment.ms": "7"}, SIDE: RIGHT}
    standins += [Broker(["t", SIDE], more=configs, ids={"t": 1, SIDE: 2})]
    return standins[0]


def test_a_side_topic_is_checked_once_and_again_where_that_is_asked(broker: Broker) -> None:
    there = Registers().used_by(ATTEMPTS)
    broker.configs = {"cleanup.policy": "compact"}
    for _ in range(2):
        raises(PreflightError, lambda: side_topic.winners_topic(ATTEMPTS, "job"))
    assert there.cells == {}
    broker.configs = {}
    assert side_topic.winners_topic(ATTEMPTS, "one") == SIDE
    assert [*there.cells] == ["t+winners"]
    broker.knows = ["t"]
    side_topic.winners_topic(ATTEMPTS, "two")
    again = lambda: side_topic.winners_topic(ATTEMPTS, "three", again=True)  # noqa: E731
    assert GONE in raises(CorruptionError, again).what


def test_a_side_topic_that_was_refused_is_checked_again(broker: Broker) -> None:
    there = Registers().used_by(ATTEMPTS)
    there.put("t+winners", Birth(id_of(1), id_of(3)).to_text())
    for _ in range(2):
        error = raises(CorruptionError, lambda: side_topic.winners_topic(ATTEMPTS, "job"))
        assert AGAIN in error.what


def test_an_entry_of_a_side_topic_that_others_keep_writing_is_an_error(broker: Broker) -> None:
    there = Registers().used_by(ATTEMPTS)
    text = Birth(None, None).to_text()
    there.before = [lambda: there.put("t+winners", text)] * side_topic.TRIES
    error = raises(ContentionError, lambda: side_topic.winners_topic(ATTEMPTS, "job"))
    assert f"the entry of {SIDE}" in error.what
    assert there.tried == []
