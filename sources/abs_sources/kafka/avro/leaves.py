"""Reads Avro's types that have no types inside; see ``resolve``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.avro.schema import DAY_MICROS, Node, arrow_type
from abs_sources.kafka.avro.cursor import Cursor

Read = Callable[[Cursor], pa.Array]


class MismatchError(Exception):
    """Values of one schema cannot be read as those of another; never leaves the decoder."""


_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
_NUMPY = {"int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64}
_MAX_MILLIS = (2**63 - 1) // 1000


def mismatch(writer: Node, reader: Node, path: str) -> MismatchError:
    return MismatchError(
        f"{path} was written as {writer.shown}, and cannot be read as {reader.shown}"
    )


def width(node: Node) -> int | None:
    """The bytes of a value, if all of the type have as many."""
    if node.kind == "record":
        inner = [width(field.node) for field in node.fields]
        sizes = [size for size in inner if size is not None]
        return sum(sizes) if len(sizes) == len(inner) else None
    if node.kind == "fixed":
        return node.size
    return {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(node.kind)


def leaf(writer: Node, reader: Node, path: str) -> Read:
    """The function that reads such values; raises MismatchError."""
    kinds = (writer.kind, reader.kind)
    if kinds[0] != kinds[1] and kinds not in _PROMOTIONS:
        raise mismatch(writer, reader, path)
    logical = _logical(writer, reader, path)
    match writer.kind:
        case "null":
            return lambda cursor: pa.nulls(len(cursor))
        case "boolean":
            return lambda cursor: _booleans(cursor, path)
        case "int" | "long":
            return lambda cursor: _numbers(cursor, writer, reader, logical, path)
        case "float" | "double":
            return lambda cursor: _floats(cursor, writer, reader)
        case "enum":
            return _enum(writer, reader, path)
        case "fixed":
            _check_same(writer, reader, path)
    sized = writer.kind == "fixed"

    def lengths(cursor: Cursor) -> Any:
        return np.full(len(cursor), writer.size, np.int64) if sized else cursor.number()

    if logical == "decimal" and pa.types.is_decimal(arrow_type(reader, path)):
        return lambda cursor: _decimals(cursor, lengths(cursor), reader, path)
    return lambda cursor: _texts(cursor, lengths(cursor), reader, path)


def _logical(writer: Node, reader: Node, path: str) -> str | None:
    """The logical type of the numbers or bytes that were written, as the reader understands them."""
    mine, other = reader.logical, writer.logical
    if mine is None or other is None:
        return mine
    if mine == other == "decimal" and writer.scale != reader.scale:
        raise mismatch(writer, reader, path)
    if mine != other and arrow_type(writer) != arrow_type(reader):
        raise mismatch(writer, reader, path)
    return other


def _check_same(writer: Node, reader: Node, path: str) -> None:
    short = [node.name.rpartition(".")[2] for node in (writer, reader)]
    if writer.size != reader.size or (short[0] != short[1] and writer.name not in reader.aliases):
        raise mismatch(writer, reader, path)


def _booleans(cursor: Cursor, path: str) -> pa.Array:
    byte = cursor.fixed(1)[:, 0]
    if (byte > 1).any():
        cursor.fail(byte > 1, f"{path} is neither true nor false")
    return pa.array(byte == 1)


def _numbers(
    cursor: Cursor, writer: Node, reader: Node, logical: str | None, path: str
) -> pa.Array:
    number = cursor.number()
    if writer.kind == "int":
        number = _within(cursor, number, -(2**31), 2**31 - 1, path)
    if logical is None:
        return pa.array(number.astype(_NUMPY[reader.kind]))
    if logical == "date":
        return pa.array(number.astype(np.int32)).view(pa.date32())
    if logical.endswith("millis"):
        number = _within(cursor, number, -_MAX_MILLIS, _MAX_MILLIS, path) * 1000
    if logical.startswith("time-"):
        number = _within(cursor, number, 0, DAY_MICROS - 1, path)
    return pa.array(number).view(arrow_type(reader))


def _within(cursor: Cursor, number: Any, least: int, most: int, path: str) -> Any:
    wrong = (number < least) | (number > most)
    if not wrong.any():
        return number
    cursor.fail(wrong, f"{path} is a number that its type does not have")
    return np.where(wrong, 0, number)


def _floats(cursor: Cursor, writer: Node, reader: Node) -> pa.Array:
    size, layout = (4, "<f4") if writer.kind == "float" else (8, "<f8")
    values = np.ascontiguousarray(cursor.fixed(size)).reshape(-1).view(layout)
    return pa.array(values.astype(_NUMPY[reader.kind]))


def _enum(writer: Node, reader: Node, path: str) -> Read:
    short = [node.name.rpartition(".")[2] for node in (writer, reader)]
    if short[0] != short[1] and writer.name not in reader.aliases:
        raise mismatch(writer, reader, path)
    symbols = [s if s in reader.symbols else reader.default for s in writer.symbols]
    names = pa.array(symbols, pa.string())

    def read(cursor: Cursor) -> pa.Array:
        index = cursor.number()
        wrong = (index < 0) | (index >= len(symbols))
        if wrong.any():
            cursor.fail(wrong, f"{path} is a symbol that its enum does not have")
            index = np.where(wrong, 0, index)
        if not symbols:
            return pa.nulls(len(cursor), pa.string())
        values = names.take(pa.array(index))
        if values.null_count:
            unknown = values.is_null().to_numpy(zero_copy_only=False)
            why = f"{path} is a symbol that the reader's enum {reader.name} has not, nor a default"
            cursor.fail(unknown, why)
        return values

    return read


def _texts(cursor: Cursor, lengths: Any, reader: Node, path: str) -> pa.Array:
    ends, data = cursor.texts(lengths)
    arrow = arrow_type(reader)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    array = pa.Array.from_buffers(arrow, len(cursor), buffers)
    if arrow != pa.string() or not data.size or data.max() < 0x80:
        return array
    wrong = _not_utf8(array)
    if wrong is None:
        return array
    cursor.fail(wrong, f"{path} is not UTF-8")
    return pc.if_else(pa.array(wrong), pa.scalar(b"", pa.binary()), array.view(pa.binary())).view(
        arrow
    )


def _not_utf8(texts: pa.Array) -> Any:
    """A mask of those that are no UTF-8; None: all are."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(value.as_py()) for value in texts.view(pa.binary())])
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimals(cursor: Cursor, lengths: Any, reader: Node, path: str) -> pa.Array:
    """Numbers without their point: two's complement, the high bytes first."""
    ends, data = cursor.texts(lengths)
    sizes = np.diff(ends)
    if (sizes == 0).any():
        cursor.fail(sizes == 0, f"{path} is a decimal without bytes")
        data = np.append(data, np.zeros(1, np.uint8))
    data = data if data.size else np.zeros(1, np.uint8)
    last = ends[1:].astype(np.int64) - 1
    first = np.minimum(ends[:-1], len(data) - 1)
    sign = np.where((data[first] >= 0x80) & (sizes > 0), 255, 0).astype(np.uint8)
    low = np.empty((len(cursor), 16), np.uint8)
    for n in range(16):
        low[:, n] = np.where(n < sizes, data[np.maximum(last - n, 0)], sign)
    wrong = (low[:, 15] >= 0x80) != (sign == 255)
    for n in range(16, int(sizes.max(initial=0))):
        wrong |= (n < sizes) & (data[np.maximum(last - n, 0)] != sign)
    most = 10**reader.precision
    for row in np.flatnonzero(_maybe(low, most)):
        wrong[row] |= abs(_unscaled(low[row])) >= most
    if wrong.any():
        cursor.fail(wrong, f"{path} has more digits than {reader.shown}")
        low[wrong] = 0
    return pa.Array.from_buffers(arrow_type(reader), len(cursor), [None, pa.py_buffer(low)])


def _unscaled(row: Any) -> int:
    return int.from_bytes(row.tobytes(), "little", signed=True)


def _maybe(low: Any, most: int) -> Any:
    """Values whose highest 64 bits tell that they may have too many digits."""
    high = np.ascontiguousarray(low[:, 8:]).reshape(-1).view("<i8")
    limit = most >> 64
    if limit:
        return (high >= limit) | (high <= -limit)
    lows = np.ascontiguousarray(low[:, :8]).reshape(-1).view("<i8")
    small = (high == (lows >> 63)) & (np.abs(lows) < min(most, 2**63 - 1)) & (lows != -(2**63))
    return ~small
