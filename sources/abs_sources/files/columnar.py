"""Reads Parquet and Arrow files: a piece has the row groups or batches whose middle is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from abs_core.errors import RowError
from abs_sources.files.errors import reading
from abs_sources.files.model import Piece
from abs_sources.files.schema import engine_schema, fit, match

Progress = list[int] | int | None
"""The read part of a piece: a row group or batch, and rows of it; or a byte of a file of lines."""
Step = tuple[pa.RecordBatch, Progress]

_ARROW = b"ARROW1"
_INSTANT = pa.timestamp("us", "UTC")


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
                remedy="correct the option fileformat or the schema, or move the file away; no "
                "file is skipped silently.",
            ) from error


def parquet_schema(content: pa.NativeFile, name: str) -> pa.Schema:
    """The schema of a Parquet file; 96-bit timestamps, as Spark writes them, are in UTC."""
    with malformed(name):
        file = pq.ParquetFile(content)
        columns = (file.schema.column(n) for n in range(len(file.schema)))
        old = {column.path for column in columns if column.physical_type == "INT96"}
        fields = engine_schema(file.schema_arrow)
        return pa.schema([f.with_type(_INSTANT) if f.name in old else f for f in fields])


def read_parquet(
    content: pa.NativeFile, piece: Piece, at: Progress, schema: pa.Schema, rows: int, name: str
) -> Iterator[Step]:
    """Batches of at most ``rows`` rows, from the position ``at``.

    Raises RowError or SchemaError if the file does not have the schema's columns.
    """
    with malformed(name):
        file = pq.ParquetFile(content, pre_buffer=True, coerce_int96_timestamp_unit="us")
        columns = match(schema.names, file.schema_arrow.names, name)
        wanted = [columns[column] for column in schema.names if column in columns]
        first, skip = at if isinstance(at, list) else (0, 0)
        for group in range(first, file.num_row_groups):
            if not piece.start <= _middle(file.metadata.row_group(group), piece) < piece.end:
                continue
            read = 0
            for batch in file.iter_batches(rows, row_groups=[group], columns=wanted):
                read += batch.num_rows
                left = min(batch.num_rows, read - (skip if group == first else 0))
                if left > 0:
                    rest = batch.slice(batch.num_rows - left)
                    yield fit(rest, schema, columns, name), [group, read]


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


def read_arrow(
    content: pa.NativeFile, piece: Piece, at: Progress, schema: pa.Schema, rows: int, name: str
) -> Iterator[Step]:
    """As ``read_parquet``; the first piece of a stream file is the whole file."""
    with malformed(name):
        file = _open_arrow(content)
        columns = match(schema.names, file.schema.names, name)
        first, skip = at if isinstance(at, list) else (0, 0)
        for number, batch in _numbered(file, piece, first):
            for begin in range(skip if number == first else 0, batch.num_rows, rows):
                part = batch.slice(begin, rows)
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
