"""Progress events of the protocol; an engine's adaptor turns them into logs and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """A run raised the generation; ``minted`` if the job had no register before."""

    job: str
    generation: int
    minted: bool


@dataclass(frozen=True, slots=True)
class PreCommitted:
    """A task's rows are durable in the target; ``seconds`` from the first batch to pre-commit's end.

    Args:
        sinks: names of the sinks written to, if they have names.
        handle: the name under which the target holds them.
    """

    job: str
    epoch: int
    partition: int
    rows: int
    seconds: float
    sinks: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What an epoch wrote to one sink.

    Args:
        sink: its name; empty if it is the only one.
        rows: without dead letters; None if it is not known.
        dead: dead letters of its share.
        bytes: as Arrow holds them, with dead letters; None if it is not known.
        target: its target's identity.
        namespace, dataset: the target, by OpenLineage's rules for names; an engine fills them in.
        changed: rows of the target that its changes wrote or deleted; None if it took no changes, or it
            is not known. The other changes were older than their rows, or a later one of their key came
            with them.
    """

    sink: str
    rows: int | None
    bytes: int | None
    target: str = ""
    namespace: str = ""
    dataset: str = ""
    dead: int = 0
    changed: int | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision on an epoch is stored: it names exactly these handles.

    Where a target decides and commits in one transaction, the epoch is also finished.
    """

    job: str
    epoch: int
    generation: int
    handles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch is finished; ``seconds`` for decision, commit and finish together.

    Args:
        rows: with the dead ones; a row that goes to several sinks counts at each. 0, too, where they
            were not counted (``is_counted``).
        dead: refused by a target and kept as dead letters.
        bytes: as Arrow holds the rows.
        write_seconds, pre_commit_seconds: of the slowest task, in the sinks' writers; 0 if the engine
            does not measure them.
        decide_seconds: until the decision is stored; where a target decides and commits in one
            transaction, both.
        commit_seconds: from the decision until the register has the epoch as finished.
        retries: of requests that failed, in tasks and here, since this process told the last epoch.
        waited_seconds: in calls that were retried.
        in_doubt: handles of the job that are prepared, and that no decision names.
        oldest_seconds: age of the oldest of them; None if there is none, or it is not known.
        frontier: all epochs up to it are finished.
        targets: what each sink got; empty if the engine does not measure it.
        id: names this epoch's commit, the same whoever tells it.
        read: rows of the source, each once; None if the engine does not count them.
    """

    job: str
    epoch: int
    rows: int
    handles: int
    seconds: float
    dead: int = 0
    bytes: int = 0
    write_seconds: float = 0.0
    pre_commit_seconds: float = 0.0
    decide_seconds: float = 0.0
    commit_seconds: float = 0.0
    retries: int = 0
    waited_seconds: float = 0.0
    in_doubt: int = 0
    oldest_seconds: float | None = None
    frontier: int | None = None
    targets: tuple[Written, ...] = ()
    id: str = ""
    read: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether ``rows`` is known: those of a write of the user's own are not always counted."""
        return self.rows > 0 or self.handles == 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """An epoch was already committed; nothing was written.

    Args:
        rows: 0, too, where they were not counted.
    """

    job: str
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class RolledForward:
    """A decision left open by an earlier run or attempt is now finished.

    Args:
        targets, id: as ``Committed``'s.
        here: whether this process has recorded it, not another one just before; True, too, where the
            reply was lost.
    """

    job: str
    epoch: int
    handles: int
    targets: tuple[Written, ...] = ()
    id: str = ""
    here: bool = True


@dataclass(frozen=True, slots=True)
class Swept:
    """Handles that no decision can name were aborted."""

    job: str
    handles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepFailed:
    """Handles could not be aborted, or proof not deleted; a later sweep tries again."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """This generation abandoned an epoch."""

    job: str
    epoch: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class NotCertified:
    """The birth certificate could not be written; the next epoch tries again."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Whether a target still has the rows of finished epochs cannot be told."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run ended itself; no task writes under ``generation``."""

    job: str
    generation: int


Event = (
    Started
    | PreCommitted
    | Decided
    | Committed
    | Skipped
    | RolledForward
    | Swept
    | SweepFailed
    | Abandoned
    | NotCertified
    | NotCompared
    | Ended
)
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Observes nothing."""
