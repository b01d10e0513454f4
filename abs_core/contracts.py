"""What a sink and a register must offer. Protocols only; nothing here is implemented.

A sink is written once against these and runs on every engine. ``abs_core.testing.check_sink`` runs
every step, replay, crash point, zombie and race of the protocol against any implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
)
from abs_core.several.together import Asking

Version = str
"""An opaque version of a register's cell; a store compares it for equality only."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a register's cell held when it was loaded."""

    state: JobState
    version: Version


@dataclass(frozen=True, slots=True)
class Conflict:
    """The cell was not at the expected version; nothing was changed."""


@runtime_checkable
class RegisterStore(Protocol):
    """One linearizable compare-and-set cell per job.

    Both calls raise ``UnavailableError`` where the outcome is not known: the request may have taken
    effect, or may still do so later. Callers load again and look; they never guess.
    """

    def load(self, job: str) -> Stored | None:
        """The present state and its version, or None where the job has no cell yet."""
        ...

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """Replace the state if its version is still ``expected`` (None: there is no cell yet).

        Durable when it returns. Returns the new version, or ``Conflict`` where nothing was changed.
        """
        ...


@runtime_checkable
class Punctual(Protocol):
    """A register store whose compare-and-set takes several requests, so that it can come to be late.

    Offering it is optional: a store that sends one request is on time, or not at all.
    """

    def compare_and_set_by(
        self, job: str, expected: Version | None, state: JobState, deadline: float
    ) -> Version | Conflict:
        """``compare_and_set``, which sends nothing that could change the cell after ``deadline``.

        Args:
            deadline: by ``time.monotonic``.

        Raises:
            UnavailableError: it is over; what was sent before may take effect.
        """
        ...


@runtime_checkable
class ByOption(Protocol):
    """What a register store may say besides: by which option of its sink it is found."""

    @property
    def option(self) -> str: ...


@runtime_checkable
class Inventory(RegisterStore, Protocol):
    """A register store that can be looked through, as the register of every sink can.

    Optional for a store that only an engine uses. It is what ``abs register``, ``abs in-doubt`` and a
    preflight ask, and what tells a deleted checkpoint from a new job.
    """

    def jobs(self) -> Sequence[Stored]:
        """Every job that has a cell here, by name."""
        ...

    def others_on(self, target: str, job: str) -> Sequence[str]:
        """Other jobs whose register says that they write to ``target``, by name.

        The tokens of one batch job (``job@token``) count as one job, named without a token.
        """
        ...

    def retire(self, job: str) -> bool:
        """Delete a job's cell, for good: the job forgets what it has committed.

        A version of the deleted cell never matches a later cell of that job.

        Returns:
            whether there was one.

        Raises:
            ProtocolError: it holds a decision that is not finished, or says of something what nothing
                else does.
            ContentionError: the job is running.
        """
        ...

    def place(self, job: str) -> str:
        """Where the job's cell lies, for people; without a secret (I9)."""
        ...


@runtime_checkable
class Bound(Protocol):
    """A register store whose cells say more than a state, which cannot always be moved."""

    def check_movable(self, job: str) -> None:
        """Raise where the job's cell cannot be moved.

        Raises:
            ProtocolError: it says of something what nothing else does.
        """
        ...


class Writer(Protocol):
    """Writes one task's share of one epoch. Not thread-safe; used once.

    Nothing of it is visible to readers before the coordinator commits, except under the protocol
    ``idempotent``, where the sink says so in its ``Guarantee``.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; every batch of one writer has the same schema.

        Raises:
            DataError: the batch does not fit the target; the writer must then be aborted.
            TargetError: the target refused or went away; the writer must then be aborted.
        """
        ...

    def pre_commit(self) -> Committable | None:
        """Make the rows durable and return their handle; None where no row was written.

        Returns only after every send is acknowledged. Where the reply is lost the writer looks at
        the target; it raises ``UnavailableError`` if that does not tell.
        """
        ...

    def abort(self) -> None:
        """Give up what was not pre-committed, at best effort. Never raises, never undoes a handle."""
        ...


class Committer(Protocol):
    """Acts on handles, from any process. Every call can be repeated.

    It is called by one thread at a time, not always the one that made it; committers of several sinks
    are called by several threads at once.
    """

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """What the target knows of each handle now."""
        ...

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Make each visible. Called for handles of a decision only (I1).

        Idempotent: a handle that is committed already is reported as such, by proof in the target
        and never by its absence. Where the target answers an error that may pass, it raises
        ``TargetError``; what was committed by then stays committed.
        """
        ...

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Undo handles that no decision can ever name (I4 is the caller's duty).

        A handle that is gone, committed or unknown is left alone, without an error. One that cannot
        be aborted does not stop the others: each is tried on its own (``aborting.abort_each``).

        Raises:
            TargetError: some handles stay; the message names them, each with its reason.
        """
        ...

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """Everything pre-committed in the target under exactly this job key, or under any (None).

        Whichever register it belongs to; a job key that begins like this one is another job. By the
        handle's name, or by the bounded one under which the target holds it (``Committable.held_as``)
        where this process does not know whose it is.
        """
        ...

    def forget(self, state: JobState) -> None:
        """Delete proof of commit that nobody can ask for again, at best effort.

        Only of handles for which ``protocol.sweepable`` holds in ``state``: that predicate is
        stable, so an old state does no harm.
        """
        ...


