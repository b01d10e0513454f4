"""Where segments are kept: what a folder or an object store must offer. Protocols only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from abs_core.model import HandleName

SUFFIX = ".arrows"
"""Ends a segment's name after its handle: Arrow's own suffix for the streaming format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store holds under a handle's name.

    Args:
        handle: the name.
        size: bytes that are there, seal included.
        age_seconds: since it was last written to, by the store's clock; None where unknown.
        sealed: False: its writer is at work, or died at it.
    """

    handle: HandleName
    size: int
    age_seconds: float | None
    sealed: bool


class SegmentFile(Protocol):
    """One segment that is being written: by one writer, from its beginning to its end."""

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append; how many bytes were taken (all)."""
        ...

    def seal(self) -> None:
        """Make it durable under its handle's name, whole or not at all. Nothing is written after.

        Raises:
            UnavailableError: it is not known whether it is there.
        """
        ...

    def discard(self) -> None:
        """Give up what is not sealed, at best effort. Never raises, never undoes a seal."""
        ...


class SegmentStore(Protocol):
    """Segments by the exact name of their handle; usable from many processes and machines at once.

    Every call raises ``UnavailableError`` where the store does not answer, and ``RefusedError``
    where it refuses for good.
    """

    @property
    def url(self) -> str:
        """Where it is, for people; without credentials."""
        ...

    def create(self, handle: HandleName) -> SegmentFile:
        """A new segment. No two live writers share a handle (I6), so nobody else writes there."""
        ...

    def open(self, handle: HandleName) -> AbstractContextManager[pa.NativeFile] | None:
        """A sealed segment for reading at any place of it, twice over; None where there is none."""
        ...

    def delete(self, handles: Sequence[HandleName]) -> None:
        """Remove these, sealed or not. One that is not there is passed over."""
        ...

    def list(self, job: str | None) -> Sequence[Entry]:
        """All there is of exactly this job key (None: of every job), by name.

        A file whose name is no handle's (``HandleName.parse``) is not ours and not listed.
        """
        ...


def name_of(handle: HandleName) -> str:
    """The last part of a segment's path or key."""
    return f"{handle}{SUFFIX}"


def handle_of(name: str) -> HandleName | None:
    """The handle that ``name_of`` gave this name; None where it is nobody's."""
    return HandleName.parse(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
