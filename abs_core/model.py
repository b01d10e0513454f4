"""Frozen values of the commit protocol: names, committables, decisions, the state of a job.

All of them are immutable and compare by value. What is kept longer than a process (in a register, in
a target) is turned to and from text by ``abs_core.codec``; a handle's name parses and prints itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from abs_core._handle import JOB_KEY_MAX as JOB_KEY_MAX
from abs_core._handle import NO_EPOCH as NO_EPOCH
from abs_core._handle import HandleName as HandleName
from abs_core._handle import job_key as job_key
from abs_core.errors import AbsError, ProtocolError
from abs_core.rowdigest import RowDigest

SUPERSEDED_MAX = 64
"""How many superseded runs a register remembers. An older zombie would pass for a new run."""

RECENT_MAX = 16
"""For how many epochs back a replay can be told from a rolled-back checkpoint."""

HELD_AS = "held_as"
"""In a committable's ``extra``: the bounded name under which the target holds it."""

PROTOCOL = "protocol"
"""In a committable's ``extra``: the protocol by which it was made."""

AND = " + "
"""Between the targets of a job that has several: their identities make one."""

MOVED = "moved to "
"""Begins the lineage of a register whose state lies elsewhere now: no query has such a lineage."""


@dataclass(frozen=True, slots=True)
class Committable:
    """What a writer hands to the coordinator once its rows are durable and not yet visible.

    Args:
        handle: the name under which the target keeps them.
        rows: how many there are.
        digest: of the content as it was sent, ``algorithm:hex``.
        extra: what this target needs besides the name, as sorted pairs; never a secret (I9).

    Raises:
        ProtocolError: the pairs are not sorted, or a name is there twice: it would change as text.
    """

    handle: HandleName
    rows: int
    digest: str
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def protocol(self) -> str:
        """The protocol by which it was made: what it does not say itself was made by ``2pc``."""
        return dict(self.extra).get(PROTOCOL, "2pc")

    @property
    def held_as(self) -> HandleName:
        """The name under which the target lists it as in doubt: the handle's, or a bounded one.

        Some systems keep names for ever, so theirs are used again once an epoch is finished (Kafka's
        transactional ids). Such a sink puts the name into ``extra`` under ``HELD_AS``, with
        ``NO_EPOCH`` as its epoch: no rule about epochs then applies to it, and what it stands for is
        swept under a higher generation only.
        """
        text = dict(self.extra).get(HELD_AS)
        name = None if text is None else HandleName.parse(text)
        return self.handle if name is None else name

    def __post_init__(self) -> None:
        if self.extra != tuple(sorted(dict(self.extra).items())):
            raise ProtocolError(
                f"The extra fields {[name for name, _ in self.extra]} are not sorted and unique.",
                handle=str(self.handle),
                remedy="this is a defect of the sink: please report it.",
            )


@dataclass(frozen=True, slots=True)
class Wrote:
    """A task's share of an epoch: its rows, and their handle (None where there was no row).

    Args:
        digest: of the rows, where the engine wants one.

    Raises:
        ProtocolError: the engine gave the writer another number of rows than it pre-committed.
    """

    rows: int
    committable: Committable | None
    digest: RowDigest | None = None

    def __post_init__(self) -> None:
        held = 0 if self.committable is None else self.committable.rows
        if held != self.rows:
            raise ProtocolError(
                f"A task wrote {self.rows} rows, and {held} of them are pre-committed.",
                handle=None if self.committable is None else str(self.committable.handle),
                remedy="this is a defect of the sink: please report it. Nothing is committed.",
            )


@dataclass(frozen=True, slots=True)
class Drained:
    """A task's share of an epoch that was decided before: counted, not written.

    Args:
        digest: of the rows, where the engine wants one.
    """

    rows: int
    digest: RowDigest | None = None


Share = Wrote | Drained


