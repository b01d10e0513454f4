"""Who reads a register's partition tells a transaction in the way from a leader that has died."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError

from abs_clients.kafka import timeouts
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.tail import BlockedError, Extent, Tail
from abs_sinks.kafka.register.topic import StoredCell, records_of, version_after

SETTINGS = KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}).kafka
VERSION = version_after(None)
((KEY, VALUE),) = records_of("job", VERSION, "text", 1000)
PATIENCE = 0.02


@dataclass(frozen=True)
class Read:
    """A message, or word that there is nothing behind it that may be read."""

    at: int
    is_end: bool = False
    millis: int = -1

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self.millis

    def key(self) -> bytes:
        return KEY

    def value(self) -> bytes | None:
        return VALUE


@dataclass
class Scripted:
    """Stands in for a consumer: gives what it has, then is silent."""

    messages: list[Read]
    closed: bool = False
    assigned: list[int] = field(default_factory=list)

    def assign(self, places: list[Any]) -> None:
        self.assigned = [place.offset for place in places]

    def unassign(self) -> None:
        self.assigned = []

    def poll(self, seconds: float) -> Read | None:
        return self.messages.pop(0) if self.assigned and self.messages else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    """Those that the tail opens, one after another; the partition ends at offset 2."""
    monkeypatch.setattr(timeouts, "NEW_READER_SECONDS", PATIENCE)
    return []


def tail_of(consumers: list[Scripted], ends: list[Extent] | None = None) -> Tail:
    """A tail that opens these consumers; ``ends``: what the leader answers, one after another."""
    opened: Any = lambda _: consumers.pop(0)  # noqa: E731
    extent_of = lambda *_: Extent(0, 2, 2) if ends is None else ends.pop(0)  # noqa: E731
    return Tail(SETTINGS, "r", 0, opened=opened, extent_of=extent_of)


def test_behind_a_leader_that_has_died_the_cell_is_read_by_a_new_consumer(
    consumers: list[Scripted],
) -> None:
    old, new = Scripted([]), Scripted([Read(0), Read(2, is_end=True)])
    consumers += [old, new]
    assert tail_of(consumers).load("job", PATIENCE) == StoredCell(VERSION, "text")
    assert old.closed
    assert not new.closed


def test_a_leader_that_dies_while_it_is_read_is_looked_for_anew(
    consumers: list[Scripted],
) -> None:
    consumers += [Scripted([Read(0)]), Scripted([Read(1)])]
    assert tail_of(consumers).load("job", PATIENCE) == StoredCell(VERSION, "text")


def test_a_transaction_in_the_way_is_told_by_the_consumer_that_has_met_it(
    consumers: list[Scripted],
) -> None:
    old = Scripted([Read(0), Read(1, is_end=True)])
    consumers += [old]
    with pytest.raises(BlockedError, match="up to offset 1 of 2"):
        tail_of(consumers).load("job", PATIENCE)
    assert not old.closed


def test_a_transaction_that_only_the_new_consumer_meets_is_told_all_the_same(
    consumers: list[Scripted],
) -> None:
    consumers += [Scripted([]), Scripted([Read(0), Read(1, is_end=True)])]
    with pytest.raises(BlockedError, match="up to offset 1 of 2"):
        tail_of(consumers).load("job", PATIENCE)


def test_of_leaders_that_never_answer_only_one_more_consumer_is_asked(
    consumers: list[Scripted],
) -> None:
    consumers += [Scripted([]), Scripted([]), Scripted([Read(0), Read(1)])]
    with pytest.raises(BlockedError):
        tail_of(consumers).load("job", PATIENCE)
    assert len(consumers) == 1


NEXT = version_after(VERSION)
OWN = records_of("job", NEXT, "own", 1000)
"""What this process commits after it has read the first cell: offsets 2 and 3, with the marker."""


@pytest.fixture
def ends(consumers: list[Scripted]) -> list[Extent]:
    """What the leader answers, one after another."""
    consumers.append(Scripted([Read(0), Read(2, is_end=True)]))
    return [Extent(0, 2, 2, "id")]


def test_what_this_process_has_committed_last_is_not_read(
    ends: list[Extent], consumers: list[Scripted]
) -> None:
    tail = tail_of(consumers, ends)
    assert tail.load("job", PATIENCE) == StoredCell(VERSION, "text")
    for number in (1, 2):
        tail.wrote(OWN, tail.reads)
        ends.append(Extent(0, 2 + 2 * number, 2 + 2 * number, "id"))
        assert tail.load("job", PATIENCE) == StoredCell(NEXT, "own")


@pytest.mark.parametrize(
    "extent",
    [
        Extent(0, 5, 5, "id"),  # somebody else's record, too
        Extent(0, 4, 2, "id"),  # somebody else's record, and the own marker is still to come
        Extent(0, 3, 2, "id"),  # the own marker is still to come
        Extent(0, 4, 4, "another"),  # the topic was made anew
        Extent(4, 4, 4, "id"),  # all records were deleted
    ],
)
def test_where_anything_else_was_written_the_records_are_read(
    ends: list[Extent], extent: Extent, consumers: list[Scripted]
) -> None:
    consumers += [Scripted([]), Scripted([])]
    tail = tail_of(consumers, ends)
    tail.load("job", PATIENCE)
    tail.wrote(OWN, tail.reads)
    ends.append(extent)
    if extent.first == extent.end:
        assert tail.load("job", PATIENCE) is None
    else:
        with pytest.raises(BlockedError):  # there is nothing to be read from
            tail.load("job", PATIENCE)


def test_a_record_that_may_have_been_read_already_does_not_hide_another_one(
    ends: list[Extent], consumers: list[Scripted]
) -> None:
    consumers.append(Scripted([]))
    tail = tail_of(consumers, ends)
    before = tail.reads
    tail.load("job", PATIENCE)
    tail.wrote(OWN, before)
    ends.append(Extent(0, 4, 4, "id"))  # the other one
    with pytest.raises(BlockedError):
        tail.load("job", PATIENCE)


@pytest.mark.parametrize(("millis", "changed"), [(-1, None), (0, None), (7, 7)])
def test_a_cells_time_is_its_records_where_that_has_one(
    millis: int, changed: int | None, consumers: list[Scripted]
) -> None:
    consumers += [Scripted([Read(0, millis=millis), Read(2, is_end=True)])]
    found = tail_of(consumers).load("job", PATIENCE)
    assert found is not None
    assert found.changed == changed


@pytest.mark.parametrize(
    ("end", "stable", "own"), [(4, 4, True), (3, 3, False), (5, 5, False), (4, 3, False)]
)
def test_own_records_are_taken_unread_only_where_they_are_all_that_is_new(
    end: int, stable: int, own: bool, consumers: list[Scripted]
) -> None:
    consumer = Scripted([Read(0), Read(2, is_end=True)])
    consumers += [consumer]
    tail = tail_of(consumers, [Extent(0, 2, 2), Extent(0, end, stable)])
    tail.load("job", PATIENCE)
    later = version_after(VERSION)
    tail.wrote(records_of("job", later, "own", 1000), tail.reads)  # a record, and its marker
    consumer.messages = [Read(2), Read(end, is_end=True)]
    found = StoredCell(later, "own") if own else StoredCell(VERSION, "text")
    assert tail.load("job", PATIENCE) == found
    assert len(consumer.messages) == (2 if own else 1 if end == 3 else 0)
