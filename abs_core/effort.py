"""What tasks took for an epoch, for observers: the protocol does not look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """What one task, or all tasks of an epoch, took.

    Args:
        amounts: number of a sink, rows and bytes that it was given; dead letters count at both sinks.
        write_seconds: in the sinks' writers; of the slowest task.
        pre_commit_seconds: until the rows were durable; of the slowest task.
        retries: of requests that failed.
        waited_seconds: in calls that were retried; of the slowest task.
        read: rows of the source, before sinks select theirs; None if it was not counted.
    """

    amounts: tuple[tuple[int, int, int], ...] = ()
    write_seconds: float = 0.0
    pre_commit_seconds: float = 0.0
    retries: int = 0
    waited_seconds: float = 0.0
    read: int | None = None

    @property
    def bytes(self) -> int:
        """As Arrow holds them, of all sinks."""
        return sum(size for _, _, size in self.amounts)


def together(efforts: Iterable[Effort]) -> Effort:
    """What the tasks took together."""
    every = list(efforts)
    return Effort(
        tuple(amount for one in every for amount in one.amounts),
        max((one.write_seconds for one in every), default=0.0),
        max((one.pre_commit_seconds for one in every), default=0.0),
        sum(one.retries for one in every),
        max((one.waited_seconds for one in every), default=0.0),
        sum(counted) if (counted := [one.read for one in every if one.read is not None]) else None,
    )


_changed: dict[str, tuple[int, dict[int, int]]] = {}


def note_changed(job: str, epoch: int, sink: int, rows: int) -> None:
    """Note how many rows of a sink's target the changes of an epoch wrote or deleted.

    The process that commits it tells observers. A later try counts anew.
    """
    noted, by_sink = _changed.get(job, (epoch, {}))
    _changed[job] = (epoch, {**(by_sink if noted == epoch else {}), sink: rows})


def take_changed(job: str, epoch: int) -> dict[int, int]:
    """What was noted for the epoch, by the number of the sink."""
    noted, by_sink = _changed.pop(job, (epoch, {}))
    return by_sink if noted == epoch else {}
