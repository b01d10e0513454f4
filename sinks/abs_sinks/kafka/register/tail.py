"""The reader of the end of a partition of the register's topic.

It reads committed records, from ``SPAN`` offsets before the end and further back in growing steps until
the cell is found. So the load of a running job does not grow with its epochs; for an
unknown job the whole partition is read, which compaction keeps small.

It is told what its process commits (``wrote``). As long as the partition grows by nothing else, it
reads no record: it only asks where the partition ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from kafka.protocol.consumer import ListOffsetsRequest

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.codes import CONSUMER_RETRIES, UNHEARD
from abs_clients.kafka.configs import consumer_settings
from abs_clients.kafka.errors import to_abs_error, translate_errors
from abs_clients.kafka.routing import (
    MissingPartitionError,
    leaders_of,
    metadata_request,
    raise_for,
)
from abs_clients.kafka.settings import Settings
from abs_core.errors import UnavailableError
from abs_core.patience import Patience
from abs_sinks.kafka.register.topic import Record, StoredCell, StoredCells

log = logging.getLogger(__name__)

SPAN = 64
STEP = 16
"""The factor by which each step widens the search."""


class BlockedError(UnavailableError):
    """An open transaction keeps the partition's end from being read."""


class MissingError(UnavailableError):
    """The broker knows no such topic."""


class Tail:
    """A reader of one partition. Thread-safe.

    Args:
        opened: opens a consumer.
        extent_of: asks for the partition's extent, as ``log_offsets``.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partition: int,
        *,
        opened: Callable[[Settings], Consumer] | None = None,
        extent_of: Callable[[Settings, str, int], Extent | None] | None = None,
    ) -> None:
        self._settings = settings
        self._opened, self._extent_of = opened or _consumer, extent_of or log_offsets
        self._where = TopicPartition(topic, partition)
        self.name = f"{topic}/{partition}"
        self._lock = Lock()
        self._consumer = self._opened(settings)
        self._at_an_end = False  # of what may be read now, as its leader has said
        self._topic_id: str | None = None
        self.reads = 0
        """A number that changes whenever records are read; see ``wrote``."""
        self._reset()

    def wrote(self, records: Sequence[Record], reads: int) -> None:
        """Take note of records that this process has committed, in one transaction with no others here.

        Args:
            reads: as it was before the transaction began; if records were read since, these may be
                among them.
        """
        with self._lock:
            if reads == self.reads:
                self._own.extend(records)
                self._own_entries += len(records) + 1  # and the commit's marker

    def load(self, job: str, patience: float, before: int | None = None) -> StoredCell | None:
        """The job's cell, as of some moment between call and return.

        It is earlier where a broker answers that was stopped, and does not know yet that it leads the
        partition no longer; but not with ``before``.

        Args:
            patience: seconds to wait for an open transaction.
            before: offset of the first record of an open transaction, whose records are acknowledged;
                the cell is then as of this offset.

        Raises:
            BlockedError: the transaction is still open.
            MissingError: there is no such topic.
            UnavailableError: the broker does not answer.
            CorruptionError: the cell is damaged.
        """
        with self._lock:
            try:
                self._read_to_end(patience, before)
                while not self._cells.has(job) and self._start > self._low:
                    self._begin_at(self._at - STEP * (self._at - self._start))
                    self._read_to_end(patience, before)
            except BaseException:
                self._reset()  # where it stands is not sure
                raise
            return self._cells.get(job, f"topic {self.name}, job {job!r}")

    def all(self, patience: float) -> dict[str, StoredCell]:
        """Every job's cell. Raises as ``load``."""
        with self._lock:
            try:
                self._ends()
                self._begin_at(self._low)
                self._read_to_end(patience)
            except BaseException:
                self._reset()
                raise
            return self._cells.all(f"topic {self.name}")

    def close(self) -> None:
        with self._lock:
            self._consumer.close()

    def _reset(self) -> None:
        self._cells = StoredCells()
        self._at = -1  # offsets below it were read; -1: none
        self._start = self._low = 0
        self._seen = 0.0
        self._forget_own()

    def _forget_own(self) -> None:
        self.reads += 1
        self._own: list[Record] = []
        self._own_entries = 0

    def _ends(self) -> Extent:
        topic, partition = self._where.topic, self._where.partition
        patience = Patience(timeouts.REQUEST_SECONDS, first_pause=0.01)
        extent = patience.retry(lambda: self._extent_of(self._settings, topic, partition))
        if extent is None:
            raise MissingError(f"There is no topic {topic}, or it has no partition {partition}.")
        if extent.topic_id != self._topic_id:
            # The topic was deleted and made anew: what was read belongs to the one that is gone, and
            # offsets mean other records now, also where the new topic has become as long.
            if self._topic_id is not None:
                self._consumer.close()
                self._consumer = self._opened(self._settings)
            self._reset()
            self._topic_id = extent.topic_id
        self._low = extent.first
        return extent

    def _begin_at(self, start: int) -> None:
        self._cells = StoredCells()
        self._start = self._at = max(start, self._low)

    def _read_to_end(self, patience: float, before: int | None = None) -> None:
        # The end is asked for first: what was committed before the call lies before it, even where
        # its commit marker is still under way.
        extent = self._ends()
        end, now = extent.end, time.monotonic()
        if before is not None:
            # What is acknowledged lies below the end of the leader, and of no other broker.
            if not extent.stable <= before < end:
                raise UnavailableError(
                    f"The broker that answered for {self.name} leads it no longer.",
                    remedy="it will know soon: try again.",
                )
            end = before
        if self._low <= self._at == end - self._own_entries and extent.stable == end:
            # Each commit noted has added its records and a marker, and no marker is still to come: so
            # there are no other records.
            for key, value in self._own:
                self._cells.apply(key, value, round(time.time() * 1000))  # as its producer did
            self._at = end
        self._forget_own()
        if self._at < self._low or self._at > end or now - self._seen > timeouts.TAIL_SECONDS:
            self._begin_at(end - SPAN)
        if self._at < end:
            with translate_errors(f"reading {self.name}", self._settings):
                if not self._read(end, patience) and not self._at_an_end:
                    # No transaction is in the way: this consumer goes on to ask a leader that is dead.
                    log.debug("%s does not answer; reading it with a new consumer", self.name)
                    self._consumer.close()
                    self._consumer = self._opened(self._settings)
                    self._read(end, max(patience, timeouts.NEW_READER_SECONDS))
        if self._at < end:
            raise BlockedError(
                f"The register's partition {self.name} is read up to offset {self._at} of {end}: "
                "an open transaction blocks the rest.",
                remedy="the broker ends it after its timeout.",
            )
        self._seen = time.monotonic()

    def _read(self, end: int, patience: float) -> bool:
        """Read up to ``end``; False: no message came for ``patience`` seconds."""
        self._at_an_end = False
        self._consumer.assign([TopicPartition(self._where.topic, self._where.partition, self._at)])
        try:
            deadline = time.monotonic() + patience
            while self._at < end:
                message = self._consumer.poll(0.1)
                if message is not None:
                    self._take(message)
                    deadline = max(deadline, time.monotonic() + 0.2)
                elif time.monotonic() > deadline:
                    return False
        finally:
            self._consumer.unassign()
        return True

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            _, at = message.timestamp()
            self._cells.apply(message.key(), message.value(), at if at > 0 else None)
            self._at = max(self._at, _offset_of(message) + 1)
            self._at_an_end = False
        elif error.code() == KafkaError._PARTITION_EOF:
            # Its offset counts markers and aborted records too, which are never returned.
            self._at = max(self._at, _offset_of(message))
            self._at_an_end = True
        elif not error.retriable() and error.code() not in CONSUMER_RETRIES | UNHEARD:
            raise to_abs_error(error, f"reading {self.name}", self._settings)


