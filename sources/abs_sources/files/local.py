"""Files in a local folder, or in one that is mounted on every machine of the cluster."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from abs_core.errors import RefusedError
from abs_sources.files.model import Found, OpenFile, Pin, changed, gone, reading
from abs_sources.files.pattern import Pattern


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Files below a folder. Symbolic links are followed."""

    pattern: Pattern

    def find(self) -> list[Found]:
        root = self.pattern.root or "/"
        with reading(root):
            try:
                status = Path(root).stat()
            except FileNotFoundError as error:
                raise RefusedError(
                    f"There is no folder or file {root}.",
                    remedy="create it, or correct the option path.",
                ) from error
            if stat.S_ISREG(status.st_mode):
                return [_found(root, "", status)] if self.pattern.wants("") else []
            return list(self._walk(root, "", ()))

    def open(self, pin: Pin) -> OpenFile:
        name = self.name(pin.path)
        with reading(name), _missing_is_gone(name):
            if Path(name).is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            opened = _LocalFile(name, pin, pa.OSFile(name))
        opened.check()
        return opened

    def name(self, path: str) -> str:
        return f"{self.pattern.root}/{path}" if path else self.pattern.root

    def _walk(self, folder: str, below: str, above: tuple[os.stat_result, ...]) -> Iterator[Found]:
        """The files in a folder.

        Args:
            below: the folder's path below the root.
            above: the folders that it is in.
        """
        above = (*above, Path(folder).stat())
        with os.scandir(folder) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                try:
                    if self.pattern.enters(path) and entry.is_dir():
                        if entry.is_symlink():
                            _check_circle(entry, above)
                        yield from self._walk(entry.path, path, above)
                    elif self.pattern.wants(path) and entry.is_file():
                        yield _found(entry.path, path, entry.stat())
                except FileNotFoundError:
                    continue  # gone between the listing and the look


@dataclass(frozen=True, slots=True)
class _LocalFile:
    name: str
    pin: Pin
    content: pa.NativeFile

    def check(self) -> None:
        with reading(self.name), _missing_is_gone(self.name):
            now = _found(self.name, self.pin.path, Path(self.name).stat()).pin
        if now != self.pin:
            raise changed(self.name, f"{self.pin.size} bytes", f"{now.size} bytes")

    def close(self) -> None:
        self.content.close()


def _check_circle(link: os.DirEntry[str], above: tuple[os.stat_result, ...]) -> None:
    """Raise what the system does after forty turns, unless the name is too long by then."""
    if any(os.path.samestat(link.stat(), folder) for folder in above):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), link.path)


def _found(name: str, path: str, status: os.stat_result) -> Found:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"The name of the file {name!a} is not UTF-8.",
            remedy="rename it, or exclude it with the option pathGlobFilter.",
        ) from error
    return Found(Pin(path, status.st_size, str(status.st_mtime_ns)), status.st_mtime_ns)


@contextmanager
def _missing_is_gone(name: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise gone(name) from error  # a folder, or a file, has taken a name of its path
