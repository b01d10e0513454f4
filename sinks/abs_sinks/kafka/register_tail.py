"""The cells of the register's topic, and the reader of a partition's end.

**Cells.** A cell is a record: the key is the job's, the value is JSON with version and state. A state
too large for one message is cut into chunks (key ``job#digest#number``; a job's key has no ``#``),
written before the cell in the same transaction. A value of None is a tombstone. A version is
``number-random``: the number orders versions; the random part prevents reuse after ``retire``.

**Tails** read committed records, from ``SPAN`` offsets before the end and further back in growing
steps until the cell is found. So the load of a running job does not grow with its epochs; for an
unknown job the whole partition is read, which compaction keeps small.

A tail is told what its process commits (``wrote``). As long as the partition grows by nothing else, it
reads no record: it only asks where the partition ends.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from abs_clients.kafka import timeouts
from abs_clients.kafka.codes import CONSUMER_RETRIES, UNHEARD
from abs_clients.kafka.configs import librdkafka_log
from abs_clients.kafka.errors import to_abs_error, translate_errors
from abs_clients.kafka.log_offsets import Extent, log_offsets
from abs_clients.kafka.settings import Settings
from abs_core import strictjson
from abs_core.contracts import Version
from abs_core.errors import CorruptionError, UnavailableError
from abs_core.patience import Patience

Record = tuple[bytes, bytes | None]

FORMAT = 1
"""A cell without a number (315a560 and before) has this format."""

log = logging.getLogger(__name__)

SPAN = 64
STEP = 16
"""The factor by which each step widens the search."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A job's cell.

    Args:
        text: the state's.
        chunks: keys of the state's chunks, if it is cut.
    """

    version: Version
    text: str
    chunks: tuple[bytes, ...] = ()


def version_after(expected: Version | None) -> Version:
    """A new version."""
    number = 1 if expected is None else number_of(expected) + 1
    return f"{number}-{secrets.token_hex(8)}"


def number_of(version: Version) -> int:
    """The number by which versions are ordered."""
    return int(version.partition("-")[0])


def records_of(job: str, version: Version, text: str, limit: int) -> list[Record]:
    """The records of a cell, in the order of writing: chunks, then the cell.

    Args:
        limit: bytes of a record's value.
    """
    entire = json.dumps({"cell": version, "format": FORMAT, "state": text}).encode()
    if len(entire) <= limit:
        return [(job.encode(), entire)]
    data = text.encode()
    digest = sha256(data).hexdigest()
    parts = [data[start : start + limit] for start in range(0, len(data), limit)]
    chunks: list[Record] = [
        (f"{job}#{digest}#{number}".encode(), part) for number, part in enumerate(parts)
    ]
    named = {"cell": version, "chunks": len(parts), "format": FORMAT, "sha256": digest}
    return [*chunks, (job.encode(), json.dumps(named).encode())]


class Cells:
    """The cells of one partition, built from its committed records in order."""

    def __init__(self) -> None:
        self._cells: dict[str, bytes | None] = {}
        self._chunks: dict[bytes, bytes] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record."""
        if key is None:
            return  # not ours; a compacted topic takes no such record
        if b"#" not in key:
            self._cells[key.decode(errors="replace")] = value
        elif value is None:
            self._chunks.pop(key, None)
        else:
            self._chunks[key] = value

    def has(self, job: str) -> bool:
        """Whether the records read so far hold the job's whole cell or its tombstone."""
        if job not in self._cells:
            return False
        try:
            self.get(job, job)
        except _MissingChunkError:
            return False
        return True

    def jobs(self) -> list[str]:
        """Every job with a cell, sorted."""
        return sorted(job for job, value in self._cells.items() if value is not None)

    def get(self, job: str, where: str) -> Cell | None:
        """The job's cell, if any.

        Raises:
            CorruptionError: it cannot be read, or a chunk is missing or damaged.
        """
        value = self._cells.get(job)
        if value is None:
            return None
        try:
            found = strictjson.fields(strictjson.parse(value))
            strictjson.version(found.get("format", 1), FORMAT, name="format")
            version = strictjson.text(found["cell"])
            strictjson.decimal(version.partition("-")[0])
            if "state" in found:
                return Cell(version, strictjson.text(found["state"]))
            digest = strictjson.text(found["sha256"])
            count = strictjson.whole(found["chunks"], 1)
        except ValueError as error:
            raise _unreadable(where, str(error)) from error
        keys = []
        for number in range(
            count
        ):  # it ends at the first that is missing: a damaged number is huge
            keys.append(f"{job}#{digest}#{number}".encode())
            if keys[-1] not in self._chunks:
                raise _missing(where, f"its part {keys[-1].decode()}")
        return Cell(version, self._join(keys, digest, where), tuple(keys))

    def _join(self, keys: Sequence[bytes], digest: str, where: str) -> str:
        data = b"".join(self._chunks[key] for key in keys)
        if sha256(data).hexdigest() != digest:
            raise _unreadable(where, "its parts are not what was written")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _unreadable(where, str(error)) from error