def _consumer(settings: Settings) -> Consumer:
    """A consumer without a group."""
    ours = {
        "group.id": "abs-register",  # never joined, never committed to
        "isolation.level": "read_committed",
        # A fetch that is waiting is not answered when a commit frees records: ask often, but only
        # while something is being read (``_read_to_end``).
        "fetch.wait.max.ms": 2,
    }
    return Consumer(consumer_settings(settings, {}, ours))


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "what was read has an offset"
    return offset


_EARLIEST, _LATEST = -2, -1
_VERSIONS = (1, 7)
_UNCOMMITTED, _COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a partition's log.

    Args:
        first: the first existing offset.
        end: the offset of the next record, uncommitted ones included.
        stable: the first offset that a transaction still holds back; ``end`` if none does.
        topic_id: differs for a recreated topic. Empty if the broker does not tell (before Kafka
        2.8).
    """

    first: int
    end: int
    stable: int
    topic_id: str = ""


def log_offsets(settings: Settings, topic: str, partition: int) -> Extent | None:
    """The partition's extent by its leader; None if the queried broker knows no such partition.

    Raises:
        RefusedError: the principal may not describe the topic.
        UnavailableError: it has no leader, or one that does not know it yet, or no broker answers.
    """

    async def work(manager: Any) -> Extent | None:
        try:
            leaders = await leaders_of(manager, [(topic, partition)], remembered=True)
        except MissingPartitionError:
            return None
        node = next(iter(leaders))
        # A request may name a partition only once.
        # The end last: if it is the stable offset, nothing was open at that moment.
        asked = [
            manager.send(_request(topic, partition, when, isolation), node_id=node)
            for when, isolation in (
                (_EARLIEST, _UNCOMMITTED),
                (_LATEST, _COMMITTED),
                (_LATEST, _UNCOMMITTED),
            )
        ]
        described = manager.send(metadata_request([topic]), node_id=node)  # in the same round trip
        first, stable, end = [_offset(await future) for future in asked]
        return Extent(first, end, stable, _topic_id(await described))

    return cluster(settings).run(f"looking for the end of topic {topic}/{partition}", work)


def _request(topic: str, partition: int, when: int, isolation: int) -> Any:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    place = of_topic.ListOffsetsPartition(partition_index=partition, timestamp=when)
    least, most = _VERSIONS
    return ListOffsetsRequest(
        isolation_level=isolation,
        topics=[of_topic(name=topic, partitions=[place])],
        min_version=least,
        max_version=most,
    )


def _topic_id(response: Any) -> str:
    topic = response.topics[0]
    raise_for(topic.error_code, topic.name, missing=f"there is no topic {topic.name}")
    id_ = topic.topic_id
    return str(id_) if id_ else ""


def _offset(response: Any) -> int:
    partition = response.topics[0].partitions[0]
    name = f"{response.topics[0].name}/{partition.partition_index}"
    # One that leads no more says so, and one that was just named as the leader of a new topic may not
    # have heard of it yet: whoever asks again asks the new one.
    raise_for(partition.error_code, name, missing=f"the leader of {name} knows no such partition")
    return int(partition.offset)
