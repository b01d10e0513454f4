"""The interface of segment stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from abs_core.model import HandleName, InDoubt

SUFFIX = ".arrows"
"""Suffix of a segment's name after its handle: Arrow's suffix for the streaming format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A segment in a store.

    Args:
        size: in bytes, seal included.
        age_seconds: since the last write, by the store's clock; None if unknown.
        sealed: False: its writer is still writing, or has died.
    """

    handle: HandleName
    size: int
    age_seconds: float | None
    sealed: bool

    def in_doubt(self, url: str) -> InDoubt:
        """As a ``Committer`` lists it, in the store at ``url``."""
        size = f" of {self.size} bytes" if self.size else ""  # an upload that is open has none yet
        detail = f"segment{size} in {url}{'' if self.sealed else ', not sealed'}"
        return InDoubt(self.handle, self.age_seconds, detail, self.size)


class SegmentFile(Protocol):
    """A segment that one writer writes, from beginning to end."""

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append all of it; return its size in bytes."""
        ...

    def seal(self) -> None:
        """Make it durable under its handle's name, atomically. No write may follow.

        Raises:
            UnavailableError: the outcome is unknown.
        """
        ...

    def discard(self) -> None:
        """Delete a segment that is not sealed, at best effort. Never raises or undoes a seal."""
        ...


class SegmentStore(Protocol):
    """Segments by the exact name of their handle; usable from many processes and machines at once.

    Every call raises ``UnavailableError`` if the store does not answer, and ``RefusedError`` if it
    refuses permanently.
    """

    @property
    def url(self) -> str:
        """The store's location for display, without credentials."""
        ...

    def create(self, handle: HandleName) -> SegmentFile:
        """A new segment; no other writer uses its name, as no two live writers share a handle (I6)."""
        ...

    def open(self, handle: HandleName) -> AbstractContextManager[pa.NativeFile] | None:
        """A sealed segment, seekable and repeatable; None if there is none."""
        ...

    def delete(self, handles: Sequence[HandleName]) -> None:
        """Delete these, sealed or not; missing ones are ignored."""
        ...

    def list(self, job: str | None) -> Sequence[Entry]:
        """All segments of exactly this job key (None: of every job), by name.

        Files whose name is not a handle's (``HandleName.parse``) are not listed.
        """
        ...

    def reach(self) -> None:
        """Check that this process reaches the store; changes nothing."""
        ...


def name_of(handle: HandleName) -> str:
    """The last part of a segment's path or key."""
    return f"{handle}{SUFFIX}"


def handle_of(name: str) -> HandleName | None:
    """Inverse of ``name_of``; None if it is not a segment's name."""
    return HandleName.parse(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