@runtime_checkable
class CoCommitter(Committer, Protocol):
    """A committer whose target holds the register too and can change both in one transaction.

    A sink returns one where the protocol commits so and the register is its own. Where it is not, as
    for an epoch over several sinks, the engine builds the sink so that it returns a plain
    ``Committer`` (the sinks of this project take ``co_commit=False``), or the sink refuses.
    """

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """Apply all rows and compare-and-set the register, atomically.

        Raises:
            NotPreparedError: what was pre-committed is not all there; nothing was changed.
            UnavailableError: the outcome is not known; load the register and look.
        """
        ...


@runtime_checkable
class Composer(Committer, Protocol):
    """A committer that makes the handles of a decision out of what tasks pre-committed.

    For a write-ahead log whose target cannot apply it in one transaction: the log's segments become
    few handles of the target, which are then decided and committed like any others.
    """

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """Prepare handles that hold the rows of all these; called before the decision, by the commit
        process, and perhaps more than once for an epoch.

        The new handles bear the register, job, generation and epoch of the old ones, the partition of
        one of them, and attempts of their own (I6). What is composed and never decided is found by
        ``in_doubt`` and aborted by the sweep, as the old ones are once their epoch is finished.

        Raises:
            NotPreparedError: what was pre-committed is not all there; nothing is decided.
        """
        ...


@runtime_checkable
class Composite(Committer, Protocol):
    """A committer over several systems, as of an epoch that goes to several sinks."""

    def systems(self) -> Sequence[Committer]:
        """One for each; together they see every handle. Each is swept on its own."""
        ...

    @property
    def way(self) -> Asking:
        """How they are asked: in turn, or side by side, each in another thread."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """Who writes: one attempt of one partition of one epoch, under one generation.

    Args:
        frontier: epochs of this generation up to it were finished when the task began; None: none
            is known to be.
        abandoned: epochs that this generation had given up by then.
    """

    register: str
    job: str
    generation: int
    epoch: int
    partition: int
    attempt: str
    frontier: int | None = None
    abandoned: tuple[int, ...] = ()

    def knows_over(self, epoch: int) -> bool:
        """Whether no decision, present or future, can name a handle of that epoch any more.

        Stable, as ``protocol.sweepable`` is: of this generation, and finished or abandoned.
        """
        return (self.frontier is not None and epoch <= self.frontier) or epoch in self.abandoned

    @property
    def handle(self) -> HandleName:
        return HandleName(
            self.register, self.job, self.generation, self.epoch, self.partition, self.attempt
        )


@runtime_checkable
class Emptiable(Protocol):
    """A sink that can tell whether its target holds nothing yet."""

    def is_empty(self) -> bool:
        """Whether a reader would find no row there at all, whoever wrote it.

        Raises:
            TargetError: it cannot be told.
        """
        ...


def is_known_empty(sink: object) -> bool:
    """Whether the sink is one that can tell, and its target holds nothing."""
    return isinstance(sink, Emptiable) and sink.is_empty()


@runtime_checkable
class Reachable(Protocol):
    """A sink, or what it writes to, that tells whether this process gets there."""

    def reach(self) -> None:
        """Ask the target, with this process's credentials: a small request at most, and no change.

        Raises:
            TargetError: it does not answer, or it refuses.
        """
        ...


def reach(sink: object) -> None:
    """Ask the target, where the sink is one that can."""
    if isinstance(sink, Reachable):
        sink.reach()


class Sink(Protocol):
    """A target with its options, ready to write to. Cheap to build; connects when first used."""

    @property
    def target(self) -> str:
        """Identity of what is written to: stable over restarts, different for another target."""
        ...

    def writer(self, task: Task) -> Writer: ...

    def committer(self) -> Committer: ...

    def register(self) -> RegisterStore:
        """The register in the sink's own system; an ``Inventory`` where ``abs`` is to look after it."""
        ...

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        """Look whether the target can keep the promise.

        It changes nothing that a reader, a job or another preflight could see. What can only be told by
        doing may be tried with probes of the sink's own, in its own place (S3: objects in the folder of
        its state, as few servers say which conditions they keep): they are deleted before it returns,
        and what a preflight that was killed has left is in nobody's way.

        Args:
            job: the register key that will be used.
            tasks: how many writers an epoch has at once, where that is known.
        """
        ...

    def guarantee(self) -> Guarantee: ...

    def fence(self, state: JobState) -> None:
        """A run has just raised the generation: stop what lower generations still have in flight.

        At best effort and never needed for safety; it keeps a stopped zombie's locks from blocking.
        """
        ...

    def close(self) -> None:
        """This sink is not used any more: release what it holds and nobody else uses.

        Handles stay as they are. Connections belong to the process: other sinks of it, on the same
        server too, go on as before. Can be repeated.
        """
        ...
