"""The cells of the register's topic, as records.

A cell is a record: the key is the job's, the value is JSON with version and state. A state too large
for one message is cut into chunks (key ``job#digest#number``; a job's key has no ``#``), written before
the cell in the same transaction. A value of None is a tombstone. A version is ``number-random``: the
number orders versions; the random part prevents reuse after ``retire``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from abs_core import strictjson
from abs_core.contracts import Version
from abs_core.errors import CorruptionError

Record = tuple[bytes, bytes | None]

FORMAT = 1
"""A cell without a number (315a560 and before) has this format."""


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
