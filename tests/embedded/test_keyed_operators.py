"""Operators with keyed state, and the graph around them, without a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.barriers.elements import END, MIN_TIME, TaskId, Watermark
from abs_core.errors import ConfigError, OptionError, SchemaError
from abs_embedded import STRATEGIES, Graph
from abs_embedded.channel import Channel
from abs_embedded.context import TaskContext, TaskState
from abs_embedded.joins import Join
from abs_embedded.keyed import KeyedContext, Process
from abs_embedded.operators import Emit, Operator, Row
from abs_embedded.partition import FORWARD
from abs_embedded.state.codecs import BYTES, INT64, PICKLE
from abs_embedded.state.contracts import StateHandle, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, encode_key
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Mode
from abs_embedded.tables import TableSource
from abs_embedded.task import Input, Output, Task
from abs_embedded.windows import Window

ROWS = TableSource([pa.table({"key": [1], "at": [1]})])


def test_a_restored_window_knows_its_keys_types_before_it_sees_a_batch(tmp_path: Path) -> None:
    store = LocalSnapshotStore(tmp_path)
    place = StateOwner("job", "sums", 0, GroupRange.of(0, 1, 8), 8)

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


WINDOW = (["key"], "ts", 10, 10, "count", None, "n")
BATCH = pa.record_batch({"key": ["a"], "ts": [3]})


def saved(context: TaskContext) -> list[TaskState[StateHandle]]:
    copy = context.copy(0)
    assert copy.keyed is not None
    return [TaskState(copy.keyed.persist(), copy.lists)]


def test_a_window_takes_no_timers_that_a_function_of_its_id_had_set(tmp_path: Path) -> None:
    """They would come out as windows that never were."""
    place = StateOwner("job", "op", 0, GroupRange.of(0, 1, 8), 8)
    who = TaskId("op", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend
    before = TaskContext(*who)
    before.timers().register(encode_key("b"), 5)
    after = TaskContext(*who, saved(before))
    window = Window(after, *WINDOW)
    assert after.unclaimed() == ["timers"]
    after.drop_unclaimed()
    seen: list[pa.RecordBatch] = []
    window.on_batch(0, BATCH, seen.append)
    window.on_end(seen.append)
    assert [row["key"] for batch in seen for row in batch.to_pylist()] == ["a"]


def test_a_window_of_an_earlier_release_keeps_its_timers(tmp_path: Path) -> None:
    place = StateOwner("job", "op", 0, GroupRange.of(0, 1, 8), 8)
    who = TaskId("op", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend
    before = TaskContext(*who)
    before.map("windows", INT64, INT64).put(encode_key("a"), 0, 7)
    before.timers().register(encode_key("a"), 10)
    schema = BATCH.select(["key"]).schema.serialize().to_pybytes()
    before.lists.list("key types", BYTES, Mode.UNION).put([schema])
    seen: list[pa.RecordBatch] = []
    for _ in range(2):
        after = TaskContext(*who, saved(before))
        window = Window(after, *WINDOW)
        assert after.unclaimed() == []
        before = after
    window.on_end(seen.append)
    assert [row["n"] for batch in seen for row in batch.to_pylist()] == [7]


def test_a_window_takes_a_key_that_is_dictionary_encoded(tmp_path: Path) -> None:
    place = StateOwner("job", "sums", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("sums", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    window = Window(context, ["name"], "at", 10, 10, "count", None, "n")
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    seen: list[pa.RecordBatch] = []
    window.on_batch(0, pa.record_batch({"name": names, "at": [1, 2, 3]}), seen.append)
    window.on_end(seen.append)
    assert sorted((row["name"], row["n"]) for row in seen[0].to_pylist()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(("fold", "column"), [("sum", None), ("median", "at")])
def test_a_fold_that_cannot_be_is_refused(tmp_path: Path, fold: str, column: str | None) -> None:
    place = StateOwner("job", "sums", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("sums", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    with pytest.raises(OptionError, match=fold):
        Window(context, ["key"], "at", 10, 10, fold, column, "out")


def test_a_stream_of_another_graph_is_refused() -> None:
    stranger = Graph("other").source("elsewhere", ROWS)
    with pytest.raises(OptionError, match="elsewhere"):
        Graph("one").source("rows", ROWS).union("both", stranger)


def test_an_idle_input_holds_back_nobody_until_its_next_watermark(tmp_path: Path) -> None:
    place = StateOwner("job", "clock", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("clock", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    left, right, out = Channel(8), Channel(8), Channel(8)
    clock, inputs = Clock(), [Input(left, 0), Input(right, 0)]
    outputs = [Output(FORWARD, [out])]
    task = Task(
        context.task, clock, context, inputs, outputs, STRATEGIES["aligned"], lambda c, now: None
    )
    for channel, element, time in (
        (left, Watermark(5), None),
        (right, Watermark(MIN_TIME, idle=True), Watermark(5)),
        (right, Watermark(MIN_TIME), None),
        (left, Watermark(9), None),
        (left, Watermark(9, idle=True), None),
        (right, Watermark(6, idle=True), Watermark(9, idle=True)),
        (right, Watermark(7), Watermark(9)),
    ):
        channel.put(element)
        assert task.step(lambda ready: ready[0])
        assert [*out.queue] == ([] if time is None else [time])
        out.queue.clear()
    assert clock.times == [5, 9]


class Clock(Operator):
    """Notes what event time has got to."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def on_watermark(self, time: int, emit: Emit) -> None:
        self.times.append(time)


