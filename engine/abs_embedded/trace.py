"""Records a run's events: every barrier, copy, acknowledgement, decision and commit.

A ``Trace`` can be a job's ``observe``. ``timeline`` prepares one checkpoint's picture; ``abs
trace`` draws it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from abs_core.barriers.elements import TaskId
from abs_core.errors import DataError
from abs_core.strictjson import of, parse


@dataclass(frozen=True, slots=True)
class Moment:
    """One event.

    Args:
        seconds: since the trace began.
        what: ``begin``, ``trigger``, ``barrier``, ``copy``, ``persisted``, ``acknowledged``,
            ``record``, ``committed``, ``aborted`` or ``restored``.
        task: None for the coordinator.
    """

    seconds: float
    what: str
    task: str | None
    checkpoint: int


@dataclass(slots=True)
class Trace:
    """Collects moments. Thread-safe."""

    moments: list[Moment] = field(default_factory=list)
    _zero: float = field(default_factory=time.monotonic)

    def __call__(self, event: str, task: TaskId | None, checkpoint: int) -> None:
        name = None if task is None else str(task)
        self.moments.append(Moment(time.monotonic() - self._zero, event, name, checkpoint))

    def write(self, path: str | Path) -> None:
        """Write one JSON line per moment."""
        lines = (json.dumps([m.seconds, m.what, m.task, m.checkpoint]) for m in self.moments)
        Path(path).write_text("\n".join(lines) + "\n")


def read(path: str | Path) -> list[Moment]:
    """Read the file of ``Trace.write``; raises DataError for another one."""
    try:
        return [_moment(line) for line in Path(path).read_text().splitlines()]
    except (OSError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a trace: {error}.", remedy="name a file that `Trace.write` wrote."
        ) from error


def _moment(line: str) -> Moment:
    seconds, name, task, checkpoint = of(list, parse(line))
    return Moment(seconds, name, task, checkpoint)


@dataclass(frozen=True, slots=True)
class Span:
    """A task's part in one checkpoint, in seconds since its begin; None if unknown.

    Args:
        first: its first barrier, or its trigger.
        copied: the copy was taken: alignment lasts from ``first`` to here.
        persisted: the copy is durable.
    """

    task: str
    first: float
    copied: float | None
    persisted: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One checkpoint; ``marks`` are the coordinator's events in order."""

    checkpoint: int
    spans: tuple[Span, ...]
    marks: tuple[tuple[str, float], ...]


def checkpoints(moments: Iterable[Moment]) -> list[int]:
    """The committed checkpoints."""
    return [m.checkpoint for m in moments if m.what == "committed"]


def timeline(moments: Iterable[Moment], checkpoint: int) -> Timeline:
    """One checkpoint in the trace, tasks in the order of their first barrier.

    Raises DataError if the trace does not contain it.
    """
    mine = [m for m in moments if m.checkpoint == checkpoint]
    if not mine:
        numbers = sorted({m.checkpoint for m in moments if m.checkpoint is not None})
        raise DataError(
            f"The trace has no events of checkpoint {checkpoint}.",
            remedy=f"choose one that it has: {', '.join(map(str, numbers)) or 'none'}.",
        )
    began = mine[0].seconds
    firsts: dict[str, dict[str, float]] = {}
    for moment in mine:
        if moment.task is not None:
            step = "barrier" if moment.what == "trigger" else moment.what
            firsts.setdefault(moment.task, {}).setdefault(step, moment.seconds - began)
    spans = [
        Span(task, seen.get("barrier", 0.0), seen.get("copy"), seen.get("persisted"))
        for task, seen in firsts.items()
    ]
    marks = tuple((m.what, m.seconds - began) for m in mine if m.task is None)
    return Timeline(checkpoint, tuple(sorted(spans, key=lambda s: s.first)), marks)
