"""Makes the binary forms that pgpq does not write: of uuid, intervals with months, and arrays.

A binary form is what the type's send function returns (PostgreSQL's manual, COPY, Binary Format).
They are made as Arrow binaries, which pgpq copies into the rows.
"""

from __future__ import annotations

import struct
from binascii import unhexlify
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder

from abs_clients.arrow import is_list
from abs_clients.buffers import Array, binaries, bytes_of, values_of
from abs_sinks.jsontext import json_text
from abs_sinks.postgres.columns.types import PgType, becomes_json
from abs_sinks.refusals import Code, Reason, inside, refuse
from abs_sinks.text import interval_parts


@dataclass(frozen=True, slots=True)
class Unnested:
    """The rows of a column of (nested) lists.

    Args:
        sizes: shape (rows, depth): the length of each dimension; 0 in all where a row is empty or
            null.
        leaves: the elements of all rows, row by row, inner dimension fastest.
        row_of: for each leaf, its row.
    """

    sizes: Array
    leaves: pa.Array
    row_of: Array

    @property
    def offsets(self) -> Array:
        """The start of each row's leaves, and the end of the last: shape (rows + 1,)."""
        counts = np.bincount(self.row_of, minlength=len(self.sizes))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def unnest(array: pa.Array, column: str) -> Unnested:
    """Convert (nested) lists to the form of PostgreSQL's arrays: dimensions, and leaves in order.

    Raises:
        RowError: the lists are not rectangular: inner lists of one value differ in length, one is
            NULL, or all are empty (their number would be lost).
    """
    rows = len(array)
    row_of = np.arange(rows)
    sizes: list[Array] = []
    while is_list(array.type):
        if sizes and array.null_count:
            missing = array.is_null().to_numpy(zero_copy_only=False)
            _refuse(column, "hold an inner list that is NULL", row_of[missing], rows)
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        size = np.zeros(rows, np.int32)
        size[row_of] = lengths
        if (size[row_of] != lengths).any():
            other = row_of[size[row_of] != lengths]
            _refuse(column, "hold inner lists that differ in length", other, rows)
        if sizes and not lengths.all():
            _refuse(column, "hold inner lists that are empty", row_of[lengths == 0], rows)
        sizes.append(size)
        row_of = np.repeat(row_of, lengths)
        array = array.flatten()
    return Unnested(np.stack(sizes, axis=1), array, row_of)


def _refuse(column: str, problem: str, wrong: Array, rows: int) -> None:
    why = f"{problem}, which a PostgreSQL array of more than one dimension cannot hold"
    bad = np.isin(np.arange(rows), wrong)
    refuse(Reason(Code.NOT_RECTANGULAR, column, why, "make the column jsonb"), bad)


def numeric_values(array: pa.Array) -> pa.BinaryArray:
    """The binary form of numeric, as pgpq writes a column, of each decimal128 value; null for null."""
    field = pa.field("0", array.type)
    schema = pa.schema([field])
    encoder = ArrowToPostgresBinaryEncoder.new_with_encoders(
        schema, {field.name: ArrowToPostgresBinaryEncoder.infer_encoder(field)}
    )
    encoder.write_header()
    batch = pa.RecordBatch.from_arrays([array], schema=schema)
    rows = bytes(encoder.write_batch(batch)) + bytes(encoder.finish())
    # Each row is 2 bytes (the number of fields), 4 of the value's length (-1 for NULL), and the value
    # (manual, COPY, Binary Format).
    length_at = struct.Struct(">i").unpack_from
    values: list[bytes | None] = []
    end = 0
    for _ in range(len(array)):
        start = end + 6
        length = length_at(rows, start - 4)[0]
        end = start if length < 0 else start + length
        values.append(None if length < 0 else rows[start:end])
    return pa.array(values, pa.binary())


_EPOCH_DAYS = 10_957
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
"""2000-01-01, the epoch of PostgreSQL's dates and timestamps, since 1970-01-01."""

_INTERVAL = np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")])


def payload(array: pa.Array, pg: PgType, column: str) -> pa.BinaryArray:
    """The binary form of each value; null for null.

    Args:
        array: of the type that ``fit`` chose, after ``check_values``.
        column: its name, for messages.

    Raises:
        RowError: a text is no uuid; nested lists are not rectangular; nanoseconds would be lost.
    """
    arrow = array.type
    if pa.types.is_null(arrow):
        return pa.nulls(len(array), pa.binary())
    if becomes_json(arrow, pg):
        array = json_text(array, column)
    elif pg.element is not None:
        return _array(array, pg.element, column)
    elif pg.name == "uuid":
        return _uuid(array, column)
    if pa.types.is_string(array.type):
        plain = array.view(pa.binary())
        version = pa.scalar(b"\x01", pa.binary())
        empty = pa.scalar(b"", pa.binary())
        if pg.name == "jsonb":
            return pc.binary_join_element_wise(version, plain, empty)
        return plain
    if pa.types.is_binary(arrow):
        return array
    if pa.types.is_decimal128(arrow):
        return numeric_values(array)
    if arrow.equals(pa.month_day_nano_interval()):
        return _fixed(_months_days_nanos(array, column), array)
    return _fixed(_big_endian(array), array)


