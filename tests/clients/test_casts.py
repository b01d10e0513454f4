"""Values are cast between the pairs of types of one table, at every depth; nothing is changed by it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from abs_clients.arrow import cast_plain, type_name

Wrap = Callable[[pa.Array], pa.Array]
LATE = dt.datetime.fromisoformat("2026-01-02T23:30:00")
STRUCT = pa.struct([("userId", pa.int64())])


def _struct(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], names=["x"])


def _list(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)


def _map(array: pa.Array) -> pa.Array:
    keys = pa.array([str(n) for n in range(len(array))])
    return pa.MapArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), keys, array)


WRAPS: dict[str, Wrap] = {
    "": lambda array: array,
    ".x": _struct,
    "[]": _list,
    ".value": _map,
    ".x[]": lambda array: _struct(_list(array)),
    "[].value": lambda array: _list(_map(array)),
}
CHANGED = [
    (pa.array([LATE], pa.timestamp("us")), pa.date32()),
    (pa.array([LATE], pa.timestamp("us", "America/New_York")), pa.date32()),
    (pa.array([LATE], pa.timestamp("us", "UTC")), pa.time64("us")),
    (pa.array([1_767_355_200_000]), pa.timestamp("us", "UTC")),
    (pa.array([20_000], pa.int32()), pa.date32()),
    (pa.array([LATE], pa.timestamp("us")), pa.int64()),
    (pa.array([0.1]), pa.float32()),
    (pa.array([0.1]), pa.decimal128(10, 2)),
    (pa.array([1.0]), pa.int32()),
    (pa.array([5]), pa.bool_()),
    (pa.array([True]), pa.int32()),
    (pa.array([Decimal("0.10")]), pa.float64()),
    (pa.array([5]), pa.string()),
    (pa.array(["5"]), pa.int32()),
    (pa.array(["2026-01-02"]), pa.date32()),
    (pa.array([dt.date(2026, 1, 2)]), pa.timestamp("us", "UTC")),
    (pa.array([5], pa.duration("us")), pa.int64()),
    (pa.array([[1]]), pa.int64()),
]


@pytest.mark.parametrize(("array", "to"), CHANGED, ids=[f"{a.type} to {t}" for a, t in CHANGED])
@pytest.mark.parametrize("depth", WRAPS)
def test_a_pair_of_types_that_changes_values_is_refused_with_its_whole_path(
    array: pa.Array, to: pa.DataType, depth: str
) -> None:
    wrapped, wanted = WRAPS[depth](array), WRAPS[depth](pa.nulls(1, to)).type
    with pytest.raises(pa.ArrowNotImplementedError) as error:
        cast_plain(wrapped, wanted, "c")
    assert str(error.value).startswith(f"c{depth} is {type_name(array.type)}")
    assert type_name(to) in str(error.value)


KEPT = [
    (pa.array([1, None], pa.int8()), pa.int64()),
    (pa.array([1, None]), pa.int8()),
    (pa.array([1, None], pa.int32()), pa.float64()),
    (pa.array([1, None], pa.int32()), pa.decimal128(12, 2)),
    (pa.array([Decimal(5), None], pa.decimal128(9, 0)), pa.int32()),
    (pa.array([0.1, None], pa.float32()), pa.float64()),
    (pa.array(["a", None]), pa.binary()),
    (pa.array([b"abc", None], pa.binary(3)), pa.string()),
    (pa.array([dt.date(2026, 1, 2), None]), pa.timestamp("us")),
    (pa.array([LATE, None], pa.timestamp("ns")), pa.timestamp("us", "UTC")),
    (pa.array(["a", None]).dictionary_encode(), pa.string()),
    (pa.nulls(2), pa.list_(pa.int32())),
]


@pytest.mark.parametrize(("array", "to"), KEPT, ids=[f"{a.type} to {t}" for a, t in KEPT])
@pytest.mark.parametrize("depth", WRAPS)
@pytest.mark.parametrize("begin", [0, 1])
def test_a_pair_of_types_that_changes_no_value_is_cast(
    array: pa.Array, to: pa.DataType, depth: str, begin: int
) -> None:
    wrapped, wanted = WRAPS[depth](array)[begin:], WRAPS[depth](pa.nulls(2, to)).type
    found = cast_plain(wrapped, wanted, "c")
    found.validate(full=True)
    expected = WRAPS[depth](pa.array(_plainly(array, to), to))[begin:]
    assert found.equals(expected)


def _plainly(array: pa.Array, to: pa.DataType) -> list[object]:
    found: list[object] = cast_plain(array, to).to_pylist()
    return found


@pytest.mark.parametrize(
    ("array", "to", "reason"),
    [
        (pa.array([300]), pa.int8(), "not in range"),
        (pa.array([2**53 + 1]), pa.float64(), "not in range"),
        (pa.array([Decimal("1.55")]), pa.decimal128(10, 1), "data loss"),
        (pa.array([b"\xff"]), pa.string(), "UTF8"),
        (pa.array([1001], pa.timestamp("ns")), pa.timestamp("us"), "lose data"),
    ],
)
@pytest.mark.parametrize("depth", WRAPS)
def test_a_value_that_does_not_fit_is_refused_with_its_whole_path(
    array: pa.Array, to: pa.DataType, reason: str, depth: str
) -> None:
    wrapped, wanted = WRAPS[depth](array), WRAPS[depth](pa.nulls(1, to)).type
    with pytest.raises(pa.ArrowInvalid, match=reason) as error:
        cast_plain(wrapped, wanted, "c")
    given = f"c{depth} is {type_name(array.type)}, not {type_name(to)}"
    assert str(error.value).startswith(given)


@pytest.mark.parametrize("depth", WRAPS)
def test_fields_are_found_without_regard_to_case_at_every_depth(depth: str) -> None:
    wrap = WRAPS[depth]
    wanted = pa.struct([("later", pa.string()), ("USERID", pa.int32())])
    array = pa.array([{"userId": 3}, None, {"userId": None}], STRUCT)
    expected = pa.array([{"USERID": 3}, None, {"USERID": None}], wanted)
    found = cast_plain(wrap(array), wrap(expected).type, "c")
    found.validate(full=True)
    assert found.to_pylist() == wrap(expected).to_pylist()


@pytest.mark.parametrize("depth", WRAPS)
def test_two_fields_that_could_be_one_are_refused(depth: str) -> None:
    array = pa.array([{"userId": 3, "UserId": 4}])
    wanted = pa.struct([("userid", pa.int64())])
    with pytest.raises(pa.ArrowNotImplementedError, match="could be any of"):
        cast_plain(WRAPS[depth](array), WRAPS[depth](pa.nulls(1, wanted)).type, "c")
    exact = pa.struct([("UserId", pa.int64())])
    found = cast_plain(WRAPS[depth](array), WRAPS[depth](pa.nulls(1, exact)).type, "c")
    assert found.equals(WRAPS[depth](pa.array([{"UserId": 4}], exact)))


@pytest.mark.parametrize("layout", [pa.large_list(pa.null()), pa.list_(pa.null(), 2)])
def test_lists_of_nulls_keep_their_length(layout: pa.DataType) -> None:
    """Arrow 26 cuts them in a cast, also in one to the same type."""
    given = pa.array([[None, None], [None, None]], layout)
    found = cast_plain(given, pa.list_(pa.null()))
    found.validate(full=True)
    assert found.to_pylist() == given.to_pylist()
