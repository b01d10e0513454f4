"""A snapshot store in a folder of the local file system.

Each file is written under a temporary name, flushed to disk, linked or renamed, and the folder is
flushed: after a power cut a name holds all of its content or does not exist. The temporary names
are blobs too, so ``retention.sweep`` finds those of a dead process.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from abs_core.durable import (
    create_durably,
    disk_errors,
    flush_folder,
    is_there,
    names_in,
    write_beside,
)
from abs_core.errors import CorruptionError, ProtocolError
from abs_embedded.state.contracts import BlobRef

_KEY = re.compile(r"\d{1,18}(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)+")
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_GO_BACK = (
    "an older checkpoint can be restored by explicit consent only: sinks have committed past it."
)


def _refuse(error: OSError) -> None:
    """What ``os.walk`` would pass over."""
    if not isinstance(error, FileNotFoundError):
        raise error


def digest_of(content: bytes) -> str:
    """The digest for a ``BlobRef``."""
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(content)}"


def checked(ref: BlobRef, content: bytes | None) -> bytes:
    """The content, if it matches; raises CorruptionError if it does not, or is None."""
    if content is None or len(content) != ref.size or digest_of(content) != ref.digest:
        raise damaged(ref, "is gone" if content is None else f"is damaged ({len(content)} bytes)")
    return content


def damaged(ref: BlobRef, wrong: str) -> CorruptionError:
    """The error for a blob that does not match its reference."""
    return CorruptionError(
        f"The blob {ref.key} of checkpoint {ref.key.partition('/')[0]} {wrong}; it must hold "
        f"{ref.size} bytes with digest {ref.digest}.",
        remedy=f"restore the snapshot store from a backup; {_GO_BACK}",
    )


def sealed(record: bytes) -> bytes:
    """A completion record after its digest."""
    return digest_of(record).encode() + b"\n" + record


def unsealed(checkpoint: int, content: bytes | None) -> bytes:
    """The record that ``sealed`` made; raises CorruptionError if it is damaged or None."""
    digest, _, record = (content or b"").partition(b"\n")
    if content is None or digest_of(record).encode() != digest:
        fate = "is gone" if content is None else "is damaged"
        raise CorruptionError(
            f"The completion record of checkpoint {checkpoint} {fate}.",
            epoch=checkpoint,
            remedy=f"restore the snapshot store from a backup; {_GO_BACK}",
        )
    return record


def check_key(key: str) -> str:
    """The key, if it is valid (see ``SnapshotStore``)."""
    if _KEY.fullmatch(key) is None:
        raise ProtocolError(
            f"{key!r} is not the key of a blob.", remedy="this is a defect of the state backend."
        )
    return key


def another_record(checkpoint: int) -> ProtocolError:
    """The error of ``complete`` for a checkpoint with another record."""
    return ProtocolError(
        f"Checkpoint {checkpoint} already has another completion record.",
        epoch=checkpoint,
        remedy="another coordinator has completed it: this one must stop.",
    )


class LocalSnapshotStore:
    """Survives power loss; for one machine, or a shared POSIX folder.

    ``folder`` is made if absent, with ``blobs/`` and ``complete/``.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._blobs = self.folder / "blobs"
        self._records = self.folder / "complete"

    def put(self, key: str, content: bytes) -> BlobRef:
        path = self._blobs / check_key(key)
        with self._mapped():
            # Under a name of its own: another process may write the same file.
            write_beside(path, content, f".{secrets.token_hex(4)}.new").replace(path)
            flush_folder(path.parent)
        return BlobRef(key, len(content), digest_of(content))

    def get(self, ref: BlobRef) -> bytes:
        path = self._blobs / check_key(ref.key)
        with self._mapped(), contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > ref.size:  # not read into memory
                raise damaged(ref, f"is damaged ({path.stat().st_size} bytes)")
        return checked(ref, self._read(path))

    def delete(self, keys: Iterable[str]) -> None:
        paths = [self._blobs / check_key(key) for key in keys]
        with self._mapped():
            for path in paths:
                path.unlink(missing_ok=True)
            folders = {
                parent for path in paths for parent in path.parents if self._blobs in parent.parents
            }
            for folder in sorted(folders, reverse=True):
                with contextlib.suppress(OSError):  # others are in it
                    folder.rmdir()

    def blobs(self) -> Sequence[str]:
        with self._mapped():
            return sorted(
                f"{Path(folder).relative_to(self._blobs).as_posix()}/{name}"
                for folder, _, names in os.walk(self._blobs, onerror=_refuse)
                for name in names
            )

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        for ref in blobs:
            path = self._blobs / check_key(ref.key)
            with self._mapped(), contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == ref.size:
                    continue
            checked(ref, self._read(path))
        path = self._records / f"{checkpoint}.record"
        with self._mapped():
            made = create_durably(path, sealed(record))
        if not made and self._read(path) != sealed(record):
            raise another_record(checkpoint)

    def completed(self) -> Sequence[int]:
        with self._mapped():
            names = map(Path, names_in(self._records))
            return sorted(int(name.stem) for name in names if name.suffix == ".record")

    def record(self, checkpoint: int) -> bytes:
        content = self._read(self._records / f"{checkpoint}.record")
        if content is not None:
            with self._mapped():
                flush_folder(self._records)  # its writer may have died between link and flush
        return unsealed(checkpoint, content)

    def retire(self, checkpoint: int) -> None:
        with self._mapped():
            (self._records / f"{checkpoint}.record").unlink(missing_ok=True)
            if is_there(self._records):
                flush_folder(self._records)

    def is_private(self) -> bool:
        """By owner and mode of the folder; a missing one is created for its owner alone."""
        with self._mapped():
            folders = [
                folder for folder in (self.folder, self._blobs, self._records) if is_there(folder)
            ]
            stats = [folder.stat() for folder in folders]
        return all(one.st_uid == os.geteuid() and not one.st_mode & _BY_OTHERS for one in stats)

    def _read(self, path: Path) -> bytes | None:
        with self._mapped():
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def _mapped(self) -> contextlib.AbstractContextManager[None]:
        return disk_errors(f"The snapshot folder {self.folder}")
