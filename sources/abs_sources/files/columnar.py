"""Reads Parquet and Arrow files: a piece has the row groups or batches whose middle is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from abs_clients.arrow import with_inner
from abs_core.errors import RowError
from abs_sources.files.model import Piece, reading
from abs_sources.files.schema import engine_schema, fit, match

Progress = list[int] | int | None
"""The read part of a piece: a row group or batch, and rows of it; or a byte of a file of lines."""
Step = tuple[pa.RecordBatch, Progress]


@dataclass(frozen=True, slots=True)
class Rest:
    """The rest of a piece of an open file, to be read.

    Args:
        at: what is read of it already.
        schema: of the batches.
        most: rows of a batch (parquet, arrow), or bytes of lines that are parsed at once.
        name: of the file, for people.
    """

    content: pa.NativeFile
    piece: Piece
    at: Progress
    schema: pa.Schema
    most: int
    name: str


_ARROW = b"ARROW1"
_INSTANT = pa.timestamp("us", "UTC")
_JULIAN_DAY_0 = -210_866_760_000_000_000
"""Microseconds from 1970 to noon of the first day that INT96 counts."""


@contextmanager
def malformed(name: str) -> Iterator[None]:
    """Raise a parser's errors as ``RowError`` with the file's name; errors of the disk pass."""
    with reading(name):
        try:
            yield
        except (pa.ArrowException, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise RowError(
                f"The file {name} is damaged, is not of its stated format, or does not fit the "
                f"schema: {error}",
                remedy="correct the option fileformat, the schema, or the file: none is skipped "
                "silently.",
            ) from error


def parquet_schema(content: pa.NativeFile, name: str) -> pa.Schema:
    """The schema of a Parquet file; 96-bit timestamps, as Spark writes them, are in UTC."""
    with malformed(name):
        file = pq.ParquetFile(content)
        old = _int96(file)
        return pa.schema(
            f.with_type(_instants(f.type)) if f.name in old else f
            for f in engine_schema(file.schema_arrow)
        )


def _int96(file: pq.ParquetFile) -> set[str]:
    """Names of the columns with 96-bit timestamps, at any depth."""
    leaves = [file.schema.column(n) for n in range(len(file.schema))]
    old = [f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96"]
    return {name for name in file.schema_arrow.names if any(p.startswith(f"{name}.") for p in old)}


def _check_int96(array: pa.Array, column: str) -> None:
    """Raise ArrowInvalid for moments that Arrow reads wrong: INT96 with a negative day.

    Spark's sums overflow beyond the year 285,000, and it writes such a day.
    """
    if pa.types.is_nested(array.type):
        inner = array.flatten() if pa.types.is_struct(array.type) else [array.flatten()]
        for child in inner:
            _check_int96(child, column)
    elif pa.types.is_timestamp(array.type):
        least = pc.min(array.cast(pa.int64())).as_py()
        if least is not None and least < _JULIAN_DAY_0:
            raise pa.ArrowInvalid(f"{column} has a moment that INT96 does not hold")


def _instants(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _INSTANT
    return with_inner(kind, _instants) if pa.types.is_nested(kind) else kind


def read_parquet(rest: Rest) -> Iterator[Step]:
    """Raises RowError or SchemaError if the file does not have the schema's columns."""
    piece, schema, name = rest.piece, rest.schema, rest.name
    with malformed(name):
        file = pq.ParquetFile(rest.content, pre_buffer=True, coerce_int96_timestamp_unit="us")
        columns = match(schema.names, file.schema_arrow.names, name)
        wanted = [columns[column] for column in schema.names if column in columns]
        old = _int96(file) & set(wanted)
        first, skip = rest.at if isinstance(rest.at, list) else (0, 0)
        for group in range(first, file.num_row_groups):
            if not piece.start <= _middle(file.metadata.row_group(group), piece) < piece.end:
                continue
            read = 0
            for batch in file.iter_batches(rest.most, row_groups=[group], columns=wanted):
                for column in old:
                    _check_int96(batch.column(column), column)
                read += batch.num_rows
                left = min(batch.num_rows, read - (skip if group == first else 0))
                if left > 0:
                    unread = batch.slice(batch.num_rows - left)
                    yield fit(unread, schema, columns, name), [group, read]


def _middle(group: Any, piece: Piece) -> int:
    column = group.column(0)
    start = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    size = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
    return int(min(start + size // 2, piece.pin.size - 1))


def arrow_schema_of(content: pa.NativeFile, name: str) -> pa.Schema:
    """The schema of an Arrow file or stream."""
    with malformed(name):
        return engine_schema(_open_arrow(content).schema)


def read_arrow(rest: Rest) -> Iterator[Step]:
    """As ``read_parquet``; the first piece of a stream file is the whole file."""
    schema, name = rest.schema, rest.name
    with malformed(name):
        file = _open_arrow(rest.content)
        columns = match(schema.names, file.schema.names, name)
        first, skip = rest.at if isinstance(rest.at, list) else (0, 0)
        for number, batch in _numbered(file, rest.piece, first):
            for begin in range(skip if number == first else 0, batch.num_rows, rest.most):
                part = batch.slice(begin, rest.most)
                yield fit(part, schema, columns, name), [number, begin + part.num_rows]


def _numbered(file: Any, piece: Piece, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    if isinstance(file, pa.RecordBatchStreamReader):
        if piece.start == 0:
            yield from ((n, batch) for n, batch in enumerate(file) if n >= first)
        return
    count = file.num_record_batches
    for number in range(first, count):
        if piece.start <= piece.pin.size * (2 * number + 1) // (2 * count) < piece.end:
            yield number, file.get_batch(number)


def _open_arrow(content: pa.NativeFile) -> Any:
    is_file = content.read(len(_ARROW)) == _ARROW
    content.seek(0)
    return pa.ipc.open_file(content) if is_file else pa.ipc.open_stream(content)
