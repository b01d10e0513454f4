"""What the protocol reports of its progress. An engine's adaptor turns events into logs and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """A run has raised the generation; ``minted`` where the job had no register before."""

    job: str
    generation: int
    minted: bool


@dataclass(frozen=True, slots=True)
class PreCommitted:
    """A task's rows are durable in the target; ``seconds`` from first batch to pre-commit's end.

    Args:
        sinks: names of the sinks that they are in, where these have any.
    """

    job: str
    epoch: int
    partition: int
    rows: int
    seconds: float
    sinks: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch is finished; ``seconds`` for decision, commit and finish together."""

    job: str
    epoch: int
    rows: int
    handles: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """An epoch was found committed already; nothing was written."""

    job: str
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class RolledForward:
    """A decision that an earlier run, or an earlier try, left open is finished now."""

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
    """What an earlier run left could not be aborted, or proof not deleted; tried again later."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """An epoch was given up by this generation."""

    job: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NotCertified:
    """The birth certificate could not be written; the next epoch tries again."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has given itself up; ``generation`` is the one that nobody writes under."""

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
