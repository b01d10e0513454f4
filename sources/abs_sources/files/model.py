"""What a file source knows of a file, and what it asks of a place where files are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from abs_core.strictjson import of, text, whole


class Pin(NamedTuple):
    """One file with exactly one content.

    Attributes:
        path: below the source's root, with slashes; empty where the root is the file itself.
        size: in bytes.
        stamp: what another content of the same size would not have: on a local disk the time of its
            last change, in nanoseconds; on S3 the ETag.
    """

    path: str
    size: int
    stamp: str


def pin_from_json(value: object) -> Pin:
    """Raises ``ValueError`` where ``value`` is no pin as JSON has it."""
    path, size, stamp = of(list, value)
    return Pin(text(path), whole(size), text(stamp))


class Found(NamedTuple):
    """A file as a listing shows it.

    Attributes:
        pin: what it is now.
        modified: when it was last changed, in nanoseconds since 1970; only for the order.
    """

    pin: Pin
    modified: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, in bytes: what begins in it is read with it (lines, row groups, batches).

    Args:
        pin: of the whole file.
        start: first byte.
        end: first byte after it.
    """

    pin: Pin
    start: int
    end: int


class OpenFile(Protocol):
    """A pinned file, open for reading."""

    @property
    def content(self) -> pa.NativeFile:
        """With random access; what it reads is the pinned content, or ``check`` raises after it."""
        ...

    def check(self) -> None:
        """Look that what was read until now is the pinned content.

        Raises:
            ReplayMismatchError: the file is gone, or is another one now.
        """
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """A place where files are: a local folder, or a prefix in a bucket."""

    def find(self) -> Sequence[Found]:
        """All files that belong to the source now, in no order.

        Raises:
            UnavailableError: the place does not answer now.
            RefusedError: it is not there, or may not be listed.
        """
        ...

    def open(self, pin: Pin) -> OpenFile:
        """The file, where it is still the one that was pinned.

        Raises:
            ReplayMismatchError: it is gone, or is another one now.
            UnavailableError: the place does not answer now.
            RefusedError: it may not be read.
        """
        ...

    def name(self, path: str) -> str:
        """The file's full name, for people."""
        ...
