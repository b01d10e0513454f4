"""A register store in a folder: one JSON file per job, for one machine or a shared POSIX folder.

Write a temporary file, flush it to disk, rename it over the old one, flush the folder: after a crash
the file is either the old or the new state. Writers take turns by ``flock``; on a network file system
that does not honour it, this store is not safe.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Stored, Version
from abs_core.errors import CorruptionError, RefusedError, UnavailableError
from abs_core.model import JobState


class FileRegister:
    """Linearizable among all processes that see the folder and its locks; survives power loss.

    Args:
        folder: made where it does not exist. Job keys are file names in it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def load(self, job: str) -> Stored | None:
        with self._mapped(job):
            return self._read(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        with self._mapped(job), self._locked(job):
            stored = self._read(job)
            if (None if stored is None else stored.version) != expected:
                return Conflict()
            version = "1" if stored is None else str(int(stored.version) + 1)
            self._replace(job, json.dumps({"cell": version, "state": state_to_text(state)}))
            return version

    def _read(self, job: str) -> Stored | None:
        path = self._path(job)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        try:
            cell = json.loads(text)
            version, state = str(int(cell["cell"])), str(cell["state"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(
                f"The register file {path} is damaged: {error}.",
                job=job,
                remedy="restore it from a backup; it says what is committed.",
            ) from error
        return Stored(state_from_text(state, str(path)), version)

    def _replace(self, job: str, text: str) -> None:
        path = self._path(job)
        temporary = path.with_suffix(".new")
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, job: str) -> Path:
        return self._folder / f"{job}.json"

    @contextmanager
    def _locked(self, job: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{job}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _mapped(self, job: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise RefusedError(
                f"The register folder {self._folder} cannot be used: {error.strerror}.",
                job=job,
                remedy="give this user the right to read and write it.",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"The register folder {self._folder} does not answer: {error.strerror}.", job=job
            ) from error
