"""Typed states, timers and operator state, on the heap; what they keep, and what they refuse."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import AbsError, ConfigError, CorruptionError, RowError
from abs_embedded.state.codecs import BYTES, FLOAT64, INT64, JSON, PICKLE, TEXT
from abs_embedded.state.contracts import StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, encode_key, encode_keys
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Contents, Mode, OperatorState, redistribute
from abs_embedded.state.states import ListState, MapState, ReducingState, ValueState
from abs_embedded.state.timers import Timers

PLACE = StateOwner("job", "op", 0, GroupRange(0, 128), 128)
A, B, C = encode_key("a"), encode_key("b"), encode_key("c")


@pytest.fixture
def backend(new_store: Callable[[], LocalSnapshotStore]) -> HeapBackend:
    return HeapBackend(new_store(), PLACE)


def restored(backend: HeapBackend) -> HeapBackend:
    handle = backend.snapshot(1).persist()
    other = HeapBackend(backend.store, PLACE)
    other.restore([handle])
    return other


def test_one_key_and_a_batch_of_keys_see_the_same_values(backend: HeapBackend) -> None:
    state = ValueState(backend, "counts", INT64)
    keys = encode_keys([pa.array(["a", "b", "c"])])
    state.put_array(keys, pa.array([1, None, -3], pa.int32()))
    assert [state.get(key) for key in keys] == [1, None, -3]
    assert state.get_many(keys) == [1, None, -3]
    assert state.get_array([A, C, A]).to_pylist() == [1, -3, 1]
    state.put(B, 2)
    state.delete(A)
    assert state.get_array(keys) == pa.array([None, 2, -3])
    state.put_many([A, B], [7, None])
    assert state.get_array(keys) == pa.array([7, None, -3])


def test_a_list_keeps_its_order_and_is_emptied_as_a_whole(backend: HeapBackend) -> None:
    state = ListState(backend, "events", JSON)
    state.append_many([A, B, A, A], [1, "x", {"k": [2]}, None])
    state.append(B, 2.5)
    assert state.get(A) == [1, {"k": [2]}, None]
    again = ListState(restored(backend), "events", JSON)
    again.append(A, "after")
    assert again.get(A) == [1, {"k": [2]}, None, "after"]
    assert again.get(B) == ["x", 2.5]
    again.put(A, ["only"])
    again.clear(B)
    assert (again.get(A), again.get(B), again.get(C)) == (["only"], [], [])


def test_a_long_list_keeps_its_order(backend: HeapBackend) -> None:
    state = ListState(backend, "events", INT64)
    state.append_many([A] * 1000, list(range(1000)))
    assert state.get(A) == list(range(1000))


def test_the_entries_of_a_map_are_written_one_by_one(backend: HeapBackend) -> None:
    state = MapState(backend, "sessions", TEXT, INT64)
    state.put_many([A, A, B], ["x", "y", "x"], [1, 2, 3])
    state.delete(A, "x")
    assert state.items(A) == [("y", 2)]
    assert state.get_many([A, B, C], ["x", "x", "x"]) == [None, 3, None]
    other = MapState(restored(backend), "sessions", TEXT, INT64)
    assert other.items(A) == [("y", 2)]
    other.clear(A)
    assert other.items(A) == []
    assert other.get(B, "x") == 3


def test_a_reducing_state_folds_one_value_or_a_batch(backend: HeapBackend) -> None:
    state = ReducingState(backend, "sums", INT64, operator.add, pc.add)
    assert state.add(A, 5) == 5
    assert state.add(A, 2) == 7
    assert state.add_array([A, B], pa.array([1, 4])).to_pylist() == [8, 4]
    assert state.get_many([A, B, C]) == [8, 4, None]
    with pytest.raises(RowError, match="twice"):
        state.add_array([A, A], pa.array([1, 1]))
    with pytest.raises(RowError, match="reduce_arrays"):
        ReducingState(backend, "others", INT64, max).add_array([A], pa.array([1]))


@given(st.data())
def test_every_codec_gives_back_what_it_was_given(data: Any) -> None:
    for codec, values in (
        (INT64, st.integers(-(2**63), 2**63 - 1)),
        (FLOAT64, st.floats(allow_nan=False)),
        (TEXT, st.text()),
        (BYTES, st.binary()),
    ):
        value: Any = data.draw(values)
        assert codec.decode(codec.encode(value)) == value
        array = pa.array([value, None, value], codec.type)
        assert codec.decode_array(codec.encode_array(array)) == array
        whole = array.take(pa.array([0, 2]))
        assert codec.decode_array(codec.encode_array(whole)) == whole
        assert codec.encode_array(whole)[0] == codec.encode(value)
    thing = data.draw(st.dictionaries(st.text(), st.lists(st.integers())))
    assert JSON.decode(JSON.encode(thing)) == PICKLE.decode(PICKLE.encode(thing)) == thing


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda: INT64.encode(2**63), RowError),
        (lambda: INT64.encode("1"), RowError),  # type: ignore[arg-type]
        (lambda: TEXT.encode("\ud800"), RowError),
        (lambda: JSON.encode(float("nan")), RowError),
        # Read back they would be text, and a count that goes on under the number begins anew.
        (lambda: JSON.encode({1: "a"}), RowError),
        (lambda: JSON.encode([{"a": ({None: "b"},)}]), RowError),
        (lambda: PICKLE.encode(lambda: 1), RowError),
        (lambda: PICKLE.decode(b"no pickle"), CorruptionError),
        (lambda: INT64.decode(b"short"), CorruptionError),
    ],
)
def test_what_a_codec_cannot_keep_is_a_typed_error(
    act: Callable[[], object], error: type[AbsError]
) -> None:
    with pytest.raises(error):
        act()


def test_an_array_that_does_not_fit_is_refused_before_anything_is_written(
    backend: HeapBackend,
) -> None:
    state = ValueState(backend, "counts", INT64)
    with pytest.raises(RowError):
        state.put_array([A, B], pa.array(["1", "x"]))
    with pytest.raises(RowError):
        state.put_array([A], pa.array([2**63], pa.uint64()))
    with pytest.raises(RowError, match="cannot be used with Arrow"):
        ValueState(backend, "objects", PICKLE).get_array([A])
    assert state.get_many([A, B]) == [None, None]


def test_timers_come_out_once_by_time_also_after_a_restore(backend: HeapBackend) -> None:
    timers = Timers(backend)
    timers.register_many([B, A, A, A], [5, 5, -1, 5])
    timers.register(C, 9)
    timers.cancel(B, 5)
    timers.cancel(B, 77)
    assert (len(timers), timers.next()) == (3, -1)
    again = Timers(restored(backend))
    for one in (timers, again):
        assert one.due(-2) == []
        assert one.due(5) == [(-1, A), (5, A)]
        assert one.due(5) == []
        one.register(A, 7)
        assert one.next() == 7
        assert one.due(100) == [(7, A), (9, C)]
        assert one.next() is None
    assert len(Timers(restored(backend))) == 0


def test_split_lists_are_dealt_out_each_item_once_and_union_lists_given_to_all() -> None:
    contents = []
    for subtask in range(3):
        state = OperatorState()
        for n in range(4):
            state.list("offsets", INT64).add(10 * subtask + n)
        state.list("seen", TEXT, Mode.UNION).put([f"of {subtask}"])
        taken = state.snapshot()
        state.list("offsets", INT64).put([])
        contents.append(Contents.from_json(json.loads(json.dumps(taken.to_json()))))
    everything = sorted(10 * s + n for s in range(3) for n in range(4))
    for parallelism in (1, 2, 3, 5, 20):
        states = [OperatorState(redistribute(contents, n, parallelism)) for n in range(parallelism)]
        assert [name for name, *_ in states[0].snapshot().lists] == ["offsets", "seen"]
        dealt = [item for s in states for item in s.list("offsets", INT64).get()]
        assert sorted(dealt) == everything
        for state in states:
            assert state.list("seen", TEXT, Mode.UNION).get() == ["of 0", "of 1", "of 2"]
    with pytest.raises(ConfigError, match="is union"):
        states[0].list("seen", TEXT)


def test_an_operator_state_without_items_can_be_kept() -> None:
    kept = Contents.from_json(OperatorState().snapshot().to_json())
    assert not OperatorState(redistribute([kept], 0, 1)).snapshot().lists