def test_event_time_is_the_least_of_the_inputs_that_have_not_ended(tmp_path: Path) -> None:
    place = StateOwner("job", "clock", 0, GroupRange.of(0, 1, 8), 8)
    context = TaskContext(TaskId("clock", 0), 1, place, LocalSnapshotStore(tmp_path), HeapBackend)
    left, right = Channel(8), Channel(8)
    clock, inputs = Clock(), [Input(left, 0), Input(right, 0)]
    task = Task(
        context.task, clock, context, inputs, [], STRATEGIES["aligned"], lambda copy, now: None
    )

    def after(channel: Channel, element: object) -> list[int]:
        channel.put(element)
        assert task.step(lambda ready: ready[0])
        return clock.times

    assert after(left, Watermark(5)) == []
    assert after(right, Watermark(3)) == [3]
    assert after(right, END) == [3, 5]
    assert after(left, Watermark(7)) == [3, 5, 7]
    assert after(left, END) == [3, 5, 7]


def new_context(tmp_path: Path, *parts: TaskState[StateHandle]) -> TaskContext:
    place = StateOwner("job", "op", 0, GroupRange.of(0, 1, 8), 8)
    store = LocalSnapshotStore(tmp_path)
    return TaskContext(TaskId("op", 0), 1, place, store, HeapBackend, parts)


def rows_of(seen: list[pa.RecordBatch]) -> list[Row]:
    return [row for batch in seen for row in batch.to_pylist()]


SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])
ONE_ROW = pa.record_batch({"key": [1], "n": [0]})
THREE = [{"key": 1, "n": n} for n in range(3)]


def counted(row: Row) -> Iterator[Row]:
    for n in range(3):
        row["n"] = n
        yield row


def test_a_row_that_a_function_changes_after_it_was_yielded_stays_what_it_was(
    tmp_path: Path,
) -> None:
    def process(row: Row, at: KeyedContext) -> Iterator[Row]:
        at.set_timer(5)
        return counted(row)

    def on_timer(time: int, at: KeyedContext) -> Iterator[Row]:
        return counted({"key": 1})

    context = new_context(tmp_path)
    processing = Process(context, ["key"], process, SCHEMA, lambda _: {}, on_timer)
    seen: list[pa.RecordBatch] = []
    processing.on_batch(0, ONE_ROW, seen.append)
    assert rows_of(seen) == THREE
    processing.on_watermark(5, seen.append)
    assert rows_of(seen) == THREE + THREE


