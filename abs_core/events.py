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
    """

    job: str
    epoch: int
    partition: int
    rows: int
    seconds: float
    sinks: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch is finished; ``seconds`` for decision, commit and finish together.

    Args:
        rows: with the dead ones.
        dead: refused by a target and kept as dead letters.
    """

    job: str
    epoch: int
    rows: int
    handles: int
    seconds: float
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """An epoch was already committed; nothing was written."""

    job: str
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class RolledForward:
    """A decision left open by an earlier run or attempt is now finished."""

    job: str
    epoch: int
    handles: int


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


@dataclass(frozen=True, slots=True)
class NotCertified:
    """The birth certificate could not be written; the next epoch tries again."""

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
    | Committed
    | Skipped
    | RolledForward
    | Swept
    | SweepFailed
    | Abandoned
    | NotCertified
    | Ended
)
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Observes nothing."""
