"""The job's phase in an epoch, seen from outside: from the target and Spark's checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Moment(StrEnum):
    """The phases of an epoch in order, and recovery."""

    WRITING = "writing"
    """Tasks write; nothing is pre-committed."""
    PREPARED = "prepared"
    """At least one task's rows are pre-committed, and nothing is decided."""
    DECIDED = "decided"
    """The decision is made, and not every handle is committed."""
    COMMITTED = "committed"
    """The sink's ``commit()`` is through, and Spark's own ``commits/N`` is not written yet."""
    BETWEEN = "between"
    """Spark has noted the last epoch, and has not planned the next."""
    RECOVERING = "recovering"
    """A restarted job has begun the epoch in which it was killed; any of the phases above."""
    ANY = "any"
    """No phase is awaited: the kill comes by the clock."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is visible of the job at one moment.

    Args:
        planned: the newest epoch in Spark's ``offsets/``.
        noted: the newest epoch in Spark's ``commits/``.
        finished: the newest complete epoch in the target; the register's frontier.
        undone: handles of decided epochs that are not proven committed, by the register; None
            without an open decision.
        in_doubt: pre-committed in the target: prepared transactions, or staging tables.
        generation: of the run that holds the register.
    """

    planned: int | None = None
    noted: int | None = None
    finished: int | None = None
    undone: int | None = None
    in_doubt: int = 0
    generation: int | None = None

    @property
    def epoch(self) -> int | None:
        """The current epoch; None between two."""
        return None if self.planned == self.noted else self.planned

    @property
    def moment(self) -> Moment:
        """The phase of the current epoch."""
        if self.epoch is None:
            return Moment.BETWEEN
        if self.finished is not None and self.finished >= self.epoch:
            return Moment.COMMITTED
        if self.undone is not None:
            return Moment.DECIDED
        return Moment.PREPARED if self.in_doubt else Moment.WRITING


def counted(number: int, thing: str) -> str:
    """A number of things, for people: ``1 kill``, ``2 kills``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def story(sight: Sight, thing: str, *, recovering: bool = False) -> str:
    """One line about the state after a kill.

    Args:
        thing: name of one thing in doubt, for people.
        recovering: the job had just been restarted.
    """
    again = ", during the recovery" if recovering else ""
    undone = counted(sight.in_doubt, thing)
    match sight.moment:
        case Moment.BETWEEN:
            after = "before epoch 0" if sight.noted is None else f"after epoch {sight.noted}"
            return f"{after}{again}: nothing in doubt"
        case Moment.COMMITTED if sight.generation is None:
            stage = f"its rows are in the target, but Spark's commits/{sight.epoch} is not written"
        case Moment.COMMITTED:
            stage = (
                f"after commit(), before Spark's commits/{sight.epoch}: all rows are in the target"
            )
        case Moment.DECIDED if sight.in_doubt == 0:
            stage = "decided and committed, not recorded as finished yet"
        case Moment.DECIDED:
            stage = f"decided, {undone} not committed yet"
        case Moment.PREPARED:
            stage = f"{undone} in doubt"
        case _:
            stage = "half written, nothing in doubt"
    return f"at epoch {sight.epoch}{again}: {stage}"
