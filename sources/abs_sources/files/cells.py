"""Storage of a log: small named cells that are written once, on disk or in memory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from abs_core.durable import create_durably, disk_errors, flush_folder, names_in


class WriteOnceStore(Protocol):
    """Cells that appear whole and are never changed, only deleted. Picklable."""

    @property
    def place(self) -> str:
        """For people."""
        ...

    def names(self) -> set[str]:
        """Names of all cells now; raises UnavailableError or RefusedError."""
        ...

    def get(self, name: str) -> bytes | None:
        """A cell's content; None if it does not exist. Raises as ``names``."""
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Create a cell if absent; whole and durable on return. Raises as ``names``.

        Linearizable: one of several concurrent writers wins. After a lost reply the cell is read,
        so contents must differ between writers. Returns whether the cell has this content now.
        After an error it may exist, or appear later.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete the cells that exist. Raises as ``names``."""
        ...


@dataclass(frozen=True)
class WriteOnceFolder:
    """One file per cell, written aside, flushed to disk, then linked under its name.

    A hard link fails if the name exists, on POSIX and on network file systems.
    """

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def names(self) -> set[str]:
        with self._translate_errors():
            return {name for name in names_in(self.folder) if not name.startswith(".")}

    def get(self, name: str) -> bytes | None:
        with self._translate_errors():
            try:
                content = (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None
            flush_folder(self.folder)  # its writer may have died between link and flush
            return content

    def put_new(self, name: str, content: bytes) -> bool:
        with self._translate_errors():
            if create_durably(self.folder / name, content, private=False):
                return True
        return self.get(name) == content

    def delete(self, names: Iterable[str]) -> None:
        with self._translate_errors():
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    def _translate_errors(self) -> AbstractContextManager[None]:
        return disk_errors(f"The log's folder {self.folder}")


@dataclass(frozen=True)
class WriteOnceMemory:
    """Cells that need not outlive their process: for a batch read."""

    kept: dict[str, bytes] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return "memory"

    def names(self) -> set[str]:
        return set(self.kept)

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def put_new(self, name: str, content: bytes) -> bool:
        return self.kept.setdefault(name, content) == content

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.kept.pop(name, None)
