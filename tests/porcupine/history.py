"""A history of calls to a register, by many processes: what each asked, what it heard, and when.

Each process appends to a file of its own: a line before a call, a line after it. What is appended
survives SIGKILL. A call without a second line is one whose answer nobody heard.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from abs_core.contracts import Conflict, RegisterStore
from abs_core.model import JobState


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as ``check/main.go`` reads it.

    Args:
        process: who called; one that is killed has a successor of another name.
        call: ``load`` or ``cas``.
        start: in nanoseconds of the machine's monotonic clock.
        end: None: the answer was not heard.
        expected: of a compare-and-set; None: no cell.
        version: of the cell, as the answer tells; None: there is none, or nothing was changed.
        value: what was read, or is to be written; each is written once.
        done: the compare-and-set says that it has changed the cell.
    """

    process: str
    job: str
    call: str
    start: int
    end: int | None = None
    expected: str | None = None
    version: str | None = None
    value: str | None = None
    done: bool = False


class Notes:
    """Calls a register, and notes each call in a file of this process's own.

    Args:
        process: its name in the history.
    """

    def __init__(self, store: RegisterStore, folder: Path, process: str) -> None:
        self._store = store
        self._process = process
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._writes = 0

    def load(self, job: str) -> str | None:
        """The version of the job's cell. Raises AbsError if there was no answer."""
        begun = self._note(Call(self._process, job, "load", time.monotonic_ns()))
        stored = self._store.load(job)
        end = time.monotonic_ns()
        if stored is None:
            self._note(replace(begun, end=end))
            return None
        self._note(replace(begun, end=end, version=stored.version, value=stored.state.run))
        return stored.version

    def compare_and_set(self, job: str, expected: str | None, *, heard: bool = True) -> str | None:
        """The new version; None: a conflict.

        Args:
            heard: whether the answer is noted.

        Raises:
            AbsError: there was no answer.
        """
        self._writes += 1
        value = f"{self._process}-{self._writes}"
        call = Call(self._process, job, "cas", time.monotonic_ns(), expected=expected, value=value)
        begun = self._note(call)
        state = JobState("0" * 16, job, "target", "lineage", self._writes, value)
        answer = self._store.compare_and_set(job, expected, state)
        end = time.monotonic_ns()
        version = None if isinstance(answer, Conflict) else answer
        if heard:
            self._note(replace(begun, end=end, version=version, done=version is not None))
        return version

    def _note(self, call: Call) -> Call:
        os.write(self._file, json.dumps(asdict(call)).encode() + b"\n")
        return call


def read(folder: Path) -> list[Call]:
    """The calls of all processes, by their start. A load that heard nothing tells nothing.

    Raises:
        AssertionError: a process has failed, otherwise than by an error of the register.
    """
    calls: dict[tuple[str, int], Call] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            call = Call(**json.loads(line))
            calls[call.process, call.start] = call
    failed = [path.read_text() for path in folder.glob("*.failed")]
    assert not failed, failed[0]
    heard = (call for call in calls.values() if call.call == "cas" or call.end is not None)
    return sorted(heard, key=lambda call: call.start)


def write(calls: Iterable[Call], path: Path) -> Path:
    """A history, for ``checker.check``: one call a line."""
    lines = ",\n".join(json.dumps(asdict(call)) for call in calls)
    path.write_text(f"[\n{lines}\n]\n")
    return path


def last_load(store: RegisterStore, jobs: Iterable[str], folder: Path) -> None:
    """Look at each cell when all others have ended, so that what they left is in the history.

    Raises:
        AbsError: there was no answer.
    """
    notes = Notes(store, folder, "last")
    for job in jobs:
        notes.load(job)
