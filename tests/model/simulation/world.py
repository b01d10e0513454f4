"""What outlives a simulated process: the register, the target, the completion records; and its fuse."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from abs_core.barriers.checkpoint_rules import Pending
from abs_core.barriers.elements import Batch
from abs_core.contracts import Committer, Conflict, RegisterStore, Sink, Stored, Task, Version
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import ContentionError
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Wrote,
)
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity
from abs_core.registers import MemoryRegister
from abs_embedded.assembly import Part
from tests.model.simulation.inputs import Journal

T = TypeVar("T")
JOB = "simulated"


class Crash(BaseException):
    """The process dies here. Nothing may catch it but the history."""


class Impatient(Patience):
    """Never waits: in the simulation everything that does not answer is dead."""

    def retry(self, call: Callable[[], T], given_up: threading.Event | None = None) -> T:
        while True:
            try:
                return call()
            except ContentionError:
                pass  # somebody else was first, and is done: one step is taken at a time


@dataclass(slots=True)
class World:
    """Everything durable.

    Args:
        fuse: so many durable effects later, the process that causes it dies; 0: never.
    """

    fuse: int = 0
    cells: MemoryRegister = field(default_factory=MemoryRegister)
    prepared: dict[HandleName, tuple[Batch, ...]] = field(default_factory=dict)
    committed: dict[HandleName, tuple[Batch, ...]] = field(default_factory=dict)
    records: dict[str, tuple[int, dict[str, list[Part]]]] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)

    def point(self) -> None:
        """A durable effect has happened, or is about to."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Crash

    def output(self) -> Counter[Any]:
        return Counter(
            record for batches in self.committed.values() for batch in batches for record in batch
        )

    def written(self) -> tuple[int, ...]:
        """How much was ever written: rises with everything that is."""
        return len(self.prepared), len(self.committed), len(self.records)

    def highest(self) -> int:
        return max((checkpoint for checkpoint, _ in self.records.values()), default=-1)


@dataclass(slots=True)
class Register(RegisterStore):
    """A register store that may lose its process before or after the change."""

    world: World

    def load(self, job: str) -> Stored | None:
        return self.world.cells.load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self.world.point()
        swapped = self.world.cells.compare_and_set(job, expected, state, deadline)
        self.world.point()
        return swapped


class Target(Committer, Sink):
    """Sink, and committer, over the world."""

    target_id = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world

    def writer(self, task: Task) -> _Writer:
        return _Writer(self._world, task.handle)

    def committer(self) -> Target:
        return self

    def register(self) -> Register:
        return Register(self._world)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return []

    def guarantee(self) -> Guarantee:
        return Guarantee("2pc", "append", "per task, on commit", "nothing")

    def fence(self, state: JobState) -> None:
        pass

    def close(self) -> None:
        pass

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return {c.handle: Inspection(self._outcome(c.handle)) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        for committable in committables:
            self._world.point()
            rows = self._world.prepared.pop(committable.handle, None)
            if rows is not None:
                self._world.committed[committable.handle] = rows
        return {c.handle: self._outcome(c.handle) for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        for handle in handles:
            self._world.point()
            self._world.prepared.pop(handle, None)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return [InDoubt(handle, None, "") for handle in sorted(self._world.prepared)]

    def forget(self, state: JobState) -> None:
        pass

    def _outcome(self, handle: HandleName) -> Outcome:
        if handle in self._world.prepared:
            return Outcome.PREPARED
        return Outcome.COMMITTED if handle in self._world.committed else Outcome.UNKNOWN


class _Writer:
    def __init__(self, world: World, handle: HandleName) -> None:
        self._world = world
        self._handle = handle
        self._batches: list[Batch] = []

    def write(self, batch: Batch) -> None:
        self._batches.append(batch)

    def pre_commit(self) -> Committable:
        self._world.point()
        self._world.prepared[self._handle] = tuple(self._batches)
        self._world.point()
        return Committable(self._handle, sum(map(len, self._batches)), "simulated")

    def abort(self) -> None:
        pass


class Keeper:
    """Completion records in the world; decisions by the real coordinator of the core."""

    def __init__(self, world: World, run: str) -> None:
        self._world = world
        self._run = run
        self.coordinator = Coordinator(
            RunIdentity(JOB, "lineage", run, "simulated"),
            Register(world),
            Target(world),
            co_commit=False,
            patience=Impatient(),
        )

    def write(self, pending: Pending, handles: Sequence[Committable]) -> str:
        self._world.point()
        fingerprint = f"{self._run}:{pending.checkpoint}"
        parts: dict[str, list[Part]] = {}
        for task in sorted(pending.acks):
            parts.setdefault(task.operator, []).append(pending.acks[task].part)
        self._world.records[fingerprint] = (pending.checkpoint, parts)
        self._world.point()
        return fingerprint

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        shares = [Wrote(handle.rows, handle) for handle in handles]
        self.coordinator.commit(Report(checkpoint, shares, fingerprint, gaps_allowed=True))
        self._note(fingerprint)

    def retain(self, checkpoint: int) -> None:
        pass

    def _note(self, fingerprint: str) -> None:
        """Of lives after the first, whose sources have all of their splits."""
        first = fingerprint.startswith("run1:")
        self._world.journal.placed |= not first

    def recover(self) -> tuple[JobState, int, dict[str, list[Part]]]:
        """The register's state, the next checkpoint's number, and what to restore."""
        self.coordinator.begin(0, gaps_allowed=True)
        state = self.coordinator.roll_forward()
        for each in state.recent:  # where the process died between the decision and the note
            self._note(each.fingerprint or "")
        last = state.last_decided
        parts: dict[str, list[Part]] = {}
        if last is not None:
            record = state.record(last)
            assert record is not None
            assert record.fingerprint is not None
            parts = self._world.records[record.fingerprint][1]
        return state, max(self._world.highest(), -1 if last is None else last) + 1, parts
