"""Arrow types of every kind with random values, made of random bits: the extremes are among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_bytes, is_text

UNITS = ("s", "ms", "us", "ns")
ZONES = (None, "UTC", "America/New_York", "+05:30")
NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
]
OTHERS = [
    *(pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    *(pa.string_view(), pa.binary_view(), pa.month_day_nano_interval(), pa.binary(3)),
    *(pa.uuid(), pa.json_(), pa.bool8()),
]
DECIMALS = (
    (pa.decimal32, 9),
    (pa.decimal64, 18),
    (pa.decimal128, 38),
    (pa.decimal256, 76),
)
TEXTS = [b"", b"a", b"\0", b"\xff", "é \U0001f600".encode(), b"x" * 300, b'"\\\n,', b"12:00", b"1"]


def any_leaf(random: Random) -> pa.DataType:
    """A type without others inside."""
    match random.randrange(6):
        case 0:
            return random.choice(NUMBERS)
        case 1:
            return pa.timestamp(random.choice(UNITS), random.choice(ZONES))
        case 2:
            return pa.duration(random.choice(UNITS))
        case 3:
            make, most = random.choice(DECIMALS)
            digits = random.choice([1, random.randint(1, most), most])
            return make(digits, random.choice([0, random.randint(-most, digits), -1, digits]))
        case _:
            return random.choice(OTHERS)


def any_type(random: Random, depth: int = 0) -> pa.DataType:
    """A type of any kind."""
    if depth > 1 or random.random() < 0.6:
        return any_leaf(random)
    inner = [any_type(random, depth + 1) for _ in range(random.randint(1, 3))]
    fields = [
        pa.field(f"f{n}", kind, kind.equals(pa.null()) or random.random() < 0.8)
        for n, kind in enumerate(inner)
    ]
    makers: Sequence[Callable[[], pa.DataType]] = [
        lambda: pa.list_(inner[0]),
        lambda: pa.large_list(inner[0]),
        lambda: pa.list_(inner[0], 2),
        lambda: pa.list_view(inner[0]),
        lambda: pa.large_list_view(inner[0]),
        lambda: pa.struct(random.choice([fields, fields, []])),
        lambda: pa.map_(_key(random), inner[0]),
        lambda: pa.dictionary(pa.int32(), _encoded(random)),
        lambda: pa.run_end_encoded(pa.int32(), _encoded(random)),
        lambda: pa.sparse_union([field.with_nullable(True) for field in fields]),
        lambda: pa.dense_union([field.with_nullable(True) for field in fields]),
    ]
    return random.choice(makers)()


def _encoded(random: Random) -> pa.DataType:
    """Of dictionaries and runs of extension types Arrow itself computes nothing."""
    kind = any_leaf(random)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _key(random: Random) -> pa.DataType:
    kind = random.choice([pa.string(), any_leaf(random)])
    return pa.string() if kind.equals(pa.null()) else kind


def any_array(random: Random, kind: pa.DataType, size: int, *, nulls: bool = True) -> pa.Array:
    """Values of the type; a fifth are null, where they may be."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _extended(random, kind, size, nulls=nulls))
    if pa.types.is_dictionary(kind):
        values = any_array(random, kind.value_type, 4)
        places = pa.array([random.randrange(4) for _ in range(size)], pa.int32())
        return pa.DictionaryArray.from_arrays(places, values)
    if pa.types.is_run_end_encoded(kind):
        ends = [*range(2, size, 2), size]
        values = any_array(random, kind.value_type, len(ends))
        if is_text(kind.value_type):  # Arrow makes no runs of text that is not UTF-8
            values = pa.array(["a", None, "é"] * len(ends))[: len(ends)].cast(kind.value_type)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), values, kind)
    if pa.types.is_union(kind):
        return _union(random, kind, size)
    valid = [not nulls or random.random() < 0.8 for _ in range(size)]
    if pa.types.is_nested(kind):
        return _nested(random, kind, valid)
    return _leaves(random, kind, valid)


