"""Where a table's data files and its own register are: a bucket's folder, or a local one.

In a local folder files are written in one hidden folder, and renamed when they are completed.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from awscrt.checksums import crc64nvme

from abs_clients.s3.location import OURS
from abs_core.contracts import Inventory
from abs_core.durable import disk_errors, flush_folder, make_durably, names_in
from abs_core.model import Finding, HandleName, Outcome
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import UploadPool
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.register import S3Register
from abs_sinks.s3.store import BucketStore, Store
from abs_sinks.s3.twophase import TwoPhaseCommitter
from abs_sinks.s3.uploads import Pending, Upload

STAGED = "staged"


class FolderStore:
    """A ``Store`` below a folder that every process of the job sees.

    A file is staged under its own name, which is unique to one attempt, and renamed to its place
    within the same file system. So a rename never replaces another file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staged = root / OURS / STAGED

    def begin(
        self, pool: UploadPool, key: str, metadata: dict[str, str], patience: Patience | None
    ) -> StagedFile:
        return StagedFile(self._staged, key)

    def inspect(self, handle: HandleName, upload: Upload) -> Outcome:
        with self._mapped("looking at a data file"):
            # The staged name first: a rename in between moves the file to the second place.
            if _size(self._aside(upload.key)) == upload.size:
                return Outcome.PREPARED
            there = _size(self._root / upload.key) == upload.size
            return Outcome.COMMITTED if there else Outcome.UNKNOWN

    def complete(self, handle: HandleName, upload: Upload) -> Outcome:
        place = self._root / upload.key
        with self._mapped("completing a data file"):
            # A crash of the machine must not take away the folder of a file that counts as committed.
            make_durably(place.parent, private=False)
            with suppress(FileNotFoundError):  # another coordinator did it, or it is lost
                self._aside(upload.key).rename(place)
            flush_folder(place.parent)
            # What a reader would open is looked at, whoever renamed it.
            return Outcome.COMMITTED if _size(place) == upload.size else Outcome.UNKNOWN

    def abort(self, key: str, upload_id: str) -> None:
        with self._mapped("removing a staged file"):
            self._aside(key).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[Pending]:
        with self._mapped("listing staged files"):
            paths = [self._staged / name for name in names_in(self._staged)]
        now = time.time()
        for path in paths:
            with suppress(FileNotFoundError):
                yield Pending(path.name, "", max(0.0, now - path.stat().st_mtime))

    def parts(self, key: str, upload_id: str) -> Mapping[tuple[int, str], int] | None:
        size = _size(self._aside(key))
        return None if size is None else {(1, ""): size}

    def described(self, pending: Pending) -> str:
        return f"staged file {self._aside(pending.key)}"

    def _aside(self, key: str) -> Path:
        return self._staged / key.rpartition("/")[2]

    def _mapped(self, doing: str) -> Any:
        return disk_errors(f"The table's folder {self._root}", doing)


class StagedFile(io.RawIOBase):
    """A sequential, write-only file object for pyarrow, in the folder of staged files."""

    mode = "wb"

    def __init__(self, folder: Path, key: str) -> None:
        super().__init__()
        self._key = key
        self._path = folder / key.rpartition("/")[2]
        self._size = 0
        self._crc = 0
        with disk_errors(f"The staged file {self._path}"):
            make_durably(folder)
            self._file = self._path.open("xb")

    def write(self, data: Any) -> int:
        with memoryview(data) as view, view.cast("B") as content:
            if self._file.closed:
                return len(content)  # discarded: a format's library closes itself at last
            with disk_errors(f"The staged file {self._path}"):
                self._file.write(content)
            self._crc = crc64nvme(content, self._crc)
            self._size += len(content)
            return len(content)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def finish(self) -> Upload:
        """Flush it and the name in its folder to the disk."""
        with disk_errors(f"The staged file {self._path}"):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            flush_folder(self._path.parent)
        return Upload(self._key, "", self._size, f"{self._crc:016x}", ())

    def discard(self) -> None:
        """Remove it, at best effort. Never raises."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


class TableFiles:
    """A folder of data files: ``s3://bucket/prefix``, or a local path.

    Args:
        options: of the data files, see ``LakeOptions.files``.
    """

    def __init__(self, options: S3Options, folder: str) -> None:
        self.options = options
        self._local = None if folder.startswith("s3") else Path(folder)

    def store(self) -> Store:
        return BucketStore(self.options) if self._local is None else FolderStore(self._local)

    def register(self) -> Inventory:
        if self._local is None:
            return S3Register(self.options)
        return FileRegister(self._local / OURS / "register")

    def files(self, *, sized: bool = False) -> TwoPhaseCommitter:
        return TwoPhaseCommitter(self.options, sized=sized, store=self.store())

    def preflight(self) -> Sequence[Finding]:
        return preflight(self.options, None) if self._local is None else ()
