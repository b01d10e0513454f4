"""Frozen values of the commit protocol: names, committables, decisions, the state of a job.

They compare by value. ``abs_core.codec`` serialises them for registers and targets; a handle's name
parses and prints itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from abs_core._handle import MAX_JOB_KEY as MAX_JOB_KEY
from abs_core._handle import NO_EPOCH as NO_EPOCH
from abs_core._handle import HandleName as HandleName
from abs_core._handle import job_key as job_key
from abs_core._shown import MAX_FULL_MARK as MAX_FULL_MARK
from abs_core._shown import MAX_MARK as MAX_MARK
from abs_core._shown import Course as Course
from abs_core._shown import Shown as Shown
from abs_core.effort import Effort
from abs_core.errors import AbsError, ProtocolError
from abs_core.release import RELEASE
from abs_core.rowdigest import RowDigest

MAX_SUPERSEDED = 64
"""How many superseded runs a register keeps; an older zombie would count as a new run."""

MAX_RECENT = 16
"""For how many past epochs a replay can be distinguished from a rolled-back checkpoint."""

TOGETHER = "all"
"""Key in a committable's ``extra``, see ``Committable.together``."""

HELD_AS = "held_as"
"""Key in a committable's ``extra``: the bounded name under which the target holds it."""

PROTOCOL = "protocol"
"""Key in a committable's ``extra``: the commit protocol that made it."""

AND = " + "
"""Joins the target identities of a multi-sink job."""

MOVED = "moved to "
"""Prefix of the lineage in a register that was moved; no query has such a lineage."""
NOWHERE = "nowhere, to be deleted"
"""Where the register of a job is moved that a command has begun to reset or remove; no job's key."""


@dataclass(frozen=True, slots=True)
class Committable:
    """Describes one writer's rows, which are durable in the target and not yet visible.

    Args:
        digest: of the content as sent, ``algorithm:hex``.
        extra: what the target needs besides the name, as sorted pairs; never a secret (I9).
        release: of abs-sinks that made it, for errors; empty if one before 0.2.0 did.

    Raises:
        ProtocolError: the pairs are not sorted and unique, so they would not survive serialisation.
    """

    handle: HandleName
    rows: int
    digest: str
    extra: tuple[tuple[str, str], ...] = ()
    release: str = field(default=RELEASE, compare=False)

    @property
    def protocol(self) -> str:
        """The commit protocol that made it; ``2pc`` where ``extra`` does not name one."""
        return dict(self.extra).get(PROTOCOL, "2pc")

    @property
    def together(self) -> str:
        """Equal for handles that are committed together or not at all (``Committer.whole``)."""
        return dict(self.extra).get(TOGETHER, str(self.handle))

    @property
    def held_as(self) -> HandleName:
        """The name under which the target lists it as in doubt: the handle's, or a bounded one.

        A sink whose system keeps names for ever (Kafka's transactional ids) reuses them once an epoch
        is finished. It stores the name in ``extra`` under ``HELD_AS``, with epoch ``NO_EPOCH``, so
        only a higher generation sweeps it.
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
    """A task's share of an epoch; ``committable`` is None if there was no row.

    Args:
        digest: of the rows, where the engine asks for one.
        effort: for observers; nothing depends on it.

    Raises:
        ProtocolError: the writer was given a different number of rows than it pre-committed.
    """

    rows: int
    committable: Committable | None
    digest: RowDigest | None = None
    effort: Effort | None = field(default=None, compare=False)

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
    """A task's share of an epoch that was already decided: its rows are counted, not written.

    Args:
        digest: of the rows, where the engine asks for one.
    """

    rows: int
    digest: RowDigest | None = None


Share = Wrote | Drained


@dataclass(frozen=True, slots=True)
class Decision:
    """Durable record: exactly these handles commit the epoch (I1, I2, I3)."""

    lineage: str
    epoch: int
    generation: int
    committables: tuple[Committable, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the decision; an adoption may repeat lineage and epoch, never a generation."""
        return self.lineage, self.epoch, self.generation

    @property
    def handles(self) -> frozenset[HandleName]:
        return frozenset(committable.handle for committable in self.committables)

    @property
    def held(self) -> frozenset[HandleName]:
        """The handles, and the names under which the target holds them."""
        return self.handles | {committable.held_as for committable in self.committables}


@dataclass(frozen=True, slots=True)
class Dead:
    """A sink's share of an epoch, with the option ``deadletter``: rows = written + dead."""

    sink: int
    rows: int
    dead: int


