"""Watches what is written in a folder, and says what a power cut would lose of it.

A file's bytes are on disk after fsync of the file. Its name is on disk after fsync of its folder. A
rename or a link may reach the disk at any time, so the bytes must be there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Disk:
    """What has reached the disk below ``root``, as the calls of this process tell.

    Args:
        root: a folder that is there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wrong: list[str] = []
        self._sizes: dict[int, int] = {}
        self._names: dict[int, dict[str, int]] = {}

    def flushed(self, descriptor: int) -> None:
        """Note an fsync."""
        found = os.fstat(descriptor)
        opened = Path(f"/proc/self/fd/{descriptor}")
        if opened.is_dir():
            self._names[found.st_ino] = {p.name: p.lstat().st_ino for p in opened.iterdir()}
        else:
            self._sizes[found.st_ino] = found.st_size

    def named(self, old: Path, new: Path) -> None:
        """Note a rename or a link, before it is done."""
        if self.root in Path(new).parents and not self._holds(Path(old)):
            self.wrong.append(f"{Path(new).name} was named before its bytes were on disk")

    def lost(self) -> list[str]:
        """What is wrong, and what a power cut would lose now."""
        lost = list(self.wrong)
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and path.stat().st_size == 0:
                continue  # a lock
            where = path.relative_to(self.root).as_posix()
            known = self._names.get(path.parent.stat().st_ino, {})
            if known.get(path.name) != path.stat().st_ino:
                lost.append(f"the name {where}")
            if path.is_file() and not self._holds(path):
                lost.append(f"the bytes of {where}")
        return lost

    def _holds(self, path: Path) -> bool:
        found = path.stat()
        return self._sizes.get(found.st_ino) == found.st_size


@contextmanager
def watched(root: Path) -> Iterator[Disk]:
    """Watch every fsync, rename and link of this process."""
    disk = Disk(root)
    with pytest.MonkeyPatch.context() as patch:
        flush = os.fsync

        def flushing(descriptor: int) -> None:
            flush(descriptor)
            disk.flushed(descriptor)

        patch.setattr(os, "fsync", flushing)
        for call in ("rename", "replace", "link"):
            patch.setattr(os, call, _naming(disk, getattr(os, call)))
        yield disk


def _naming(disk: Disk, call: Any) -> Any:
    def naming(old: Any, new: Any, **more: Any) -> None:
        disk.named(old, new)
        call(old, new, **more)

    return naming
