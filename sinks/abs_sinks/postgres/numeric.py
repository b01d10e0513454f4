"""Decimals in the binary form of numeric, for arrays: as pgpq writes a column of them."""

from __future__ import annotations

import struct

import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder


def numeric_values(array: pa.Array) -> pa.BinaryArray:
    """The binary form of each decimal128 value; null for null."""
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
