"""The register's topic: its creation, the checks of an existing one, and the records of its cells.

- ``PARTITIONS`` is a constant, so that a cell is found after somebody has added partitions. Jobs in
  one partition wait for each other's open transactions, for the milliseconds of a commit
  (``Session.end_writers`` bounds it).
- It is compacted, with small segments: only closed segments are compacted, and the search for an
  unknown job reads all the rest.
- The number of replicas is the broker's default. No lagging leader is elected, and two of several
  replicas must have a record, so that no decision is lost. Preflight checks all three.

A cell is a record: the key is the job's, the value is JSON with version and state. A state too large
for one message is cut into chunks (key ``job#digest#number``; a job's key has no ``#``), written before
the cell in the same transaction. A value of None is a tombstone. A version is ``number-random``: the
number orders versions; the random part prevents reuse after ``retire``.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from zlib import crc32

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import LEAST, UNCLEAN, TopicFacts, topic_facts, topics_in_time
from abs_core import strictjson
from abs_core.contracts import Version
from abs_core.errors import CorruptionError, PreflightError, RefusedError, UnavailableError

log = logging.getLogger(__name__)

PARTITIONS = 4
SEGMENT_BYTES = 4 << 20

_CONFIG = {
    "cleanup.policy": "compact",
    UNCLEAN: "false",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
    "message.timestamp.type": "CreateTime",
}


def partition_of(job: str) -> int:
    """The partition of a job's cell. All tokens of a batch job (``job@token``) share one."""
    return crc32(job.partition("+")[0].partition("@")[0].encode()) % PARTITIONS


def find_topic(settings: Settings, name: str) -> TopicFacts | None:
    """The topic, if it exists.

    Raises:
        PreflightError: it cannot hold registers.
        RefusedError: its settings may not be read.
    """
    found = topic_facts(settings, [name], again=True).get(name)
    return None if found is None else _checked(settings, found)


def make_topic(settings: Settings, name: str) -> TopicFacts:
    """The topic, created if missing; raises as ``find_topic`` and ``made``."""
    topic = find_topic(settings, name)
    return topic or _checked(settings, made(settings, name, PARTITIONS, _CONFIG))


def _checked(settings: Settings, topic: TopicFacts) -> TopicFacts:
    policy = topic.cleanup_policy
    if policy is None:  # asking for it alone raises the error
        policy = cluster(settings).admin.configs(topic.name)["cleanup.policy"]
    wrong = []
    if policy.replace(" ", "") != "compact":
        wrong.append(f"its cleanup.policy is {policy}: registers would be deleted")
    if topic.partitions < PARTITIONS:
        wrong.append(f"it has {topic.partitions} partitions of {PARTITIONS}")
    if wrong:
        raise PreflightError(
            f"The topic {topic.name} cannot hold registers: {'; '.join(wrong)}.",
            remedy="name another one with the option registertopic (a missing one is created); "
            f"or set cleanup.policy=compact and make it with {PARTITIONS} partitions.",
        )
    return topic


def made(settings: Settings, name: str, partitions: int, config: Mapping[str, str]) -> TopicFacts:
    """Create a topic that must not be lost.

    Raises:
        RefusedError: it may not be created.
        UnavailableError: it does not appear in time.
    """
    cluster(settings).admin.create(name, partitions, config)
    topic = topics_in_time(settings, [name], again=True).get(name)
    if topic is None:
        raise UnavailableError(f"The topic {name} was created, but is not visible yet.")
    need_two(settings, topic)
    return topic


def need_two(settings: Settings, topic: TopicFacts) -> None:
    """Set min.insync.replicas=2 on a new topic with several replicas; the default may be 1.

    If that is not allowed, preflight refuses the topic at the next start.

    Raises:
        TargetError: the brokers do not answer.
    """
    if topic.replicas < 2 or dict(topic.configs).get(LEAST) != "1":
        return
    try:
        cluster(settings).admin.set_config(topic.name, LEAST, "2")
    except RefusedError as error:
        log.warning("%s", error)


Record = tuple[bytes, bytes | None]

FORMAT = 1
"""A cell without a number (315a560 and before) has this format."""


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A job's cell.

    Args:
        text: the state's.
        chunks: keys of the state's chunks, if it is cut.
        changed: the record's time in ms; None if it is not known.
    """

    version: Version
    text: str
    chunks: tuple[bytes, ...] = ()
    changed: int | None = field(default=None, compare=False)


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


class StoredCells:
    """The cells of one partition, built from its committed records in order."""

    def __init__(self) -> None:
        self._cells: dict[str, bytes | None] = {}
        self._chunks: dict[bytes, bytes] = {}
        self._changed: dict[str, int | None] = {}

    def apply(self, key: bytes | None, value: bytes | None, at: int | None = None) -> None:
        """Apply the next record, with its time in ms if that is known."""
        if key is None:
            return  # not ours; a compacted topic takes no such record
        if b"#" not in key:
            job = key.decode(errors="replace")
            self._cells[job], self._changed[job] = value, at
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

    def all(self, where: str) -> dict[str, StoredCell]:
        """Every job's cell. Raises as ``get``."""
        cells = ((job, self.get(job, where)) for job in self._cells)
        return {job: cell for job, cell in cells if cell is not None}

    def get(self, job: str, where: str) -> StoredCell | None:
        """The job's cell, if any.

        Raises:
            CorruptionError: it cannot be read, or a chunk is missing or damaged.
        """
        value = self._cells.get(job)
        if value is None:
            return None
        with reading(f"The register at {where}"):
            fields = fields_of(value, FORMAT)
            version = strictjson.text(fields["cell"])
            strictjson.decimal(version.partition("-")[0])
            if "state" in fields:
                return StoredCell(
                    version, strictjson.text(fields["state"]), changed=self._changed[job]
                )
            digest = strictjson.text(fields["sha256"])
            keys = []
            # It ends at the first that is missing: a damaged number is huge.
            for number in range(strictjson.whole(fields["chunks"], 1)):
                keys.append(f"{job}#{digest}#{number}".encode())
                if keys[-1] not in self._chunks:
                    raise _MissingChunkError(
                        f"The register at {where} lacks its part {keys[-1].decode()}.",
                        remedy="do not delete it: it says what is committed. Restore the topic "
                        "from a backup.",
                    )
            data = b"".join(self._chunks[key] for key in keys)
            if sha256(data).hexdigest() != digest:
                raise ValueError("its parts are not what was written")
            return StoredCell(version, data.decode(), tuple(keys), self._changed[job])


class _MissingChunkError(CorruptionError):
    """A chunk of a cell is not among the records read; it may be further back."""


def fields_of(text: str | bytes, newest: int) -> strictjson.Fields:
    """The fields of a JSON text of a format up to ``newest``; one without a number has format 1.

    Raises:
        ValueError: it is another text, or of a newer release.
    """
    fields = strictjson.fields(strictjson.parse(text))
    strictjson.version(fields.get("format", 1), newest, name="format")
    return fields


def reading(subject: str, job: str | None = None) -> AbstractContextManager[None]:
    """``strictjson.reading`` of a text of this topic."""
    remedy = (
        "do not delete it: it says what is committed. Restore the register's topic from a backup"
    )
    return strictjson.reading(subject, remedy, job)
