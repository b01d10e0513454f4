"""The operator of a source: reads splits, keeps their positions in the snapshots.

Any ``abs_core.source.Source`` serves; what a snapshot holds of it are the positions of the splits that
are not finished, which a restart opens again, whatever the parallelism is by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

from abs_core.errors import CorruptionError
from abs_core.model import Committable
from abs_core.runtime.context import TaskState
from abs_core.runtime.elements import LEAST, Batch, Watermark
from abs_core.runtime.graph import EventTime, Graph, Node
from abs_core.runtime.operators import Operator
from abs_core.source import Endless, Limit, Reader, Source, Split
from abs_core.state.operator_state import OperatorList
from abs_core.strictjson import NEWER, of, parse, text, whole

SPLITS = "splits"
"""The operator state of a source: the positions of what is left to read."""

WAIT_SECONDS = 0.02
"""How long a source waits for new data before it looks whether a checkpoint is due."""


@dataclass(slots=True)
class _Reading:
    """
    Args:
        latest: highest event time that was read.
        turn: when it was last asked.
    """

    reader: Reader
    latest: int
    bounded: bool
    turn: int = 0


class SourceOperator(Operator):
    """Reads its share of a source.

    Args:
        positions: of the splits to read, as ``first_entries`` or a snapshot gives them.
    """

    def __init__(
        self, source: Source, positions: OperatorList[str], event_time: EventTime | None = None
    ) -> None:
        self._positions = positions
        self._event_time = event_time
        self._sent = LEAST
        self._turn = 0
        self._readings: list[_Reading] = []
        try:
            for entry in positions.get():
                split, latest = _position(entry)
                known = LEAST if latest is None else latest
                self._readings.append(_Reading(source.open(split), known, split.end is not None))
        except BaseException:
            self.close()
            raise

    @property
    def finished(self) -> bool:  # type: ignore[override]
        return all(reading.reader.finished for reading in self._readings)

    def pre_commit(self, checkpoint: int) -> tuple[Committable, ...]:
        """Note what is left to read: opened again, it yields exactly the rest."""
        left = []
        for reading in self._readings:
            if not reading.reader.finished:
                at = reading.reader.position
                left.append(json.dumps([at.source, at.start, at.end, reading.latest]))
        self._positions.put(left)
        return ()

    def poll(self, emit: Callable[[Any], None]) -> bool:
        """Read one batch, from the splits in turn; of those with an end, from the furthest behind.

        Splits with an end may be stretches of one time, such as a folder's files: read in turn, all but
        the first would keep their windows open until the end.
        """
        live = [reading for reading in self._readings if not reading.reader.finished]
        for reading in sorted(live, key=self._order):
            self._turn += 1
            reading.turn = self._turn
            batch = reading.reader.read(WAIT_SECONDS / len(live))
            if batch is not None:
                emit(batch)
                self._advance(reading, batch, emit)
                return True
        return False

    def _order(self, reading: _Reading) -> tuple[int, int]:
        return reading.latest if reading.bounded else LEAST, reading.turn

    def _advance(self, reading: _Reading, batch: Batch, emit: Callable[[Any], None]) -> None:
        """The watermark is the least of what the unfinished splits have got to, less the lateness."""
        if self._event_time is None:
            return
        highest = self._event_time.highest(batch)
        reading.latest = max(reading.latest, LEAST if highest is None else highest)
        times = [r.latest for r in self._readings if r is reading or not r.reader.finished]
        time = min(times) - self._event_time.lateness
        if time > self._sent:
            self._sent = time
            emit(Watermark(time))

    def close(self) -> None:
        with ExitStack() as opened:
            for reading in self._readings:
                opened.callback(reading.reader.close)


def forget(graph: Graph, parts: Mapping[str, Sequence[TaskState[Any]]]) -> None:
    """Let sources forget what only older snapshots than this one need.

    Args:
        parts: what the oldest snapshot that is kept holds of each operator's tasks.

    Raises:
        AbsError: it was not done; nothing is lost.
    """
    for node in graph.nodes.values():
        source: object = node.source
        if isinstance(source, Endless):
            lists = chain(*(part.lists.lists for part in parts.get(node.id, ())))
            entries = chain(*(items for name, _, items in lists if name == SPLITS))
            left = [_position(entry)[0] for entry in entries]
            if left and (end := source.passed(left)) is not None:
                source.committed(end)


def _position(entry: str | bytes) -> tuple[Split, int | None]:
    """A split as it was left, and the latest event time that was read of it.

    Raises:
        CorruptionError: the entry is no position.
    """
    try:
        name, start, end, latest = of(list, parse(entry))
        split = Split(text(name), text(start), None if end is None else text(end))
        return split, None if latest is None else whole(latest, LEAST)
    except ValueError as error:
        raise CorruptionError(
            f"A source's position in the snapshot cannot be read: {error}.",
            remedy=f"restore the snapshot store from a backup; or {NEWER}.",
        ) from error


def first_entries(node: Node) -> list[str]:
    """The splits of a job that starts for the first time, sorted: the same for the same splits."""
    assert node.source is not None, f"{node.id} is no source"
    start = node.source.initial()
    end = node.source.latest(start, Limit()) if node.bounded else None
    splits = node.source.splits(start, end)
    return sorted(json.dumps([s.source, s.start, s.end, None]) for s in splits)
