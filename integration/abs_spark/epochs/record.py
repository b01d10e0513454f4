"""The last epochs of a job: when, how many rows, and what each target showed at the end of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from abs_core.model import Course, JobState, NamedSink, Recent, Shown
from abs_core.ownwrite import counted
from abs_sinks.asof import NOW, AsOf
from abs_sinks.door import format_of


@dataclass(frozen=True, slots=True)
class At:
    """A sink's target at the end of an epoch.

    Args:
        rows: that the epoch added, without dead letters; None: unknown, or it added none.
        dead: dead letters of the epoch.
        of: the last epoch up to this one that added rows, and whose mark this is.
        why: why there is no mark, as a sentence.
    """

    sink: NamedSink
    rows: int | None
    dead: int
    of: int | None = None
    mark: str | None = None
    why: str = ""

    def as_of(self, options: Any = None) -> AsOf:
        """What a reader needs; with the target's options also how Spark reads it.

        Raises:
            ConfigError: the package of the sink's system is broken.
            CorruptionError: the register's mark cannot be read.
        """
        kind = format_of(self.sink.target.partition(":")[0])
        if kind is None or not kind.past:
            return NOW
        return AsOf({}, "-", self.why) if self.mark is None else kind.as_of(self.mark, options)

    def document(self) -> dict[str, Any]:
        position = self.as_of()
        names = {"sink": self.sink.name, "target": self.sink.target}
        counts = {"rows": self.rows, "dead": self.dead}
        return {
            **names,
            **counts,
            "of": self.of,
            "as_of": position.told,
            "why": position.unreadable,
        }


@dataclass(frozen=True, slots=True)
class Epoch:
    """One of the last epochs.

    Args:
        finished: in every target; else it is decided, and is or will be there.
        rows: over all sinks, dead letters among them; None: nobody counted them.
        targets: empty while it is not finished.
    """

    number: int
    finished: bool
    course: Course
    rows: int | None
    dead: int
    targets: tuple[At, ...]

    def document(self) -> dict[str, Any]:
        times = {"decided": self.course.decided, "finished": self.course.finished}
        return {
            "epoch": self.number,
            "is_finished": self.finished,
            **{name: iso(at) for name, at in times.items()},
            "rows": self.rows,
            "dead": self.dead,
            "targets": [target.document() for target in self.targets],
        }


def epochs_of(state: JobState) -> list[Epoch]:
    """The epochs that the register records, oldest first."""
    return [_epoch(state, recent) for recent in state.recent]


def iso(at: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def _epoch(state: JobState, recent: Recent) -> Epoch:
    finished = state.frontier is not None and recent.epoch <= state.frontier
    dead = {count.sink: count.dead for count in recent.dead}
    sinks = [
        sink
        for sink in state.sinks or (NamedSink(0, "", state.target, 0),)
        if sink.since <= recent.epoch and (sink.until is None or recent.epoch <= sink.until)
    ]
    targets = tuple(_at(state, recent, sink, dead) for sink in sinks) if finished else ()
    course = recent.course or Course()
    return Epoch(
        recent.epoch, finished, course, counted(state, recent), sum(dead.values()), targets
    )


def _at(state: JobState, recent: Recent, sink: NamedSink, dead: Mapping[int, int]) -> At:
    own = _shown(recent, sink)
    lost = dead.get(sink.number, 0)
    rows = None if own is None or counted(state, recent) is None else own.rows - lost
    for entry in reversed(state.recent):
        if entry.epoch > recent.epoch:
            continue
        if (shown := _shown(entry, sink)) is not None:
            return At(sink, rows, lost, entry.epoch, shown.full or shown.mark)
        if entry.course is None or sink.number in entry.course.sinks:
            why = f"What it showed at the end of epoch {entry.epoch} is not recorded."
            return At(sink, rows, lost, why=why)
    for entry in state.older:
        if (shown := _shown(entry, sink)) is not None:
            return At(sink, rows, lost, entry.epoch, shown.full or shown.mark)
    return At(sink, rows, lost, why="No epoch up to this one is known to have added rows to it.")


def _shown(recent: Recent, sink: NamedSink) -> Shown | None:
    return next((shown for shown in recent.shown if shown.sink == sink.number), None)
