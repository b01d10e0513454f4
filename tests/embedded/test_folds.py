"""Folds over batches: what nulls and numbers too large for 64 bits do to them, and to event time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abs_core.barriers.elements import TaskId
from abs_core.errors import RowError, SchemaError
from abs_embedded import EventTime
from abs_embedded.context import TaskContext, TaskState
from abs_embedded.keyed import Reducing
from abs_embedded.state.codecs import FLOAT64, INT64, TEXT
from abs_embedded.state.contracts import StateHandle, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.windows import Window


@pytest.fixture
def store(tmp_path: Path) -> LocalSnapshotStore:
    return LocalSnapshotStore(tmp_path)


def context(
    store: LocalSnapshotStore,
    parts: Sequence[TaskState[StateHandle]] = (),
    subtask: int = 0,
    parallelism: int = 1,
) -> TaskContext:
    place = StateOwner("job", "fold", subtask, GroupRange.of(subtask, parallelism, 8), 8)
    task = TaskId("fold", subtask)
    return TaskContext(task, parallelism, place, store, HeapBackend, parts)


def column(*values: float | None, kind: pa.DataType | None = None) -> pa.RecordBatch:
    """Values of one key, at one time."""
    size = len(values)
    return pa.record_batch(
        {"key": ["a"] * size, "at": [3] * size, "n": pa.array(values, kind or pa.int64())}
    )


VALUES = ((None,), (5, None), (None,), (2,))
BATCHES = tuple(column(*values) for values in VALUES)


@pytest.mark.parametrize(("fold", "due"), [("sum", 7), ("min", 2), ("max", 5), ("count", 2)])
@pytest.mark.parametrize(("codec", "kind"), [(INT64, pa.int64()), (FLOAT64, pa.float64())])
def test_nulls_change_nothing_in_a_reduction(
    store: LocalSnapshotStore, fold: str, due: int, codec: Any, kind: pa.DataType
) -> None:
    seen: list[pa.RecordBatch] = []
    reducing = Reducing(context(store), ["key"], fold, "n", "out", codec)
    for values in VALUES:
        reducing.on_batch(0, column(*values, kind=kind), seen.append)
    assert seen[-1]["out"].to_pylist() == [due]
    assert seen[0]["out"].to_pylist() == [0 if fold == "count" else None], "nothing but nulls yet"


@pytest.mark.parametrize(("fold", "due"), [("sum", 7), ("min", 2), ("max", 5), ("count", 2)])
def test_nulls_change_nothing_in_a_window(store: LocalSnapshotStore, fold: str, due: int) -> None:
    seen: list[pa.RecordBatch] = []
    window = Window(context(store), ["key"], "at", 10, 10, fold, "n", "out")
    for batch in BATCHES:
        window.on_batch(0, batch, seen.append)
    window.on_end(seen.append)
    assert [batch["out"].to_pylist() for batch in seen] == [[due]]


def test_a_window_of_nothing_but_nulls_has_the_types_of_any_other(
    store: LocalSnapshotStore,
) -> None:
    seen: list[pa.RecordBatch] = []
    window = Window(context(store), ["key"], "at", 10, 10, "sum", "n", "out")
    window.on_batch(0, column(None), seen.append)
    window.on_end(seen.append)
    assert seen[0]["out"].to_pylist() == [None]
    assert seen[0]["out"].type == pa.int64()


def test_a_sum_of_two_batches_beyond_64_bits_is_an_error(store: LocalSnapshotStore) -> None:
    reducing = Reducing(context(store), ["key"], "sum", "n", "out")
    reducing.on_batch(0, column(2**62), lambda batch: None)
    with pytest.raises(RowError, match="64 bits"):
        reducing.on_batch(0, column(2**62), lambda batch: None)


@pytest.mark.parametrize("number", [2**62, -(2**62) - 1])
def test_a_sum_within_a_batch_beyond_64_bits_is_an_error(
    store: LocalSnapshotStore, number: int
) -> None:
    reducing = Reducing(context(store), ["key"], "sum", "n", "out")
    with pytest.raises(RowError, match="64 bits"):
        reducing.on_batch(0, column(number, number), lambda batch: None)


@pytest.mark.parametrize(
    ("numbers", "due"),
    [
        ([2**62, 2**62, -(2**62)], 2**62),
        ([2**62, 2**62 - 1], 2**63 - 1),
        ([-(2**62), -(2**62)], -(2**63)),
        ([2**62, None, 1], 2**62 + 1),
    ],
)
def test_a_sum_of_large_numbers_is_exact(
    store: LocalSnapshotStore, numbers: list[int], due: int
) -> None:
    seen: list[pa.RecordBatch] = []
    reducing = Reducing(context(store), ["key"], "sum", "n", "out")
    reducing.on_batch(0, column(*numbers), seen.append)
    assert seen[0]["out"].to_pylist() == [due]


def test_a_column_that_is_key_and_summed_stays_what_it_is(store: LocalSnapshotStore) -> None:
    seen: list[pa.RecordBatch] = []
    reducing = Reducing(context(store), ["n"], "sum", "n", "out")
    reducing.on_batch(0, column(2**62, 2**61, 2**61), seen.append)
    assert seen[0].schema.field("n").type == pa.int64()
    assert sorted(seen[0]["out"].to_pylist()) == [2**62, 2**62]


@pytest.mark.parametrize("fold", ["sum", "min"])
def test_a_type_that_the_state_cannot_keep_is_an_error_whatever_its_first_values_are(
    store: LocalSnapshotStore, fold: str
) -> None:
    reducing = Reducing(context(store), ["key"], fold, "n", "out")
    with pytest.raises(SchemaError, match=r"n by key.*int64.*double.*FLOAT64"):
        reducing.on_batch(0, column(1.0, kind=pa.float64()), lambda batch: None)


def test_a_sum_that_cannot_be_kept_names_the_users_column(store: LocalSnapshotStore) -> None:
    reducing = Reducing(context(store), ["key"], "sum", "n", "out", TEXT)
    with pytest.raises(SchemaError, match=r"No sum of n by key"):
        reducing.on_batch(0, column(2**62, 2**62), lambda out: None)


def test_text_is_not_kept_as_a_number(store: LocalSnapshotStore) -> None:
    reducing = Reducing(context(store), ["key"], "min", "at", "out")
    batch = column(1, 1).set_column(1, "at", pa.array(["9", "10"]))
    with pytest.raises(SchemaError, match=r"min of at by key.*int64"):
        reducing.on_batch(0, batch, lambda out: None)


def test_what_a_window_knows_of_its_keys_does_not_grow_with_restarts(
    store: LocalSnapshotStore,
) -> None:
    parts: Sequence[TaskState[StateHandle]] = ()
    for checkpoint in range(4):
        tasks = [context(store, parts, subtask, 3) for subtask in range(3)]
        copies = []
        for task in tasks:
            window = Window(task, ["key"], "at", 10, 10, "count", None, "out")
            window.on_batch(0, column(1), lambda batch: None)
            copies.append(task.copy(checkpoint))
        parts = [TaskState(None, copy.lists) for copy in copies]
    assert {len(items) for part in parts for _, _, items in part.lists.lists} == {1}


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.date32()])
def test_event_time_that_is_no_integer_or_timestamp_is_an_error(kind: pa.DataType) -> None:
    batch = pa.record_batch({"at": pa.array([1], pa.int32()).cast(kind)})
    with pytest.raises(SchemaError, match=r"at.*integer or timestamp"):
        EventTime("at").highest(batch)


def test_a_row_without_event_time_is_an_error_and_not_dropped(store: LocalSnapshotStore) -> None:
    batch = pa.record_batch({"key": ["a", "a"], "at": pa.array([1, None], pa.int64())})
    window = Window(context(store), ["key"], "at", 10, 10, "count", None, "out")
    with pytest.raises(RowError, match="at"):
        window.on_batch(0, batch, lambda batch: None)
    with pytest.raises(RowError, match="at"):
        EventTime("at").highest(batch)


def test_a_batch_without_the_column_of_event_time_is_an_error() -> None:
    with pytest.raises(SchemaError, match=r"'at'.*\['key'\]"):
        EventTime("at").highest(pa.record_batch({"key": ["a"]}))
