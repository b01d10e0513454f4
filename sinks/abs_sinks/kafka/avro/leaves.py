"""The bytes of Avro's types that have no types inside; see ``encode`` for what pieces are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import type_name
from abs_clients.avro.schema import Node, arrow_type
from abs_clients.buffers import offsets_of, values_of
from abs_sinks.kafka.headers import varints, zigzag
from abs_sinks.refusals import Code, MisfitError, Reason, check_utf8, refuse

Piece = Any  # pa.BinaryArray | pa.BinaryScalar: pyarrow has no types that mypy sees

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def leaf_pieces(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    """The pieces of a column without nested values. Raises as ``encode.encode``."""
    if pa.types.is_null(array.type) and node.kind != "null":
        array = pa.nulls(len(array), arrow_type(node))
    match node.kind:
        case "null":
            if not pa.types.is_null(array.type):
                raise _misfit(node, array.type, path, "leave it out")
            return []
        case "boolean":
            if not pa.types.is_boolean(array.type):
                raise _misfit(node, array.type, path, "cast it: CAST(... AS BOOLEAN)")
            return [pc.if_else(array, pa.scalar(b"\1", pa.binary()), pa.scalar(b"\0", pa.binary()))]
        case "int" | "long":
            return [masked(number(zigzag(_whole_numbers(node, array, path))), array)]
        case "float" | "double":
            return [_floats(node, array, path)]
        case "enum":
            return [_symbols(node, array, path)]
    if node.logical == "decimal":
        return _decimals(node, array, path)
    return _texts(node, array, path)


def number(unsigned: Any) -> Piece:
    """Numbers in zigzag in base 128; a scalar if all are equal."""
    return varints(unsigned.view(np.uint64))


def masked(piece: Piece, like: pa.Array) -> Piece:
    """The piece, null where ``like`` is."""
    if not like.null_count:
        return piece
    if isinstance(piece, pa.Scalar) or piece.offset:
        return pc.if_else(like.is_valid(), piece, None)
    bits = like.is_valid().buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(piece), [bits, *piece.buffers()[1:]])


def _whole_numbers(node: Node, array: pa.Array, path: str) -> Any:
    """The numbers of a column that Avro writes as an int or long."""
    arrow = array.type
    if node.logical is not None:
        wanted = arrow_type(node)
        if arrow != wanted:
            raise _misfit(node, arrow, path, f"cast it to the type of Spark that is {wanted}")
        numbers = _plain_numbers(array.view(pa.int32() if arrow == pa.date32() else pa.int64()))
        return _millis(node, numbers, array, path) if node.logical.endswith("millis") else numbers
    fitting = _INTEGERS[:3] if node.kind == "int" else (*_INTEGERS, pa.duration("us"))
    if arrow not in fitting:
        wider = "INT" if node.kind == "int" else "BIGINT"
        raise _misfit(node, arrow, path, f"cast it: CAST(... AS {wider})")
    return _plain_numbers(array.view(pa.int64()) if pa.types.is_duration(arrow) else array)


def _plain_numbers(array: pa.Array) -> Any:
    numbers = values_of(array, array.type.to_pandas_dtype()).astype(np.int64)
    if array.null_count:
        # What lies beneath a null is not defined, and may be large.
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return numbers


def _millis(node: Node, micros: Any, array: pa.Array, path: str) -> Any:
    why = f"are not whole milliseconds, and the Avro schema has {node.shown}"
    remedy = "round them: date_trunc('MILLISECOND', ...), or write with a schema of microseconds"
    refuse(Reason(Code.TOO_PRECISE, path, why, remedy), micros % 1000 != 0)
    return micros // 1000


def _floats(node: Node, array: pa.Array, path: str) -> Piece:
    single, double = pa.float32(), pa.float64()
    fitting = (single,) if node.kind == "float" else (single, double)
    if array.type not in fitting:
        wider = "FLOAT" if node.kind == "float" else "DOUBLE"
        raise _misfit(node, array.type, path, f"cast it: CAST(... AS {wider})")
    layout = "<f4" if node.kind == "float" else "<f8"
    wide = array.cast(single if node.kind == "float" else double)
    return masked(fixed(np.ascontiguousarray(values_of(wide, layout)), int(layout[2])), array)


def fixed(data: Any, size: int) -> pa.BinaryArray:
    """Bytes of one size as a column; ``data`` holds them side by side."""
    count = data.nbytes // size if size else 0
    ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _symbols(node: Node, array: pa.Array, path: str) -> Piece:
    if not pa.types.is_string(array.type):
        raise _misfit(node, array.type, path, "cast it: CAST(... AS STRING)")
    positions = pc.index_in(array, pa.array(node.symbols, pa.string()))
    why = f"are no symbol of the Avro enum {node.name}"
    remedy = f"write one of {', '.join(node.symbols[:20])}"
    unknown: Any = pc.and_(positions.is_null(), array.is_valid())
    refuse(Reason(Code.OUT_OF_RANGE, path, why, remedy), unknown)
    return masked(number(zigzag(positions.fill_null(0).to_numpy().astype(np.int64))), array)


def _texts(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    """Strings, bytes, and bytes of a fixed size."""
    wanted = pa.string() if node.kind == "string" else pa.binary()
    if array.type != wanted:
        raise _misfit(node, array.type, path, f"cast it: CAST(... AS {str(wanted).upper()})")
    if node.kind == "string":
        check_utf8(array, path)
    if node.logical == "uuid":
        why, remedy = "are no UUID", "write them as 8-4-4-4-12 hexadecimal digits"
        right = pc.match_substring_regex(array, _UUID)
        refuse(Reason(Code.MALFORMED, path, why, remedy), pc.invert(right))
    data = array.view(pa.binary())
    lengths = np.diff(offsets_of(array)).astype(np.int64)
    if node.kind == "fixed":
        why = f"are not of {node.size} bytes, which the Avro type {node.name} has"
        wrong: Any = pc.and_(pa.array(lengths != node.size), array.is_valid())
        refuse(Reason(Code.TOO_LONG, path, why, "make them of that size"), wrong)
        return [data]
    return [masked(number(zigzag(lengths)), array), data]


def _decimals(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    """Numbers without their point, as two's complement, the high bytes first."""
    digits, scale = node.precision, node.scale
    arrow = array.type
    if pa.types.is_integer(arrow):
        arrow = pa.decimal128({8: 3, 16: 5, 32: 10, 64: 19}[arrow.bit_width], 0)
    fits = pa.types.is_decimal128(arrow) and arrow.scale <= scale
    if not fits or arrow.precision - arrow.scale > digits - scale or digits > 38:
        remedy = f"cast it: CAST(... AS DECIMAL({digits}, {scale}))"
        raise _misfit(node, array.type, path, remedy)
    wide = array.cast(arrow).cast(pa.decimal128(38, scale))
    rows = values_of(wide, "V16").view(np.uint8).reshape(-1, 16)[:, ::-1]
    if array.null_count:
        rows = np.where(array.is_valid().to_numpy(zero_copy_only=False)[:, None], rows, 0)
    rows = rows.astype(np.uint8)
    sign = (rows[:, :1] >> 7) * np.uint8(255)
    # A leading byte can go if it and the next one's first bit are the sign.
    spare = (rows[:, :-1] == sign) & ((rows[:, 1:] >> 7) == (sign & 1))
    lengths = 16 - np.cumprod(spare, axis=1).sum(axis=1)
    if node.kind == "fixed":
        size = node.size
        wider = np.concatenate([np.repeat(sign, max(0, size - 16), axis=1), rows], axis=1)
        made = fixed(np.ascontiguousarray(wider[:, wider.shape[1] - size :]), size)
        return [masked(made, array)]
    kept = rows[np.arange(16) >= (16 - lengths)[:, None]]
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    made = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(kept)]
    )
    return [masked(number(zigzag(lengths.astype(np.int64))), array), masked(made, array)]


def _misfit(node: Node, arrow: pa.DataType, path: str, remedy: str) -> MisfitError:
    return MisfitError(
        f"{path} is {type_name(arrow)}, and the Avro schema has {node.shown}", remedy
    )