@dataclass(frozen=True, slots=True)
class Decision:
    """The durable record that an epoch is committed by exactly these handles (I1, I2, I3)."""

    lineage: str
    epoch: int
    generation: int
    committables: tuple[Committable, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        """Tells decisions apart: lineage and epoch come again after an adoption, generations never."""
        return self.lineage, self.epoch, self.generation

    @property
    def handles(self) -> frozenset[HandleName]:
        return frozenset(committable.handle for committable in self.committables)

    @property
    def held(self) -> frozenset[HandleName]:
        """The handles, and the names under which the target holds them."""
        return self.handles | {committable.held_as for committable in self.committables}


@dataclass(frozen=True, slots=True)
class Recent:
    """What a committed epoch was, so that a replay can be recognised as the same one.

    Args:
        fingerprint: digest of the epoch's input description, or of its rows (``RowDigest``) where
            that could not be read; None where nobody made one.
        rows: rows of the epoch, over all tasks.
    """

    epoch: int
    fingerprint: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class NotedToken:
    """One batch write of a job, as the job's parent record knows it, see ``abs_core.births.parent``.

    Args:
        token: as it stands in the register key.
        register: the id of its register.
        generation: of the run that noted it.
        at: when it was noted last, ISO 8601 with a zone.
    """

    token: str
    register: str
    generation: int
    at: str


@dataclass(frozen=True, slots=True)
class NamedSink:
    """One of the sinks that a job's epochs are written to, see ``abs_core.several.sinkmap``.

    Args:
        number: is part of its handles' names; never given to another sink of the job.
        name: as the user calls it; unique among the sinks that the job has at one time.
        target: identity of what it writes to.
        since: the first epoch that may be written to it.
        until: the last one; None while the job has the sink.
    """

    number: int
    name: str
    target: str
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """The one small value per job that everything is agreed on by compare-and-set.

    Args:
        register: random id, minted once; it is part of every handle's name.
        job: the register key, see ``job_key``.
        target: identity of what is written to.
        lineage: whose epoch numbers these are.
        generation: raised by each run; a lower one is a zombie.
        run: the run that holds the generation.
        superseded: earlier runs, oldest first, at most ``SUPERSEDED_MAX``.
        frontier: all epochs up to it are finished; None before the first.
        open: decided and not finished, in the order they were decided.
        recent: the last ``RECENT_MAX`` decided epochs, oldest first.
        abandoned: epochs above the frontier that this generation gave up, ascending.
        checkpoint: where the engine's checkpoint lies, normalised and without a secret; None where that
            is not known.
        tokens: of a batch job's parent record only: its tokens, the one noted last at the end.
        sinks: of a job whose epochs go to several sinks under one decision: all it has had, by number.
    """

    register: str
    job: str
    target: str
    lineage: str
    generation: int
    run: str
    superseded: tuple[str, ...] = ()
    frontier: int | None = None
    open: tuple[Decision, ...] = ()
    recent: tuple[Recent, ...] = ()
    abandoned: tuple[int, ...] = ()
    checkpoint: str | None = None
    tokens: tuple[NotedToken, ...] = ()
    sinks: tuple[NamedSink, ...] = ()

    @property
    def last_decided(self) -> int | None:
        """The highest epoch of this lineage that is decided or finished."""
        epochs = [d.epoch for d in self.open if d.lineage == self.lineage]
        if self.frontier is not None:
            epochs.append(self.frontier)
        return max(epochs, default=None)

    @property
    def moved_to(self) -> str | None:
        """Where the job's state has gone, for people; None where it is here."""
        if not self.lineage.startswith(MOVED):
            return None
        return self.lineage.removeprefix(MOVED).rpartition(": ")[0]

    def decision(self, epoch: int) -> Decision | None:
        """The open decision on ``epoch`` of the present lineage."""
        for decision in self.open:
            if decision.lineage == self.lineage and decision.epoch == epoch:
                return decision
        return None

    def is_open(self, decision: Decision) -> bool:
        """Whether this very decision, and not a later one on an epoch of that number, is open."""
        return any(d.key == decision.key for d in self.open)

    def record(self, epoch: int) -> Recent | None:
        """What is still known of a decided epoch of the present lineage."""
        for recent in self.recent:
            if recent.epoch == epoch:
                return recent
        return None


class Outcome(StrEnum):
    """What became of a handle (I7). ``UNKNOWN``: the target has no trace of it either way."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Inspection:
    """A handle as the target sees it now.

    Args:
        outcome: its state.
        seconds_left: until the target aborts it on its own; None where it never does.
        timeout: what that time is set by, as its users name it.
    """

    outcome: Outcome
    seconds_left: float | None = None
    timeout: str = ""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Something pre-committed that the target still holds.

    Args:
        handle: its name.
        age_seconds: since it was pre-committed, by the target's clock; None where unknown.
        detail: the target's own name for it, for people.
        size: bytes that the target keeps for it; None where it does not say, or was not asked.
    """

    handle: HandleName
    age_seconds: float | None
    detail: str
    size: int | None = None


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a preflight: what was found, and what to do about it."""

    severity: Severity
    what: str
    remedy: str = ""

    @classmethod
    def error(cls, what: str, remedy: str = "") -> Self:
        """It would break the promise, or stop the job."""
        return cls(Severity.ERROR, what, remedy)

    @classmethod
    def warning(cls, what: str, remedy: str = "") -> Self:
        """It is for a person to look at."""
        return cls(Severity.WARNING, what, remedy)

    @classmethod
    def note(cls, what: str, remedy: str = "") -> Self:
        return cls(Severity.NOTE, what, remedy)

    @classmethod
    def of(cls, error: AbsError) -> Self:
        """What this error would stop the job with."""
        return cls.error(error.what, error.remedy)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a sink promises with the options it was given; printed at every start.

    Args:
        protocol: ``2pc``, ``wal`` or ``idempotent``.
        write: ``append`` or ``upsert``.
        visibility: when readers see the rows, and in which units.
        reader: what a reader must set to see committed data only.
        limits: what is not promised.
        notes: what else was chosen from the options, and why.
    """

    protocol: str
    write: str
    visibility: str
    reader: str
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
