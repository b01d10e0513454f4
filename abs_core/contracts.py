"""The interfaces of sinks and registers.

``abs_testing.check_sink`` runs every step, replay, crash point, zombie and race of the protocol
against an implementation.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from abs_core.errors import UnavailableError
from abs_core.lookback import LookedBack, Past, Position
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.parallel import CallRunner, in_turn

Version = str
"""Opaque version of a register cell; stores compare it for equality only."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a register cell when it was loaded.

    Args:
        changed: when it was written, in seconds since 1970 by the system's clock; None: unknown.
    """

    state: JobState
    version: Version
    changed: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Conflict:
    """The cell was not at the expected version; nothing was changed."""


class RegisterStore(ABC):
    """One linearizable compare-and-set cell per job.

    Both calls raise ``UnavailableError`` where the outcome is unknown: the request may have taken
    effect, or may still do so later. The caller must load the cell again.

    Attributes:
        option: the sink option that locates it; empty if there is none.
    """

    option: str = ""

    @abstractmethod
    def load(self, job: str) -> Stored | None:
        """The present state and its version, or None if the job has no cell yet."""

    @abstractmethod
    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        """Replace the state if its version is still ``expected`` (None: there is no cell yet).

        The new state is durable when this returns its version.

        Args:
            deadline: in seconds of ``time.monotonic``; no request that could change the cell is sent
                after it, however long an earlier one stalls. See ``in_time``.

        Raises:
            UnavailableError: the deadline has passed; earlier requests may take effect.
        """


def in_time(job: str, deadline: float | None) -> None:
    """Raise UnavailableError if the deadline of a compare-and-set, if any, has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise UnavailableError("The register could not be written in time.", job=job)


class Inventory(RegisterStore):
    """A register store that can list its jobs, as every sink's register must.

    Optional for a store that only an engine uses. ``abs register``, ``abs in-doubt`` and preflights
    need it, and so does the detection of a deleted checkpoint.
    """

    @abstractmethod
    def jobs(self) -> Sequence[Stored]:
        """Every job that has a cell, by name."""

    @abstractmethod
    def others_on(self, target: str, job: str) -> Sequence[str]:
        """Other jobs whose register names ``target``, by name; batch jobs without their tokens."""

    @abstractmethod
    def retire(self, job: str) -> bool:
        """Delete a job's cell permanently, with the record of its commits; whether there was a cell.

        A version of the deleted cell never matches a later cell of that job.

        Raises:
            ProtocolError: the cell holds a decision that is not finished, or the only record of
                something else.
            ContentionError: the job is running.
        """

    @abstractmethod
    def place(self, job: str) -> str:
        """Display name of the cell's location, without secrets (I9)."""

    def check_movable(self, job: str) -> None:
        """Check that the job's cell can be moved.

        Raises:
            ProtocolError: the cell holds the only record of something else.
        """


class Writer(Protocol):
    """Writes one task's share of one epoch. Not thread-safe; used once.

    No row is visible to readers before the coordinator commits, except under the protocol
    ``idempotent``, where the sink's ``Guarantee`` says so.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; every batch of one writer has the same schema.

        Raises:
            DataError: the batch does not fit the target; the writer must then be aborted.
            TargetError: the target refused or went away; the writer must then be aborted.
        """
        ...

    def pre_commit(self) -> Committable | None:
        """Make the rows durable and return their handle; None if no row was written.

        Returns only after the target has acknowledged every send. After a lost reply the writer
        queries the target, and raises ``UnavailableError`` where the outcome stays unknown.
        """
        ...

    def abort(self) -> None:
        """Discard rows that are not pre-committed, at best effort. Never raises or undoes a handle."""
        ...


