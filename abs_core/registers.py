"""Register stores that need no server, and what every ``Inventory`` shares.

``FileRegister`` is a folder with one JSON file per job, for one machine or a shared POSIX folder. A
write makes a temporary file, flushes it, renames it over the old one, and flushes the folder: after a
crash the file has either the old or the new state. Readers and writers lock by ``flock``; on a network
file system without working locks this store is not safe. Readers flush the folder too, as a power cut
could revert a state that is not durable.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock

from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.durable import (
    disk_errors,
    flush_folder,
    is_there,
    make_durably,
    names_in,
    owners_alone,
    replace_durably,
)
from abs_core.errors import ProtocolError
from abs_core.model import JobState
from abs_core.strictjson import fields, parse, reading, text, version, whole


def batch_job(job: str) -> str:
    """The job's key without the token of a batch write."""
    return job.partition("@")[0]


def others_among(states: Iterable[JobState], target: str, job: str) -> list[str]:
    """``Inventory.others_on``, computed from all states."""
    names = {batch_job(state.job) for state in states if state.target == target}
    return sorted(names - {batch_job(job)})


def check_finished(state: JobState) -> None:
    """Check that a job may be forgotten.

    Raises:
        ProtocolError: a decision is not finished.
    """
    if state.open:
        raise ProtocolError(
            f"The job has {len(state.open)} decided epoch(s) that are not finished.",
            job=state.job,
            epoch=state.open[0].epoch,
            remedy="start the job once more, so that they are committed, then retire it; if it stops "
            "because handles are lost, see `abs in-doubt accept-loss`.",
        )


FORMAT = 1
"""Version of the file format; files up to 315a560 have this format without a version."""

MAX_CELL_BYTES = 1 << 28
"""Largest register file that is read, in bytes."""


class FileRegister(Inventory):
    """Linearizable among all processes that see the folder and its locks; survives power loss.

    Args:
        folder: made if missing, accessible to its owner only. Job keys are file names in it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def load(self, job: str) -> Stored | None:
        with self._mapped(job):
            if not is_there(self._folder):
                return None
            with self._locked(job):
                flush_folder(self._folder)  # its writer may have died between rename and flush
                return self._read(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        with self._mapped(job):
            make_durably(self._folder)
            with self._locked(job):
                stored = self._read(job)
                if (None if stored is None else stored.version) != expected:
                    return Conflict()
                number = 1 if stored is None else int(stored.version.partition(".")[0]) + 1
                cell = {"cell": number, "format": FORMAT, "state": state_to_text(state)}
                content, path = json.dumps(cell).encode(), self._path(job)
                in_time(job, deadline)  # the lock's holder may have stood still
                replace_durably(path, content)
                return _version(state, number)

    def jobs(self) -> Sequence[Stored]:
        """See ``Inventory``."""
        with self._mapped(None):
            names = names_in(self._folder)
        entries = (self.load(n.removesuffix(".json")) for n in names if n.endswith(".json"))
        return sorted((s for s in entries if s is not None), key=lambda stored: stored.state.job)

    def others_on(self, target: str, job: str) -> Sequence[str]:
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        """See ``Inventory``. The file of its lock stays: another process may be waiting for it."""
        with self._mapped(job):
            if not is_there(self._folder):
                return False
            with self._locked(job):
                stored = self._read(job)
                if stored is None:
                    return False
                check_finished(stored.state)
                self._path(job).unlink()
                flush_folder(self._folder)
                return True

    def place(self, job: str) -> str:
        """The job's file."""
        return str(self._path(job).absolute())

    def _read(self, job: str) -> Stored | None:
        path = self._path(job)
        try:
            size = path.stat().st_size
            content = path.read_bytes() if size <= MAX_CELL_BYTES else b""
        except FileNotFoundError:
            return None
        remedy = "restore it from a backup; it says what is committed"
        with reading(f"The register file {path}", remedy, job):
            if size > MAX_CELL_BYTES:
                raise ValueError(
                    f"it has {size:,} bytes; a register has {MAX_CELL_BYTES:,} at most"
                )
            cell = fields(parse(content))
            version(cell.get("format", 1), FORMAT, name="format")
            number, state_text = whole(cell["cell"], 1), text(cell["state"])
        state = state_from_text(state_text, str(path), job)
        return Stored(state, _version(state, number))

    def _path(self, job: str) -> Path:
        return self._folder / f"{job}.json"

    def lock_of(self, job: str) -> Path:
        """The file of the job's lock, which stays (``retire``)."""
        return self._folder / f"{job}.lock"

    @contextmanager
    def _locked(self, job: str) -> Iterator[None]:
        with open(self.lock_of(job), "w", opener=owners_alone) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _mapped(self, job: str | None) -> AbstractContextManager[None]:
        return disk_errors(f"The register folder {self._folder}", job=job)


def _version(state: JobState, number: int) -> Version:
    # With the register's id, as a deleted and recreated file begins at number 1 again: a delayed
    # request must not match the version of the new file.
    return f"{number}.{state.register}"


class MemoryRegister(Inventory):
    """Linearizable among the threads of one process; gone with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cells: dict[str, Stored] = {}

    def load(self, job: str) -> Stored | None:
        with self._lock:
            return self._cells.get(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        in_time(job, deadline)
        with self._lock:
            stored = self._cells.get(job)
            if (None if stored is None else stored.version) != expected:
                return Conflict()
            number = 1 if stored is None else int(stored.version.partition(".")[0]) + 1
            # With the register's id: a deleted and recreated cell has other versions.
            version = f"{number}.{state.register}"
            self._cells[job] = Stored(state, version)
            return version

    def jobs(self) -> Sequence[Stored]:
        with self._lock:
            return [stored for _, stored in sorted(self._cells.items())]

    def others_on(self, target: str, job: str) -> Sequence[str]:
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        with self._lock:
            stored = self._cells.get(job)
            if stored is not None:
                check_finished(stored.state)
            return self._cells.pop(job, None) is not None

    def place(self, job: str) -> str:
        return f"job {job} in the memory of this process"
