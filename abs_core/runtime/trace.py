"""What happened when: every barrier, copy, acknowledgement, decision and commit of a run.

A ``Trace`` is what a job's ``observe`` may be. ``timeline`` makes of it what a picture of one
checkpoint shows; ``abs trace`` draws it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from abs_core.errors import DataError
from abs_core.runtime.elements import TaskId
from abs_core.strictjson import of, parse


@dataclass(frozen=True, slots=True)
class Moment:
    """One event.

    Args:
        seconds: since the trace began.
        what: ``begin``, ``trigger``, ``barrier``, ``copy``, ``persisted``, ``acknowledged``,
            ``record``, ``committed``, ``aborted`` or ``restored``.
        task: where; None for the coordinator.
    """

    seconds: float
    what: str
    task: str | None
    checkpoint: int


@dataclass(slots=True)
class Trace:
    """Collects moments, from any thread."""

    moments: list[Moment] = field(default_factory=list)
    _zero: float = field(default_factory=time.monotonic)

    def __call__(self, what: str, task: TaskId | None, checkpoint: int) -> None:
        name = None if task is None else str(task)
        self.moments.append(Moment(time.monotonic() - self._zero, what, name, checkpoint))

    def write(self, path: str | Path) -> None:
        """One JSON line for each moment."""
        lines = (json.dumps([m.seconds, m.what, m.task, m.checkpoint]) for m in self.moments)
        Path(path).write_text("\n".join(lines) + "\n")


def read(path: str | Path) -> list[Moment]:
    """What ``Trace.write`` wrote.

    Raises:
        DataError: it is no trace.
    """
    try:
        return [Moment(*of(list, parse(line))) for line in Path(path).read_text().splitlines()]
    except (OSError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is no trace: {error}.", remedy="name a file that `Trace.write` wrote."
        ) from error


@dataclass(frozen=True, slots=True)
class Span:
    """A task's part in one checkpoint; seconds since the checkpoint began, None where unknown.

    Args:
        first: its first barrier, or its trigger.
        copied: all barriers were there and the copy was taken: alignment lasts from ``first`` to here.
        persisted: the copy is durable.
    """

    task: str
    first: float
    copied: float | None
    persisted: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One checkpoint.

    Args:
        marks: what the coordinator did, in order.
    """

    checkpoint: int
    spans: tuple[Span, ...]
    marks: tuple[tuple[str, float], ...]


def checkpoints(moments: Iterable[Moment]) -> list[int]:
    """Those that were committed."""
    return [m.checkpoint for m in moments if m.what == "committed"]


def timeline(moments: Iterable[Moment], checkpoint: int) -> Timeline:
    """What the trace holds of one checkpoint; tasks in the order of their first barrier.

    Raises:
        DataError: it holds nothing of it.
    """
    mine = [m for m in moments if m.checkpoint == checkpoint]
    if not mine:
        raise DataError(f"The trace holds nothing of checkpoint {checkpoint}.")
    began = mine[0].seconds
    firsts: dict[str, dict[str, float]] = {}
    for moment in mine:
        if moment.task is not None:
            what = "barrier" if moment.what == "trigger" else moment.what
            firsts.setdefault(moment.task, {}).setdefault(what, moment.seconds - began)
    spans = [
        Span(task, seen.get("barrier", 0.0), seen.get("copy"), seen.get("persisted"))
        for task, seen in firsts.items()
    ]
    marks = tuple((m.what, m.seconds - began) for m in mine if m.task is None)
    return Timeline(checkpoint, tuple(sorted(spans, key=lambda s: s.first)), marks)