@dataclass(frozen=True, slots=True)
class Recent:
    """Describes a committed epoch, so that a replay can be recognised.

    Args:
        fingerprint: digest of the epoch's input description, or of its rows (``RowDigest``) where
            that could not be read; None if there is neither.
        rows: over all tasks.
        dead: of the sinks that keep dead letters, by number.
        shown: by the targets, when it was finished; those that cannot tell are left out.
        course: None if an older release decided it.
    """

    epoch: int
    fingerprint: str | None
    rows: int
    dead: tuple[Dead, ...] = ()
    shown: tuple[Shown, ...] = ()
    course: Course | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotedToken:
    """One batch write, as recorded in its job's parent record, see ``abs_core.births.parent``.

    Args:
        token: as encoded in the register key.
        register: id of the token's register.
        generation: of the run that recorded it.
        at: time of the last record, ISO 8601 with a zone.
    """

    token: str
    register: str
    generation: int
    at: str


@dataclass(frozen=True, slots=True)
class NamedSink:
    """One of the sinks that a job's epochs are written to, see ``abs_core.sinkmap``.

    Args:
        number: part of its handles' names; never reused for another sink of the job.
        name: the user's name for it, unique among the job's current sinks.
        target: its target's identity.
        since: the first epoch that may be written to it.
        until: the last such epoch; None while the job has the sink.
    """

    number: int
    name: str
    target: str
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state in its register; it changes by compare-and-set only.

    Args:
        register: random id, minted once; part of every handle's name.
        job: the register key, see ``job_key``.
        target: the target's identity.
        lineage: id of the query or pipeline that numbers the epochs.
        generation: raised by each run; a run with a lower one is a zombie.
        run: the run that holds the generation.
        superseded: earlier runs, oldest first, at most ``MAX_SUPERSEDED``.
        frontier: all epochs up to it are finished; None before the first.
        open: decisions that are not finished, in the order they were made.
        recent: the last ``MAX_RECENT`` decided epochs, oldest first.
        abandoned: epochs above the frontier that this generation abandoned, ascending.
        checkpoint: normalised location of the engine's checkpoint, without secrets; None if unknown.
        tokens: in a batch job's parent record only: its tokens, the last recorded at the end.
        sinks: in a multi-sink job only: all sinks that it has had, by number.
        older: epochs before ``recent``, only with what sinks showed that had no rows since.
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
    older: tuple[Recent, ...] = ()

    @property
    def last_decided(self) -> int | None:
        """The highest epoch of this lineage that is decided or finished."""
        epochs = [d.epoch for d in self.open if d.lineage == self.lineage]
        if self.frontier is not None:
            epochs.append(self.frontier)
        return max(epochs, default=None)

    @property
    def moved_to(self) -> str | None:
        """Display name of the register that the state was moved to; None if it was not moved."""
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
        """Whether exactly this decision is open, not a later one with the same epoch number."""
        return any(d.key == decision.key for d in self.open)

    def record(self, epoch: int) -> Recent | None:
        """The record of a decided epoch of the present lineage; None if it is too old."""
        for recent in self.recent:
            if recent.epoch == epoch:
                return recent
        return None


class Outcome(StrEnum):
    """State of a handle in the target (I7); ``UNKNOWN`` where the target has no trace of it."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The target's present view of a handle.

    Args:
        seconds_left: until the target aborts it by itself; None if it never does.
        timeout: the target's name of the setting that limits this time.
    """

    outcome: Outcome
    seconds_left: float | None = None
    timeout: str = ""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A pre-committed handle that the target still holds.

    Args:
        age_seconds: since the pre-commit, by the target's clock; None if unknown.
        detail: the target's own name for it, for display.
        size: in bytes, in the target; None if unknown.
        lasting: it hides later data from readers, and no timeout ends it. Nothing else is written under
            its name before it is committed: once no epoch is under way, none can name it.
    """

    handle: HandleName
    age_seconds: float | None
    detail: str
    size: int | None = None
    lasting: bool = False


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a preflight, with its remedy."""

    severity: Severity
    what: str
    remedy: str = ""

    @classmethod
    def error(cls, what: str, remedy: str = "") -> Self:
        """A finding that breaks the guarantee or stops the job."""
        return cls(Severity.ERROR, what, remedy)

    @classmethod
    def warning(cls, what: str, remedy: str = "") -> Self:
        """A finding that a person should check."""
        return cls(Severity.WARNING, what, remedy)

    @classmethod
    def note(cls, what: str, remedy: str = "") -> Self:
        return cls(Severity.NOTE, what, remedy)

    @classmethod
    def of(cls, error: AbsError) -> Self:
        """A finding that this error would stop the job."""
        return cls.error(error.what, error.remedy)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A sink's guarantee under its options; printed at every start.

    Args:
        protocol: ``2pc``, ``wal`` or ``idempotent``.
        write: ``append`` or ``upsert``.
        visibility: when readers see the rows, and in which units.
        reader: what a reader must set to see committed data only.
        limits: what is not guaranteed.
        notes: other choices derived from the options, with the reason.
        times: how often every row is written, in words.
    """

    protocol: str
    write: str
    visibility: str
    reader: str
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    times: str = "exactly once"