class BlockedError(UnavailableError):
    """An open transaction keeps the partition's end from being read."""


class MissingError(UnavailableError):
    """The broker knows no such topic."""


class Tail:
    """A reader of one partition. Thread-safe."""

    def __init__(self, settings: Settings, topic: str, partition: int) -> None:
        self._settings = settings
        self._where = TopicPartition(topic, partition)
        self.name = f"{topic}/{partition}"
        self._lock = Lock()
        self._consumer = _consumer(settings)
        self._blocked_at = 0
        self._at_an_end = False  # of what may be read now, as its leader has said
        self._topic_id: str | None = None
        self._reads = 0
        self._reset()

    @property
    def reads(self) -> int:
        """A number that changes whenever records are read; see ``wrote``."""
        return self._reads

    def wrote(self, records: Sequence[Record], reads: int) -> None:
        """Take note of records that this process has committed, in one transaction with no others here.

        Args:
            reads: as it was before the transaction began; if records were read since, these may be
                among them.
        """
        with self._lock:
            if reads == self._reads:
                self._own.extend(records)
                self._own_entries += len(records) + 1  # and the commit's marker

    def load(self, job: str, patience: float) -> Cell | None:
        """The job's cell, as of some moment between call and return.

        Args:
            patience: seconds to wait for an open transaction.

        Raises:
            BlockedError: the transaction is still open.
            MissingError: there is no such topic.
            UnavailableError: the broker does not answer.
            CorruptionError: the cell is damaged.
        """
        with self._lock:
            try:
                self._read_to_end(patience)
                while not self._cells.has(job) and self._start > self._low:
                    self._go_back()
                    self._read_to_end(patience)
            except BaseException:
                self._reset()  # where it stands is not sure
                raise
            return self._cells.get(job, f"topic {self.name}, job {job!r}")

    def all(self, patience: float) -> dict[str, Cell]:
        """Every job's cell. Raises as ``load``."""
        with self._lock:
            try:
                self._ends()
                self._begin_at(self._low)
                self._read_to_end(patience)
            except BaseException:
                self._reset()
                raise
            cells = {job: self._cells.get(job, f"topic {self.name}") for job in self._cells.jobs()}
        return {job: cell for job, cell in cells.items() if cell is not None}

    def writers(self, read_uncommitted: Consumer) -> set[str]:
        """Jobs with records after the offset at which the last read was blocked.

        Args:
            read_uncommitted: a consumer of that isolation level.
        """
        with self._lock:
            at, end = self._blocked_at, self._ends().end
            found: set[str] = set()
            with translate_errors(f"reading {self.name}"):
                read_uncommitted.assign(
                    [TopicPartition(self._where.topic, self._where.partition, at)]
                )
                deadline = time.monotonic() + timeouts.REQUEST_SECONDS
                while at < end and time.monotonic() < deadline:
                    message = read_uncommitted.poll(0.1)
                    if message is None:
                        continue
                    if message.error() is None:
                        found.add(
                            (message.key() or b"").partition(b"#")[0].decode(errors="replace")
                        )
                    at = max(at, message.offset() or 0)
                    at += message.error() is None
            return found

    def close(self) -> None:
        with self._lock:
            self._consumer.close()

    def _reset(self) -> None:
        self._cells = Cells()
        self._at = -1  # offsets below it were read; -1: none
        self._start = self._low = 0
        self._seen = 0.0
        self._forget_own()

    def _forget_own(self) -> None:
        self._reads += 1
        self._own: list[Record] = []
        self._own_entries = 0

    def _ends(self) -> Extent:
        topic, partition = self._where.topic, self._where.partition
        patience = Patience(timeouts.REQUEST_SECONDS, first_pause=0.01)
        found = patience.retry(lambda: log_offsets(self._settings, topic, partition))
        if found is None:
            raise MissingError(f"There is no topic {topic}, or it has no partition {partition}.")
        if found.topic_id != self._topic_id:
            # The topic was deleted and made anew: what was read belongs to the one that is gone, and
            # offsets mean other records now, also where the new topic has become as long.
            if self._topic_id is not None:
                self._consumer.close()
                self._consumer = _consumer(self._settings)
            self._reset()
            self._topic_id = found.topic_id
        self._low = found.first
        return found

    def _begin_at(self, start: int) -> None:
        self._cells = Cells()
        self._start = self._at = max(start, self._low)

    def _go_back(self) -> None:
        self._begin_at(self._at - STEP * (self._at - self._start))

    def _read_to_end(self, patience: float) -> None:
        # The end is asked for first: what was committed before the call lies before it, even where
        # its commit marker is still under way.
        extent = self._ends()
        end, now = extent.end, time.monotonic()
        if self._low <= self._at == end - self._own_entries and extent.stable == end:
            # Each commit noted has added its records and a marker, and no marker is still to come: so
            # there are no other records.
            for key, value in self._own:
                self._cells.apply(key, value)
            self._at = end
        self._forget_own()
        if self._at < self._low or self._at > end or now - self._seen > timeouts.TAIL_SECONDS:
            self._begin_at(end - SPAN)
        if self._at < end:
            with translate_errors(f"reading {self.name}"):
                if not self._read(end, patience) and not self._at_an_end:
                    # No transaction is in the way: this consumer goes on to ask a leader that is dead.
                    log.debug("%s does not answer: read by a new consumer", self.name)
                    self._consumer.close()
                    self._consumer = _consumer(self._settings)
                    self._read(end, max(patience, timeouts.NEW_READER_SECONDS))
        if self._at < end:
            self._blocked_at = self._at
            raise BlockedError(
                f"The register's partition {self.name} is read up to offset {self._at} of {end}:"
                " a transaction that is not ended is in the way.",
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
            self._cells.apply(message.key(), message.value())
            self._at = max(self._at, _offset(message) + 1)
            self._at_an_end = False
        elif error.code() == KafkaError._PARTITION_EOF:
            # Its offset counts markers and aborted records too, which are never returned.
            self._at = max(self._at, _offset(message))
            self._at_an_end = True
        elif not error.retriable() and error.code() not in CONSUMER_RETRIES | UNHEARD:
            raise to_abs_error(error, f"reading {self.name}")


def _consumer(settings: Settings) -> Consumer:
    return Consumer(
        {
            **reading(settings),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # A fetch that is waiting is not answered when a commit frees records: ask often, but
            # only while something is being read (``_read_to_end``).
            "fetch.wait.max.ms": 2,
        }
    )


def reading(settings: Settings) -> dict[str, Any]:
    """The settings of a consumer without a group."""
    return {
        "log_level": "2",  # lost connections are tried again; what fails for good is an error
        **dict(settings.pairs),
        "group.id": "abs-register",  # never joined, never committed to
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "logger": librdkafka_log,
    }


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "what was read has an offset"
    return offset


class _MissingChunkError(CorruptionError):
    """A chunk of a cell is not among the records read; it may be further back."""


def _missing(where: str, what: str) -> _MissingChunkError:
    return _MissingChunkError(
        f"The register at {where} lacks {what}.",
        remedy="do not delete it: it says what is committed. Restore the topic from a backup.",
    )


def _unreadable(where: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"The register at {where} cannot be read: {why}.",
        remedy="do not delete it: it says what is committed. Restore the topic from a backup; or "
        f"{strictjson.NEWER}.",
    )
