"""The operator of a source: reads splits, and keeps their positions in the snapshots.

Takes any ``abs_core.source.Source``. A snapshot holds the positions of the unfinished splits, which
a restart opens again at any parallelism.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

from abs_core.barriers.elements import MIN_TIME, Batch, Watermark
from abs_core.errors import ConfigError, CorruptionError
from abs_core.model import Committable
from abs_core.source import Limit, Reader, Source, Split
from abs_core.strictjson import NEWER, of, parse, text, whole
from abs_embedded.channel import UNBOUNDED
from abs_embedded.context import TaskState
from abs_embedded.graph import EventTime, Graph, Node
from abs_embedded.operators import Operator
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorList, OperatorState

SPLITS = "splits"
"""The operator state of a source: the positions of what is left to read."""

_log = logging.getLogger("abs_embedded")

WAIT_SECONDS = 0.02
"""How long a source waits for new data before it looks whether a checkpoint is due."""


@dataclass(slots=True)
class _Reading:
    """Args:
    latest: highest event time that was read.
    skip: number of next rows that were emitted before the restart.
    rest: of the last batch.
    begin: where that batch begins.
    sent: number of its emitted rows.
    turn: when it was last polled.
    quiet: since when it has had no data.
    idle: it does not hold back event time.
    """

    reader: Reader
    latest: int
    bounded: bool
    skip: int = 0
    rest: Batch = None
    begin: Split | None = None
    sent: int = 0
    turn: int = 0
    quiet: float | None = None
    idle: bool = False

    @property
    def finished(self) -> bool:
        return self.rest is None and self.reader.finished

    @property
    def position(self) -> tuple[Split, int]:
        """A split, and the number of its first rows that were emitted."""
        if self.rest is None or self.begin is None:
            return self.reader.position, self.skip
        return self.begin, self.sent

    def read(self, timeout: float, most: int) -> Batch | None:
        """The next rows, at most ``most``."""
        while self.rest is None:
            self.begin, self.sent = self.reader.position, 0
            batch = self.reader.read(timeout)
            if batch is None:
                return None
            if len(batch) > self.skip or not self.skip:
                self.rest, self.sent = batch[self.skip :], self.skip
            self.skip = max(0, self.skip - len(batch))
        part = self.rest[:most]
        self.rest = self.rest[most:] if len(self.rest) > most else None
        self.sent += len(part)
        return part


class SourceOperator(Operator):
    """Reads its share of a source.

    Args:
        positions: of the splits to read, from ``first_entries`` or a snapshot.
        rows: larger batches are emitted in parts of this size, and a snapshot may come between;
            readers that keep to ``at_most`` have none.
    """

    def __init__(
        self,
        source: Source,
        positions: OperatorList[str],
        event_time: EventTime | None = None,
        rows: int = UNBOUNDED,
    ) -> None:
        self._positions = positions
        self._event_time = event_time
        self._rows = rows
        self._sent = MIN_TIME
        self._idle = False
        self._turn = 0
        self._readings: list[_Reading] = []
        try:
            for entry in positions.get():
                split, latest, skip = _position(entry)
                newest = MIN_TIME if latest is None else latest
                bounded = split.end is not None
                reader = source.open(split)
                self._readings.append(_Reading(reader, newest, bounded, skip))
                reader.at_most(rows)
        except BaseException:
            self.close()
            raise

    @property
    def finished(self) -> bool:  # type: ignore[override]
        return all(reading.finished for reading in self._readings)

    def pre_commit(self, checkpoint: int) -> tuple[Committable, ...]:
        """Note what is left to read: opened again, it yields exactly the rest.

        Raises AbsError, see ``Reader.check``.
        """
        left = []
        for reading in self._readings:
            reading.reader.check()
            if not reading.finished:
                at, skip = reading.position
                entry = [at.source, at.start, at.end, reading.latest]
                left.append(json.dumps([*entry, skip] if skip else entry))
        self._positions.put(left)
        return ()

    def poll(self, emit: Callable[[Any], None]) -> bool:
        """Read one batch, from the splits in turn; of those with an end, from the furthest behind.

        Splits with an end may be stretches of one time, such as a folder's files: read in turn, all
        but the first would keep their windows open until the end.
        """
        live = [reading for reading in self._readings if not reading.finished]
        for reading in sorted(live, key=self._order):
            self._turn += 1
            reading.turn = self._turn
            batch = reading.read(WAIT_SECONDS / len(live), self._rows)
            if batch is not None:
                self._back(reading, emit)
                emit(batch)
                self._read(reading, batch)
                self._advance(emit, reading)
                return True
            self._nothing(reading, emit)
        return False

    def _order(self, reading: _Reading) -> tuple[bool, int, int]:
        behind = reading.latest if reading.bounded else MIN_TIME
        return reading.rest is None, behind, reading.turn

    def _read(self, reading: _Reading, batch: Batch) -> None:
        if self._event_time is not None:
            highest = self._event_time.highest(batch)
            reading.latest = max(reading.latest, MIN_TIME if highest is None else highest)

    def _nothing(self, reading: _Reading, emit: Callable[[Any], None]) -> None:
        """A split has no data now; after some time it becomes idle."""
        timed = self._event_time
        if timed is None or timed.idle_after is None or reading.bounded or reading.idle:
            return
        now = timed.clock()
        reading.quiet = now if reading.quiet is None else reading.quiet
        if now - reading.quiet >= timed.idle_after:
            reading.idle = True
            self._advance(emit)

    def _back(self, reading: _Reading, emit: Callable[[Any], None]) -> None:
        """A split has data (again): event time waits for it from before that data on."""
        reading.quiet, reading.idle = None, False
        if self._idle:
            self._idle = False
            emit(Watermark(self._sent))

    def _advance(self, emit: Callable[[Any], None], last: _Reading | None = None) -> None:
        """Emit the watermark: the least time of the splits, less the lateness.

        Neither finished splits (except the ``last`` one read) nor idle ones hold it back. If all
        are idle, it is the furthest one's.
        """
        if self._event_time is None:
            return
        left = [r for r in self._readings if r is last or not r.finished]
        active = [r.latest for r in left if not r.idle]
        latest = min(active) if active else max(r.latest for r in left)
        time = max(self._sent, latest - self._event_time.lateness)
        if time > self._sent or (not active) != self._idle:
            self._sent, self._idle = time, not active
            emit(Watermark(time, self._idle))

    def close(self) -> None:
        with ExitStack() as opened:
            for reading in self._readings:
                opened.callback(reading.reader.close)


def forget(graph: Graph, parts: Mapping[str, Sequence[TaskState[Any]]]) -> None:
    """Let sources forget what only older snapshots than this one need.

    ``parts`` are each operator's in the oldest kept snapshot. Raises AbsError without a loss.
    """
    for node in graph.nodes.values():
        if node.source is not None:
            lists = chain(*(part.lists.lists for part in parts.get(node.id, ())))
            entries = chain(*(items for name, _, items in lists if name == SPLITS))
            left = [_position(entry)[0] for entry in entries]
            if left and (end := node.source.passed(left)) is not None:
                node.source.committed(end)


def begin(node: Node, tasks: Sequence[OperatorState]) -> bool:
    """Give each task of a source its start positions, as its list ``SPLITS``.

    Args:
        tasks: the state of each, in order; restored or new.

    Returns:
        whether this is the first begin, at a position that a later one may not find again (the end
        of a topic): nothing may be read before a snapshot holds it.

    Raises:
        ConfigError: it was read without an end, and is to have one now.
        AbsError: the source cannot determine its splits.
    """
    # What is restored may be of another operator that had this id.
    if not all(SPLITS in task.unclaimed() for task in tasks):
        # Asked once for all tasks: asked again, it may know of more.
        entries = first_entries(node)
        for number, task in enumerate(tasks):
            task.list(SPLITS, TEXT).put(entries[number :: len(tasks)])
        return not node.bounded
    lists = [task.list(SPLITS, TEXT) for task in tasks]
    left = [_position(entry)[0] for positions in lists for entry in positions.get()]
    if node.bounded and any(split.end is None for split in left):
        raise ConfigError(
            f"The source {node.id} was started without an end (`bounded=False`); it cannot be "
            "given one now.",
            remedy="keep `bounded=False`; or give it another id and a start, and allow "
            "`drop_state` for the position of the old one.",
        )
    if not node.bounded:
        _resume(node, lists, left)
    return False


def _resume(node: Node, lists: Sequence[OperatorList[str]], left: Sequence[Split]) -> None:
    """Remove splits that are not to be read any more, and distribute new ones."""
    assert node.source is not None, f"{node.id} is no source"
    now = node.source.resumed(left)
    for positions in lists:
        positions.put(entry for entry in positions.get() if _position(entry)[0] in now)
    new = sorted(json.dumps([s.source, s.start, s.end, None]) for s in now if s not in left)
    for entry in new:
        min(lists, key=lambda positions: len(positions.get())).add(entry)
    if new:
        _log.info("source %s reads new splits: %s", node.id, ", ".join(new))


def _position(entry: str | bytes) -> tuple[Split, int | None, int]:
    """A split, the latest event time that was read of it, and the number of rows to skip.

    Raises CorruptionError if the entry is no position.
    """
    try:
        name, start, end, latest, *skip = of(list, parse(entry))
        if len(skip) > 1:
            raise ValueError(f"{4 + len(skip)} parts")
        split = Split(text(name), text(start), None if end is None else text(end))
        rows = whole(skip[0]) if skip else 0  # earlier releases noted none
        return split, None if latest is None else whole(latest, MIN_TIME), rows
    except ValueError as error:
        raise CorruptionError(
            f"A source's position in the snapshot cannot be read: {error}.",
            remedy=f"restore the snapshot store from a backup; or {NEWER}.",
        ) from error


def first_entries(node: Node) -> list[str]:
    """The splits at the job's first start, sorted: the same for the same splits."""
    assert node.source is not None, f"{node.id} is no source"
    start = node.source.initial()
    end = node.source.latest(start, Limit()) if node.bounded else None
    splits = node.source.splits(start, end)
    return sorted(json.dumps([s.source, s.start, s.end, None]) for s in splits)
