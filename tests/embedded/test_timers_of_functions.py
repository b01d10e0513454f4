"""Timers that a function over rows sets: when they fire, also those that a timer sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.barriers.elements import END_OF_TIME, TaskId
from abs_core.errors import ConfigError
from abs_embedded import keyed
from abs_embedded.context import TaskContext
from abs_embedded.keyed import KeyedContext, Process
from abs_embedded.operators import Row
from abs_embedded.state.codecs import INT64
from abs_embedded.state.contracts import StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore

OUT = pa.schema([("at", pa.int64())])
ONE = pa.record_batch({"key": ["a"], "at": [0]})


@pytest.fixture
def context(tmp_path: Path) -> TaskContext:
    place = StateOwner("job", "timed", 0, GroupRange.of(0, 1, 8), 8)
    store = LocalSnapshotStore(tmp_path)
    return TaskContext(TaskId("timed", 0), 1, place, store, HeapBackend)


def on_row(row: Row, at: KeyedContext) -> Iterable[Row]:
    at.set_timer(row["at"] + 10)
    return ()


def again(stop: Callable[[int, KeyedContext], bool]) -> keyed.TimerFunction:
    """Each timer says when it was due, and sets one 10 later."""

    def on_timer(time: int, at: KeyedContext) -> Iterable[Row]:
        if not stop(time, at):
            at.set_timer(time + 10)
        yield {"at": time}

    return on_timer


def fired(seen: list[pa.RecordBatch]) -> list[int]:
    return [row["at"] for batch in seen for row in batch.to_pylist()]


@pytest.mark.parametrize("watermarks", [(), (20,), (100,), (10, 20, 30, 40)])
def test_what_timers_set_fires_whatever_watermarks_come(
    context: TaskContext, watermarks: tuple[int, ...]
) -> None:
    seen: list[pa.RecordBatch] = []
    process = Process(
        context, ["key"], on_row, OUT, lambda c: {}, again(lambda time, at: time >= 40)
    )
    process.on_batch(0, ONE, seen.append)
    for time in watermarks:
        process.on_watermark(time, seen.append)
        assert fired(seen) == [n for n in (10, 20, 30, 40) if n <= time]
    process.on_end(seen.append)
    assert fired(seen) == [10, 20, 30, 40]


def test_a_timer_that_sets_itself_for_ever_stops_at_the_end_of_time(context: TaskContext) -> None:
    seen: list[pa.RecordBatch] = []
    process = Process(
        context, ["key"], on_row, OUT, lambda c: {}, again(lambda time, at: at.time == END_OF_TIME)
    )
    process.on_batch(0, ONE, seen.append)
    process.on_watermark(25, seen.append)
    process.on_end(seen.append)
    assert fired(seen) == [10, 20, 30]


def test_a_timer_that_does_not_stop_is_named_and_hangs_nothing(
    context: TaskContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "ROUNDS", 100)
    process = Process(context, ["key"], on_row, OUT, lambda c: {}, again(lambda time, at: False))
    process.on_batch(0, ONE, lambda batch: None)
    with pytest.raises(ConfigError, match="END_OF_TIME"):
        process.on_end(lambda batch: None)


def test_a_timer_that_would_call_nothing_is_refused(context: TaskContext) -> None:
    process = Process(context, ["key"], on_row, OUT, lambda c: {})
    with pytest.raises(ConfigError, match="on_timer"):
        process.on_batch(0, ONE, lambda batch: None)


def test_a_state_may_be_called_timers_where_there_are_none(context: TaskContext) -> None:
    def put(row: Row, at: KeyedContext) -> Iterable[Row]:
        at.states["timers"].put(at.key, 5)
        yield {"at": at.states["timers"].get(at.key)}

    seen: list[pa.RecordBatch] = []
    process = Process(context, ["key"], put, OUT, lambda c: {"timers": c.value("timers", INT64)})
    process.on_batch(0, ONE, seen.append)
    assert fired(seen) == [5]
