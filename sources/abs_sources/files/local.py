"""Files in a local folder, or in one that is mounted on every machine of the cluster."""

from __future__ import annotations

import os
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
            if not Path(root).exists():
                raise RefusedError(
                    f"There is no folder or file {root}.",
                    remedy="create it, or correct the option path.",
                )
            if Path(root).is_file():
                wanted = self.pattern.wants("")
                return [_found(root, "", Path(root).stat())] if wanted else []
            return list(self._walk(root, ""))

    def open(self, pin: Pin) -> OpenFile:
        name = self.name(pin.path)
        with reading(name), _missing_is_gone(name):
            opened = _LocalFile(name, pin, pa.OSFile(name))
        opened.check()
        return opened

    def name(self, path: str) -> str:
        return f"{self.pattern.root}/{path}" if path else self.pattern.root

    def _walk(self, folder: str, below: str) -> Iterator[Found]:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                try:
                    if entry.is_dir():
                        if self.pattern.enters(path):
                            yield from self._walk(entry.path, path)
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


def _found(name: str, path: str, stat: os.stat_result) -> Found:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"The name of the file {name!a} is not UTF-8.",
            remedy="rename it, or exclude it with the option pathGlobFilter.",
        ) from error
    return Found(Pin(path, stat.st_size, str(stat.st_mtime_ns)), stat.st_mtime_ns)


@contextmanager
def _missing_is_gone(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise gone(name) from error
