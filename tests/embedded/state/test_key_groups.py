"""Key groups: stable, the same for one key and for a column, each owned by exactly one subtask."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import AbsError, ConfigError, RowError, SchemaError
from abs_embedded.state.keygroups import (
    GroupRange,
    decode_keys,
    encode_key,
    encode_keys,
    groups_of,
    key_group,
    key_groups,
    owner,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1), st.integers(1, 2**15))
def test_a_column_of_integers_has_the_groups_of_its_single_keys(values: list[int], m: int) -> None:
    column = pa.array(values, pa.int64())
    assert key_groups([column], m).tolist() == [key_group(encode_key(v), m) for v in values]


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1), st.integers(1, 2**15))
def test_keys_of_8_bytes_have_the_groups_of_each_by_itself(keys: list[bytes], m: int) -> None:
    assert groups_of(keys, m).tolist() == [key_group(key, m) for key in keys]
    for column in (pa.array(keys), pa.array([b"longer", *keys])[1:], pa.array([b"", *keys])):
        assert key_groups([column], m).tolist() == [key_group(key, m) for key in column.to_pylist()]


@given(st.lists(st.text(), min_size=1))
def test_a_column_of_text_has_the_groups_of_its_single_keys(values: list[str]) -> None:
    assert key_groups([pa.array(values)], 128).tolist() == [
        key_group(encode_key(v), 128) for v in values
    ]


@given(st.lists(st.tuples(st.text(), INT64, st.binary()), min_size=1))
def test_keys_of_several_columns_come_back_and_never_run_into_each_other(
    rows: list[tuple[str, int, bytes]],
) -> None:
    types = [pa.string(), pa.int64(), pa.binary()]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    keys = encode_keys(columns)
    assert keys == [encode_key(*row) for row in rows]
    assert len(set(keys)) == len(set(rows))
    assert decode_keys(keys, types) == columns
    assert key_groups(columns, 128).tolist() == groups_of(keys, 128).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -2], pa.int8()),
        pa.array([1, 2**64 - 1], pa.uint64()),
        pa.array([True, False]),
        pa.array([date(2024, 1, 1)]),
        pa.array([datetime(2024, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
        pa.array(["a", ""], pa.large_string()),
        pa.array([b"\0", b""]),
        pa.array([b"1234"], pa.binary(4)),
    ],
    ids=lambda c: str(c.type),
)
def test_every_type_of_key_comes_back(column: pa.Array) -> None:
    assert decode_keys(encode_keys([column]), [column.type]) == [column]


def test_equal_integers_of_any_width_are_one_key() -> None:
    narrow, wide = pa.array([7, -1], pa.int16()), pa.array([7, -1], pa.int64())
    assert encode_keys([narrow]) == encode_keys([wide])


def test_a_dictionary_column_has_the_keys_of_its_values() -> None:
    plain = pa.array(["a", "b", "a"])
    assert encode_keys([plain.dictionary_encode()]) == encode_keys([plain])


@pytest.mark.parametrize("plain", [pa.array(["a", "b", "a"]), pa.array([5, -1, 5])])
def test_keys_of_a_dictionary_column_come_back_as_its_values(plain: pa.Array) -> None:
    for columns in ([plain.dictionary_encode()], [plain.dictionary_encode(), plain]):
        types = [column.type for column in columns]
        assert decode_keys(encode_keys(columns), types) == [plain] * len(columns)


def test_a_slice_has_the_groups_of_its_rows() -> None:
    for column in (pa.array(range(100)), pa.array([str(n) for n in range(100)])):
        assert (
            key_groups([column.slice(40, 7)], 128).tolist()
            == (key_groups([column], 128).tolist()[40:47])
        )


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([1.5]), SchemaError),
        (pa.array([[1]]), SchemaError),
        (pa.array([1, None]), RowError),
    ],
    ids=["float", "list", "null"],
)
def test_what_cannot_be_a_key_is_refused(column: pa.Array, error: type[AbsError]) -> None:
    with pytest.raises(error):
        encode_keys([column])
    with pytest.raises(error):
        key_groups([column], 128)


def test_the_hash_is_the_same_in_every_process() -> None:
    program = (
        "from abs_embedded.state.keygroups import *; "
        "print([key_group(encode_key(k), 128) for k in ('a', 'key', 1, -5, b'x')])"
    )
    here = str([key_group(encode_key(k), 128) for k in ("a", "key", 1, -5, b"x")])
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here
    # Written down: a change of the hash would lose every job's state.
    assert key_group(b"", 1 << 15) == 0xEF46DB3751D8E999 % (1 << 15)
    assert key_group(encode_key(1), 128) == xxhash.xxh64_intdigest(b"\1" + bytes(7)) % 128


@given(st.data())
def test_every_group_has_exactly_one_owner_and_lies_in_its_range(data: Any) -> None:
    m = data.draw(st.integers(1, 400))
    p = data.draw(st.integers(1, m))
    ranges = [GroupRange.of(i, p, m) for i in range(p)]
    assert [r.start for r in ranges] == [0, *(r.stop for r in ranges)][:-1]
    assert ranges[-1].stop == m
    assert all(r.start < r.stop for r in ranges)
    for group in range(m):
        assert [i for i, r in enumerate(ranges) if group in r] == [owner(group, p, m)]
    every = np.arange(m)
    assert owner(every, p, m).tolist() == [owner(g, p, m) for g in range(m)]


@pytest.mark.parametrize(("parallelism", "most"), [(0, 128), (129, 128), (1, 2**15 + 1)])
def test_a_parallelism_that_leaves_subtasks_without_groups_is_refused(
    parallelism: int, most: int
) -> None:
    with pytest.raises(ConfigError):
        GroupRange.of(0, parallelism, most)