def _extended(random: Random, kind: Any, size: int, *, nulls: bool) -> pa.Array:
    if kind.equals(pa.json_()):
        texts = ["1", '{"a": [null]}', "not JSON"]
        return pa.array([random.choice(texts) for _ in range(size)], kind.storage_type)
    return any_array(random, kind.storage_type, size, nulls=nulls)


def _union(random: Random, kind: Any, size: int) -> pa.Array:
    codes = pa.array([random.randrange(kind.num_fields) for _ in range(size)], pa.int8())
    children = [any_array(random, field.type, size) for field in kind]
    names = [field.name for field in kind]
    if kind.mode == "sparse":
        return pa.UnionArray.from_sparse(codes, children, names)
    return pa.UnionArray.from_dense(codes, pa.array(range(size), pa.int32()), children, names)


def _nested(random: Random, kind: Any, valid: list[bool]) -> pa.Array:
    size, mask = len(valid), pa.array([not one for one in valid], pa.bool_())
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.array([{} if one else None for one in valid], kind)
        columns = [any_array(random, field.type, size, nulls=field.nullable) for field in kind]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        values = any_array(random, kind.value_type, size * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    lengths = [random.randint(0, 3) if one else 0 for one in valid]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if pa.types.is_map(kind):
        keys = any_array(random, kind.key_type, int(ends[-1]), nulls=False)
        items = any_array(random, kind.item_type, int(ends[-1]))
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, kind, mask=mask)
    values = any_array(random, kind.value_type, int(ends[-1]))
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, kind, mask=mask)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values, kind, mask=mask)
    view, place = (
        (pa.ListViewArray, pa.int32())
        if pa.types.is_list_view(kind)
        else (pa.LargeListViewArray, pa.int64())
    )
    places = pa.array(ends[:-1], place), pa.array(lengths, place)
    return view.from_arrays(*places, values, kind, mask=mask)


def _leaves(random: Random, kind: Any, valid: list[bool]) -> pa.Array:
    size, types = len(valid), pa.types
    mask = np.array([not one for one in valid], bool)
    if types.is_null(kind):
        return pa.nulls(size)
    if types.is_boolean(kind):
        return pa.array([random.random() < 0.5 for _ in valid], mask=mask)
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return pa.array([random.randbytes(kind.byte_width) for _ in valid], kind, mask=mask)
    if is_text(kind) or is_bytes(kind):
        return _texts(random, kind, valid)
    bits = pa.py_buffer(np.packbits(np.array(valid, bool), bitorder="little").tobytes())
    width = kind.bit_width // 8
    values = b"".join(_bits(random, kind, width) for _ in valid)
    return pa.Array.from_buffers(kind, size, [bits, pa.py_buffer(values)])


def _texts(random: Random, kind: Any, valid: list[bool]) -> pa.Array:
    """Texts, some of which are no UTF-8."""
    raw = pa.array([random.choice(TEXTS) if one else None for one in valid], pa.binary())
    if pa.types.is_string_view(kind):
        return pa.array(raw.to_pylist(), pa.binary_view()).view(kind)
    if pa.types.is_large_string(kind):
        return raw.cast(pa.large_binary()).view(kind)
    return raw.view(kind) if pa.types.is_string(kind) else pc.cast(raw, kind)


def _bits(random: Random, kind: Any, width: int) -> bytes:
    """One value of a fixed width."""
    number: int
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        number = random.choice([0, 1, -1, most, -most, random.randint(-most, most)])
    elif pa.types.is_time(kind):
        day = 86_400 * 1000 ** UNITS.index(str(kind.unit))
        number = random.choice([0, day - 1, random.randrange(day)])
    elif pa.types.is_date64(kind):
        number = 86_400_000 * random.choice([0, -1, 10**6, 10**11, -(10**11)])
    elif random.random() < 0.1 or kind.equals(pa.month_day_nano_interval()):
        return random.choice([bytes(width), random.randbytes(width)])
    else:
        top = 1 << (8 * width - 1)
        near = 1000 * random.randint(-(10**4), 10**4) if width > 2 else random.randint(-9, 9)
        number = random.choice([0, 1, -1, near, near, near + 1, top - 1, -top])
    return number.to_bytes(width, "little", signed=True)
