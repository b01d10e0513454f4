"""Values that describe files, and the protocol of a place that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from abs_core.durable import disk_errors
from abs_core.errors import ReplayMismatchError
from abs_core.strictjson import of, text, whole


class Pin(NamedTuple):
    """One file with one content.

    Attributes:
        path: below the source's root, with slashes; empty if the root is the file itself.
        size: in bytes.
        stamp: changes with the content: the local modification time in nanoseconds, or S3's ETag.
    """

    path: str
    size: int
    stamp: str


def pin_from_json(value: object) -> Pin:
    """Raises ``ValueError`` if ``value`` is not a pin's JSON."""
    path, size, stamp = of(list, value)
    return Pin(text(path), whole(size), text(stamp))


class Found(NamedTuple):
    """A listed file; ``modified`` (nanoseconds since 1970) determines the order only."""

    pin: Pin
    modified: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A byte range of a pinned file: lines, row groups and batches that begin in it belong to it."""

    pin: Pin
    start: int
    end: int


class OpenFile(Protocol):
    """A pinned file, open for reading."""

    @property
    def content(self) -> pa.NativeFile:
        """With random access; the bytes are the pinned content unless ``check`` raises afterwards."""
        ...

    def check(self) -> None:
        """Raise ReplayMismatchError if the bytes read so far are not the pinned content."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """A place of files: a local folder, or a prefix in a bucket."""

    def find(self) -> Sequence[Found]:
        """All files of the source now, in no order.

        Raises UnavailableError if the place does not answer, RefusedError if it does not exist or
        may not be listed.
        """
        ...

    def open(self, pin: Pin) -> OpenFile:
        """Open the pinned file.

        Raises:
            ReplayMismatchError: it is gone, or has changed.
            UnavailableError: the place does not answer now.
            RefusedError: it may not be read.
        """
        ...

    def name(self, path: str) -> str:
        """The file's full name, for people."""
        ...


def gone(name: str) -> ReplayMismatchError:
    """The pinned file does not exist any more."""
    return ReplayMismatchError(
        f"The file {name} was taken into an epoch and is gone now.",
        remedy="put it back, unchanged; keep files until the epoch that reads them is committed.",
    )


def changed(name: str, then: str, now: str) -> ReplayMismatchError:
    """The file differs from the pinned one."""
    return ReplayMismatchError(
        f"The file {name} has changed since it was taken into an epoch: {then} then, {now} now.",
        remedy="restore the original content with its modification time; give new content a new "
        "name, and write files elsewhere before you rename them into place.",
    )


def reading(name: str) -> AbstractContextManager[None]:
    """Raise errors of the disk as RefusedError or UnavailableError."""
    return disk_errors(name, right="read")
