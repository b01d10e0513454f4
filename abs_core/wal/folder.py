"""Segments in a folder, on one machine or on a file system shared by the driver and all executors.

A segment is written under a temporary name (``.open``), flushed, renamed, and its folder flushed: after
a crash it exists completely or not at all. Only its owner may read it. The file of a writer that died
is listed as not sealed, and swept like any other handle.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pyarrow as pa

from abs_core.durable import disk_errors, flush_folder, make_durably, names_in, owners_alone
from abs_core.errors import RefusedError
from abs_core.model import HandleName
from abs_core.wal.contracts import Entry, handle_of, name_of

OPEN = ".open"
ID_FILE = ".abs-wal-id"
"""File that holds the folder's id, if it has one."""


class FolderSegments:
    """A ``SegmentStore``. Survives power loss as far as the file system honours fsync.

    Args:
        folder: made with the first segment. Other files in it are left alone.
        known_as: its expected id (``ID_FILE``); a process that sees another folder or none at this
            path fails.
    """

    def __init__(self, folder: str | Path, known_as: str | None = None) -> None:
        self._folder = Path(folder).absolute()
        self._known_as = known_as

    @property
    def url(self) -> str:
        return self._folder.as_uri()

    def exists(self) -> bool:
        """Whether the folder is there; the first segment makes it."""
        return self._folder.is_dir()

    def reach(self) -> None:
        """See ``SegmentStore``: checks the folder's id, if it has one."""
        self._check_id()

    def create(self, handle: HandleName) -> FolderFile:
        self._check_id()
        with self._mapped("creating a segment"):
            make_durably(self._folder)
        return FolderFile(self, handle)

    def open(self, handle: HandleName) -> AbstractContextManager[pa.NativeFile] | None:
        self._check_id()
        with self._mapped("opening a segment"):
            path = self._folder / name_of(handle)
            try:
                # Arrow cannot map an empty file, which must be reported as damaged.
                empty = path.stat().st_size == 0
                opened: AbstractContextManager[pa.NativeFile] = (
                    pa.BufferReader(b"") if empty else pa.memory_map(str(path))
                )
            except FileNotFoundError:
                return None
            return opened

    def delete(self, handles: Sequence[HandleName]) -> None:
        with self._mapped("deleting segments"):
            for handle in handles:
                for name in (name_of(handle), name_of(handle) + OPEN):
                    (self._folder / name).unlink(missing_ok=True)

    def list(self, job: str | None) -> Sequence[Entry]:
        entries = []
        self._check_id()
        with self._mapped("listing segments"):
            now = time.time()
            for name in names_in(self._folder):
                handle = handle_of(name.removesuffix(OPEN))
                if handle is None or job not in (None, handle.job):
                    continue
                with suppress(FileNotFoundError):  # deleted meanwhile
                    stat = (self._folder / name).stat()
                    age = max(0.0, now - stat.st_mtime)
                    entries.append(Entry(handle, stat.st_size, age, not name.endswith(OPEN)))
        return entries

    def _check_id(self) -> None:
        if self._known_as is None:
            return
        with self._mapped("looking for its id"):
            try:
                folder_id = (self._folder / ID_FILE).read_text()
            except FileNotFoundError:
                folder_id = ""
        if folder_id != self._known_as:
            raise RefusedError(
                f"On {socket.gethostname()} the write-ahead log at {self.url} is not the folder that "
                "the driver uses: it is on another file system, or was deleted.",
                remedy="set wal to a URL that every task and the driver reach: file:///... on a shared "
                "file system, or s3://bucket/prefix.",
            )

    def _mapped(self, doing: str) -> AbstractContextManager[None]:
        subject = f"The write-ahead log at {self.url}"
        return disk_errors(subject, doing, room="make room (`abs wal ls` shows what is there)")


class FolderFile:
    """A ``SegmentFile`` in a folder."""

    def __init__(self, store: FolderSegments, handle: HandleName) -> None:
        self._store = store
        self._path = store._folder / name_of(handle)
        self._open = self._path.with_name(self._path.name + OPEN)
        with store._mapped("creating a segment"):
            self._file = open(self._open, "wb", buffering=1 << 20, opener=owners_alone)  # noqa: SIM115

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        with self._store._mapped("writing a segment"):
            return self._file.write(data)

    def seal(self) -> None:
        with self._store._mapped("sealing a segment"):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._open.rename(self._path)
            flush_folder(self._path.parent)

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._open.unlink(missing_ok=True)