def test_a_row_that_flat_map_rows_changes_after_it_was_yielded_stays_what_it_was() -> None:
    graph = Graph("rows")
    graph.source("rows", ROWS).flat_map_rows("three", counted, SCHEMA)
    make = graph.nodes["three"].make
    assert make is not None
    seen: list[pa.RecordBatch] = []
    make(None).on_batch(0, ONE_ROW, seen.append)
    assert rows_of(seen) == THREE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_merge_may_change_the_rows_that_it_is_given(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    def merge(left: Row, right: Row) -> Row:
        left.update(right)
        return left

    sides = pa.record_batch({"key": [1]}), pa.record_batch({"key": [1, 1, 1], "n": [0, 1, 2]})
    join = Join(new_context(tmp_path), (["key"], ["key"]), merge, SCHEMA)
    seen: list[pa.RecordBatch] = []
    for port in order:
        join.on_batch(port, sides[port], seen.append)
    assert rows_of(seen) == THREE


def joined(tmp_path: Path, left: pa.Array, right: pa.Array) -> int:
    """How many pairs there are."""
    join = Join(
        new_context(tmp_path),
        (["key"], ["key"]),
        lambda left, right: {"key": 1, "n": 1},
        SCHEMA,
        PICKLE,
    )
    seen: list[pa.RecordBatch] = []
    for port, keys in enumerate((left, right)):
        join.on_batch(port, pa.record_batch({"key": keys}), seen.append)
    return len(rows_of(seen))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([7], pa.int32()), pa.array([7], pa.uint64())),
        (pa.array(["a"]), pa.array(["a"], pa.large_string())),
        (pa.array(["a"]).dictionary_encode(), pa.array([b"a"])),
        (pa.array([7], pa.timestamp("us", "UTC")), pa.array([7], pa.timestamp("us", "Asia/Tokyo"))),
        (pa.array([7], pa.date32()), pa.array([7], pa.date32())),
    ],
)
def test_equal_keys_of_a_join_meet_whatever_their_width_and_encoding(
    tmp_path: Path, left: pa.Array, right: pa.Array
) -> None:
    assert joined(tmp_path, left, right) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([7000], pa.timestamp("us")), pa.array([7], pa.timestamp("ms"))),
        (pa.array([7], pa.date32()), pa.array([7], pa.timestamp("s"))),
        (pa.array([7], pa.time32("s")), pa.array([7000], pa.time32("ms"))),
        # These eight letters have the bytes of that number.
        (pa.array([int.from_bytes(b"abcdefgh", "little")]), pa.array(["abcdefgh"])),
    ],
)
def test_keys_of_a_join_that_would_not_meet_by_their_value_are_an_error(
    tmp_path: Path, left: pa.Array, right: pa.Array
) -> None:
    with pytest.raises(SchemaError, match="cast"):
        joined(tmp_path, left, right)


def test_a_join_by_more_columns_on_one_side_is_refused() -> None:
    graph = Graph("one")
    left, right = graph.source("left", ROWS), graph.source("right", ROWS)
    with pytest.raises(OptionError, match="by key, at"):
        left.key_by("key").join("both", right.key_by("key", "at"), lambda a, b: a, SCHEMA)


def test_open_windows_of_another_length_or_fold_are_refused(tmp_path: Path) -> None:
    """A timer knows the end of a window only: another length would look for it elsewhere."""
    before = new_context(tmp_path)
    Window(before, *WINDOW).on_batch(0, BATCH, lambda _: None)
    parts = saved(before)
    for size, fold in ((20, "count"), (10, "sum")):
        with pytest.raises(ConfigError, match="count over 10"):
            Window(new_context(tmp_path, *parts), ["key"], "ts", size, 10, fold, "ts", "n")
    seen: list[pa.RecordBatch] = []
    Window(new_context(tmp_path, *parts), *WINDOW).on_end(seen.append)
    assert rows_of(seen) == [{"key": "a", "window_start": 0, "window_end": 10, "n": 1}]


def test_a_window_may_change_its_length_while_none_is_open(tmp_path: Path) -> None:
    before = new_context(tmp_path)
    window = Window(before, *WINDOW)
    window.on_batch(0, BATCH, lambda _: None)
    window.on_end(lambda _: None)
    after = new_context(tmp_path, *saved(before))
    window = Window(after, ["key"], "ts", 20, 20, "count", None, "n")
    seen: list[pa.RecordBatch] = []
    window.on_batch(0, BATCH, seen.append)
    again = new_context(tmp_path, *saved(after))
    Window(again, ["key"], "ts", 20, 20, "count", None, "n").on_end(seen.append)
    assert rows_of(seen) == [{"key": "a", "window_start": 0, "window_end": 20, "n": 1}]
