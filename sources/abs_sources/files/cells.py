"""Where a log lies: a few small named cells that are written once, on disk or in memory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from abs_core.durable import flush_folder, make_durably
from abs_core.errors import AbsError, RefusedError, UnavailableError


class Cells(Protocol):
    """Cells that appear whole and are never changed, only deleted. Pickled as they are."""

    @property
    def place(self) -> str:
        """For people."""
        ...

    def names(self) -> set[str]:
        """Of all cells, as they are at this moment.

        Raises:
            UnavailableError, RefusedError: the place cannot be used.
        """
        ...

    def get(self, name: str) -> bytes | None:
        """A cell's content; None where there is none. Raises as ``names``."""
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Make a cell that is not there yet; durable and whole when it returns.

        Linearizable: of several that make the same one, one wins. A lost reply is not guessed, it is
        looked up; so contents must differ from one writer to the other.

        Returns:
            whether the cell has this content now; False: it has another.

        Raises:
            as ``names``; the cell may be there, or come to be there.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete cells, whether they are there or not. Raises as ``names``."""
        ...


@dataclass(frozen=True)
class FolderCells:
    """One file each, written aside, flushed to disk, then linked under its name.

    A hard link fails where the name is taken, on POSIX and on network file systems alike.
    """

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def names(self) -> set[str]:
        with self._translate_errors():
            if not self.folder.exists():
                return set()
            found = {path.name for path in self.folder.iterdir()}
            return {name for name in found if not name.startswith(".")}

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
            make_durably(self.folder)
            aside = self.folder / f".{secrets.token_hex(8)}"
            try:
                with aside.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                (self.folder / name).hardlink_to(aside)
            except FileExistsError:
                return self.get(name) == content
            finally:
                aside.unlink(missing_ok=True)
            flush_folder(self.folder)
            return True

    def delete(self, names: Iterable[str]) -> None:
        with self._translate_errors():
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except AbsError:
            raise
        except PermissionError as error:
            raise RefusedError(
                f"The log's folder {self.folder} cannot be used: {error.strerror}.",
                remedy="give this user the right to read and write it.",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"The log's folder {self.folder} does not answer: {error.strerror or error}."
            ) from error


@dataclass(frozen=True)
class MemoryCells:
    """For what need not outlive its process: a batch read."""

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