def _big_endian(array: pa.Array) -> Array:
    """Fixed-width values in big-endian order; values under a null are arbitrary."""
    arrow = array.type
    if pa.types.is_boolean(arrow):
        return values_of(array.cast(pa.uint8()), "u1")
    if pa.types.is_date32(arrow):
        return (values_of(array, "<i4") - np.int32(_EPOCH_DAYS)).astype(">i4")
    if pa.types.is_timestamp(arrow):
        return (values_of(array, "<i8") - np.int64(_EPOCH_US)).astype(">i8")
    if pa.types.is_duration(arrow):
        whole = np.zeros(len(array), _INTERVAL)
        whole["us"] = values_of(array, "<i8")
        return whole
    kind = "f" if pa.types.is_floating(arrow) else "i"
    width = arrow.bit_width // 8
    return values_of(array, np.dtype(f"<{kind}{width}")).astype(f">{kind}{width}")


def _months_days_nanos(array: pa.Array, column: str) -> Array:
    parts = interval_parts(array, column)
    whole = np.zeros(len(array), _INTERVAL)
    whole["us"] = parts["nanos"] // 1000
    whole["days"], whole["months"] = parts["days"], parts["months"]
    return whole


def _fixed(values: Array, like: pa.Array) -> pa.BinaryArray:
    lengths = np.full(len(values), values.dtype.itemsize, np.int32)
    return binaries(values.view(np.uint8), lengths, like)


_UUID = r"^[0-9A-Fa-f]{8}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{12}$"


def _uuid(array: pa.Array, column: str) -> pa.BinaryArray:
    if pa.types.is_binary(array.type):
        wrong = pc.not_equal(pc.binary_length(array), 16)
        why = "are not 16 bytes long, as a uuid is"
        refuse(Reason(Code.MALFORMED, column, why, "correct them in Spark"), wrong)
        return array
    wrong = pc.invert(pc.match_substring_regex(array, _UUID))
    remedy = "write them as 8-4-4-4-12 hexadecimal digits"
    refuse(Reason(Code.MALFORMED, column, "are no uuid", remedy), wrong)
    present = pc.replace_substring(array.drop_null(), "-", "")
    octets = np.frombuffer(unhexlify(bytes_of(present).tobytes()), np.uint8)  # 16 each, end to end
    packed = np.zeros((len(array), 16), np.uint8)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    packed[valid] = octets.reshape(-1, 16)
    return binaries(packed.reshape(-1), np.full(len(array), 16, np.int32), array)


def _array(array: pa.Array, element: PgType, column: str) -> pa.BinaryArray:
    """arrayfuncs.c, array_recv: dimensions, has-null flag, element type, sizes, then the elements."""
    parts = unnest(array, column)
    with inside(lambda: parts.row_of):
        leaves = payload(parts.leaves, element, column)
    lengths = pc.binary_length(leaves).fill_null(-1).to_numpy(zero_copy_only=False)
    prefix = _fixed(lengths.astype(">i4"), pa.array(lengths))
    pieces = pc.binary_join_element_wise(prefix, leaves.fill_null(b""), b"")
    body = pc.binary_join(pa.ListArray.from_arrays(parts.offsets, pieces), b"")
    made = pc.binary_join_element_wise(_array_header(parts, leaves, element), body, b"")
    return pc.if_else(array.is_valid(), made, None) if array.null_count else made


def _array_header(parts: Unnested, leaves: pa.Array, element: PgType) -> pa.BinaryArray:
    rows, depth = parts.sizes.shape
    missing = leaves.is_null().to_numpy(zero_copy_only=False)
    filled = parts.sizes[:, 0] > 0
    header = np.zeros((rows, 3 + 2 * depth), np.int64)
    header[:, 0] = np.where(filled, depth, 0)
    header[:, 1] = np.bincount(parts.row_of, weights=missing, minlength=rows) > 0
    header[:, 2] = element.oid
    header[:, 3::2] = parts.sizes
    header[:, 4::2] = 1
    # An empty array has no dimensions, and so no sizes.
    kept = np.ones(header.shape, bool)
    kept[:, 3:] = filled[:, None]
    data = header[kept].astype(">u4")
    return binaries(data.view(np.uint8), 4 * kept.sum(axis=1), pa.array(filled))
