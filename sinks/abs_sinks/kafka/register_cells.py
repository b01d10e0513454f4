"""What the register's topic holds: cells, one per job, as records. Pure.

A cell is a record whose key is the job's and whose value is JSON: its version, and the state's text.
A state that does not fit into one message is cut into chunks: records of their own, written before
the cell in the same transaction, whose keys are named by the state's digest (``job#digest#number``;
a job's key has no ``#``). A value of None is a tombstone.

A version is ``number-random``: the number orders the versions of a cell, and the random part keeps a
version from coming again after ``retire``.
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
"""Of a cell; one without it is of 315a560 or before, and has this format."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A job's cell as it was read.

    Args:
        text: the state's.
        chunks: keys of the records that hold it, where it is cut.
    """

    version: Version
    text: str
    chunks: tuple[bytes, ...] = ()

    @property
    def number(self) -> int:
        return int(self.version.partition("-")[0])


def version_after(expected: Version | None) -> Version:
    """A version that was never there."""
    number = 1 if expected is None else Cell(expected, "").number + 1
    return f"{number}-{secrets.token_hex(8)}"


def records_of(job: str, version: Version, text: str, limit: int) -> list[Record]:
    """The records of a cell, in the order in which they must be written: itself last.

    Args:
        limit: bytes that a record's value may have.
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
    """The cells of one partition, as its committed records say, in the order they were written."""

    def __init__(self) -> None:
        self._cells: dict[str, bytes | None] = {}
        self._chunks: dict[bytes, bytes] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record."""
        if key is None:
            return  # nobody of us wrote it; a compacted topic takes none
        if b"#" not in key:
            self._cells[key.decode(errors="replace")] = value
        elif value is None:
            self._chunks.pop(key, None)
        else:
            self._chunks[key] = value

    def has(self, job: str) -> bool:
        """Whether the records that were read say all of the job's cell, or that it has none."""
        if job not in self._cells:
            return False
        try:
            self.get(job, job)
        except _MissingChunkError:
            return False
        return True

    def jobs(self) -> list[str]:
        """Every job that has a cell."""
        return sorted(job for job, value in self._cells.items() if value is not None)

    def get(self, job: str, where: str) -> Cell | None:
        """The job's cell; None where it has none.

        Raises:
            CorruptionError: it cannot be read, or a chunk of it is missing or damaged.
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
    """A part of a cell is not among what was read; it may lie further back."""


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
