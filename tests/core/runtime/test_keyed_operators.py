"""Operators with keyed state, and the graph around them, without a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.errors import OptionError
from abs_core.runtime import WAYS, Graph
from abs_core.runtime.channel import Channel
from abs_core.runtime.context import TaskContext, TaskState
from abs_core.runtime.elements import END, TaskId, Watermark
from abs_core.runtime.operators import Emit, Operator
from abs_core.runtime.tables import TableSource
from abs_core.runtime.task import Input, Task
from abs_core.runtime.windows import Window
from abs_core.state.contracts import Place, StateHandle
from abs_core.state.heap import HeapBackend
from abs_core.state.keygroups import GroupRange
from abs_core.state.local_store import LocalSnapshotStore

ROWS = TableSource([pa.table({"key": [1], "at": [1]})])


def test_a_restored_window_knows_its_keys_types_before_it_sees_a_batch(tmp_path: Path) -> None:
    store = LocalSnapshotStore(tmp_path)
    place = Place("job", "sums", 0, GroupRange.of(0, 1, 8), 8)

    def context(*parts: TaskState[StateHandle]) -> TaskContext:
        return TaskContext(TaskId("sums", 0), 1, place, store, HeapBackend, parts)

    def window(at: TaskContext) -> Window:
        return Window(at, ["day", "name"], "at", 10, 10, "sum", "n", "total")

    keys = {"day": pa.array([5], pa.timestamp("us", "UTC")), "name": pa.array(["a"])}
    seen: list[pa.RecordBatch] = []
    before = context()
    window(before).on_batch(0, pa.record_batch({**keys, "at": [3], "n": [4]}), seen.append)
    copy = before.copy(1)
    assert copy.keyed is not None
    window(context(TaskState(copy.keyed.persist(), copy.lists))).on_end(seen.append)
    ends = {"window_start": [0], "window_end": [10], "total": [4]}
    assert [*map(pa.Table.from_batches, ([one] for one in seen))] == [pa.table({**keys, **ends})]


def test_a_window_takes_a_key_that_is_dictionary_encoded(tmp_path: Path) -> None:
    place = Place("job", "sums", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("sums", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    window = Window(context, ["name"], "at", 10, 10, "count", None, "n")
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    seen: list[pa.RecordBatch] = []
    window.on_batch(0, pa.record_batch({"name": names, "at": [1, 2, 3]}), seen.append)
    window.on_end(seen.append)
    assert sorted((row["name"], row["n"]) for row in seen[0].to_pylist()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(("fold", "column"), [("sum", None), ("median", "at")])
def test_a_fold_that_cannot_be_is_refused(tmp_path: Path, fold: str, column: str | None) -> None:
    place = Place("job", "sums", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("sums", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    with pytest.raises(OptionError, match=fold):
        Window(context, ["key"], "at", 10, 10, fold, column, "out")


def test_a_stream_of_another_graph_is_refused() -> None:
    stranger = Graph("other").source("elsewhere", ROWS)
    with pytest.raises(OptionError, match="elsewhere"):
        Graph("one").source("rows", ROWS).union("both", stranger)


class Clock(Operator):
    """Notes what event time has got to."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def on_watermark(self, time: int, emit: Emit) -> None:
        self.times.append(time)


def test_event_time_is_the_least_of_the_inputs_that_have_not_ended(tmp_path: Path) -> None:
    place = Place("job", "clock", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("clock", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    left, right = Channel(8), Channel(8)
    clock, inputs = Clock(), [Input(left, 0), Input(right, 0)]
    task = Task(context.task, clock, context, inputs, [], WAYS["aligned"], lambda copy, now: None)

    def after(channel: Channel, element: object) -> list[int]:
        channel.put(element)
        assert task.step(lambda ready: ready[0])
        return clock.times

    assert after(left, Watermark(5)) == []
    assert after(right, Watermark(3)) == [3]
    assert after(right, END) == [3, 5]
    assert after(left, Watermark(7)) == [3, 5, 7]
    assert after(left, END) == [3, 5, 7]