class Committer(ABC):
    """Acts on handles, from any process. Every call is idempotent.

    One thread at a time calls it, not always the one that made it; several threads call the committers
    of several sinks at the same time.

    Attributes:
        co_commits: it changes the target and its register in one transaction: ``co_commit``. A sink
            returns such a one only where the register is in its own system. Otherwise, as for an epoch
            over several sinks, the engine builds the sink so that it returns another one (the sinks of
            this project take ``co_commit=False``), or the sink refuses.
        composes: ``compose`` makes other handles. For a write-ahead log whose target cannot apply it in
            one transaction: the log's segments become few handles of the target, which are then decided
            and committed like any others. A target that cannot prepare them has them stay the handles,
            after it has accepted their rows in a rehearsal.
        whole: it commits all handles of an epoch and a sink, or none. ``commit`` refuses a part of
            them by ``ProtocolError``: ``compose`` has noted in each how many there are.
    """

    co_commits: bool = False
    composes: bool = False
    whole: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Who writes the method means it. If the attribute had to be set besides, an author who forgets
        # it would have decisions that the target has not accepted, without an error.
        cls.co_commits = vars(cls).get("co_commits", "co_commit" in vars(cls) or cls.co_commits)
        cls.composes = vars(cls).get("composes", "compose" in vars(cls) or cls.composes)

    @abstractmethod
    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """The present state of each handle in the target."""

    @abstractmethod
    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Make the commit of each handle durable. Called for handles of a decision only (I1).

        Its rows are visible at once, or, where a target needs a moment more, when ``forget`` returns.
        A handle counts as committed only by proof in the target, never because it is absent. Raises
        ``TargetError`` on an error that may pass; handles committed by then stay committed.
        """

    @abstractmethod
    def abort(self, handles: Sequence[HandleName]) -> None:
        """Abort handles that no decision can ever name (the caller must ensure I4).

        Leaves a handle that is gone, committed or unknown alone, without an error. Tries each handle
        even where others fail (``aborting.abort_each``).

        Raises:
            TargetError: some handles stay; the message names each with its reason.
        """

    def forsake(self, committables: Sequence[Committable]) -> None:
        """Make it final that these are not committed later, by any process that may still try it.

        Only by a person's consent, as a decision names them. What is committed already stays. Write it
        where that takes more than ``abort``.

        Raises:
            TargetError: it is not final; the call can be repeated.
        """
        self.abort([committable.held_as for committable in committables])

    @abstractmethod
    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """Every pre-commit in the target under exactly this job key, or under any (None).

        Includes those of other registers. Each has its handle's name, or its bounded name
        (``Committable.held_as``) where this process does not know the handle.
        """

    @abstractmethod
    def forget(self, state: JobState) -> None:
        """Delete proof of commit that is no longer needed, at best effort.

        Before that it waits until what this object has committed is visible.
        Only for handles for which ``protocol.sweepable`` holds in ``state``; the predicate is stable,
        so ``state`` may be old.
        """

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """Apply all rows and compare-and-set the register, atomically.

        Raises:
            RowsRefused: see ``deadletters``; the caller decides again.
            NotPreparedError: a pre-commit is missing; nothing was changed.
            UnavailableError: the outcome is unknown; the caller must load the register again.
        """
        raise NotImplementedError(f"{type(self).__name__} does not co-commit")

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """Prepare handles that hold the rows of all these, or raise what the target does not accept.

        Or note in each of them, under its own name, which belong together (``whole``).
        The commit process calls it before the decision, perhaps more than once for an epoch. New
        handles have the register, job, generation and epoch of the old ones, the partition of one of
        them, and new attempts (I6). The sweep finds them by ``in_doubt`` where they are never decided.

        Raises:
            NotPreparedError: a pre-commit is missing; nothing is decided.
            DataError, TargetError: the target does not accept the rows; nothing is decided.
        """
        return committables

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """What the target shows, now that these handles of one epoch are committed.

        Of one sink: number 0. Nothing where the target cannot go back without the register. If it
        co-commits it is asked just before, and tells only what stays true.
        """
        return ()

    def left_by(self, job: str) -> Position | None:
        """The newest decision that the target shows of a job that has no register: it is lost."""
        return None

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        """Compare the target with what it showed before, by about one request; changes nothing.

        Called at a start; and after ``inspect``, before each decision, with ``past.running``.
        Raises:
            TargetError: the target does not answer.
        """
        return ()

    def systems(self) -> Sequence[Committer]:
        """One committer per system; together they see every handle. Each is swept separately."""
        return (self,)

    @property
    def run_calls(self) -> CallRunner:
        """How the systems are called: in turn, or in parallel threads."""
        return in_turn


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt to write one partition of one epoch, under one generation.

    Args:
        frontier: epochs of this generation up to it were finished when the task began; None if
            unknown.
        abandoned: epochs that this generation had abandoned by then.
    """

    register: str
    job: str
    generation: int
    epoch: int
    partition: int
    attempt: str
    frontier: int | None = None
    abandoned: tuple[int, ...] = ()

    def is_settled(self, epoch: int) -> bool:
        """Whether the epoch is finished or abandoned, so that no decision can name its handles.

        Of this generation only; stable, as ``protocol.sweepable`` is.
        """
        return (self.frontier is not None and epoch <= self.frontier) or epoch in self.abandoned

    @property
    def handle(self) -> HandleName:
        return HandleName(
            self.register, self.job, self.generation, self.epoch, self.partition, self.attempt
        )


class Sink(ABC):
    """A target with its options, ready to write to. Cheap to build; connects when first used."""

    @property
    @abstractmethod
    def target_id(self) -> str:
        """The target's identity: stable over restarts, different for another target."""

    @abstractmethod
    def writer(self, task: Task) -> Writer: ...

    @abstractmethod
    def committer(self) -> Committer: ...

    @abstractmethod
    def register(self) -> RegisterStore:
        """The register in the sink's own system; an ``Inventory`` if ``abs`` is to manage it."""

    @abstractmethod
    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        """Check whether the target can keep the guarantee.

        It changes nothing that a reader, a job or another preflight could see. It may write probes of
        its own in the sink's own place (S3: objects in the folder of its state), which it deletes
        before it returns; probes left by a killed preflight must be harmless.

        Args:
            job: the register key that will be used.
            tasks: number of concurrent writers of an epoch, where known.
        """

    @abstractmethod
    def guarantee(self) -> Guarantee: ...

    def if_missing(self, check: Callable[[], None]) -> None:  # noqa: B027 - most create no target
        """Set what to call before a missing target is created, or reported as missing.

        Args:
            check: raises IdentityError if the job has committed to the target: then it is not new.
        """

    def fence(self, state: JobState) -> None:  # noqa: B027 - most need none
        """Stop what lower generations have in flight; called after a run raised the generation.

        At best effort and never needed for safety: it releases the locks of a suspended zombie.
        """

    def is_empty(self) -> bool:
        """Whether it is known that a reader would find no row in the target, of any writer.

        Raises:
            TargetError: the check failed.
        """
        return False

    def reach(self) -> None:  # noqa: B027 - a sink may leave it to the first write
        """Check that this process reaches the target, by a small request that changes nothing.

        Raises:
            TargetError: the target does not answer, or it refuses.
        """

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what only this sink holds. Can be repeated.

        Handles stay as they are. Connections belong to the process: its other sinks, also on the same
        server, keep working.
        """
