"""CSV and JSON files as columns of text, exactly as written: no inference, no rounding."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
from duckdb import DuckDBPyConnection

from abs_core.errors import DataError

BLOCK_BYTES = 4 << 20
"""How much of a file is parsed at once."""


def text_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


def csv_columns(files: Iterable[Path]) -> list[str]:
    """Names in the header lines, in order of appearance."""
    names: dict[str, None] = {}
    for path in files:
        with _ended(path) as file, pc.open_csv(file, parse_options=_CSV_DIALECT) as reader:
            names.update(dict.fromkeys(reader.schema.names))
    return list(names)


def csv_batches(path: Path, names: Sequence[str], null: str | None) -> Iterator[pa.RecordBatch]:
    """The columns ``names`` of a file, as text; NULL for a column that it lacks."""
    convert = pc.ConvertOptions(
        column_types=text_schema(names),
        include_columns=list(names),
        include_missing_columns=True,
        null_values=["", *([null] if null else [])],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = pc.ReadOptions(block_size=BLOCK_BYTES)
    with _ended(path) as file, pc.open_csv(file, read, _CSV_DIALECT, convert) as reader:
        yield from reader


@contextlib.contextmanager
def _ended(path: Path) -> Iterator[pa.NativeFile]:
    """The text of a file, whose last line ends (see ``csv_block``)."""
    with pa.input_stream(str(path)) as text, pa.PythonFile(_Ended(text), mode="r") as file:
        yield file


class _Ended(io.RawIOBase):
    """A text with an end of its last line."""

    def __init__(self, text: pa.NativeFile) -> None:
        super().__init__()
        self._text = text
        self._last = b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._text.read(None if size < 0 else size)
        if not block and size and self._last != b"\n":
            block = b"\n"
        self._last = block[-1:] or self._last
        return block


# An empty line of a file with one column is a record: NULL.
_CSV_DIALECT = pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def json_columns(connection: DuckDBPyConnection, files: Iterable[Path]) -> list[str]:
    """All keys of all objects: writers leave out nulls, so each line may lack some."""
    rows = connection.execute(
        "select distinct unnest(json_keys(json)) as name from read_ndjson_objects($1) order by all",
        [[str(path) for path in files]],
    ).fetchall()
    return [name for (name,) in rows]


def json_batches(path: Path, names: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
    """The values of ``names`` in each object, as text; numbers keep every written digit.

    ``1`` and ``"1"`` are the same text. Nested values are JSON text. Raises DataError for a line
    that is not one JSON object.

    Args:
        where: the file's name, for people.
    """
    schema = text_schema(names)
    with io.BufferedReader(pa.input_stream(str(path)), BLOCK_BYTES) as file:
        while block := file.readlines(BLOCK_BYTES):
            lines = [line for line in block if line.strip()]
            yield as_text(json_objects(lines, where), schema, where)


def json_objects(lines: Sequence[bytes], where: str) -> list[dict[str, Any]]:
    """One object per line; fractional numbers keep every written digit.

    Raises DataError for a line that is not one JSON object.
    """
    try:
        records: list[Any] = json.loads(
            b"[" + b",".join(lines) + b"]",
            parse_float=_Number,
            parse_constant=_Number,
        )
    except ValueError as error:
        raise DataError(
            f"{where} is not JSON: {error}.", remedy="write one object per line (NDJSON)."
        ) from error
    except RecursionError as error:
        raise _too_deep(where) from error
    if len(records) != len(lines) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{where} has a line that is not one JSON object.", remedy="use NDJSON.")
    return records


def as_text(records: Sequence[dict[str, Any]], schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The columns of ``text_schema`` from objects; NULL for an absent one.

    Raises DataError for a value that is nested too deep.
    """
    try:
        columns = [_text_array([record.get(name) for record in records]) for name in schema.names]
    except RecursionError as error:
        raise _too_deep(where) from error
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where} has a text with half of a surrogate pair, which is no text in UTF-8.",
            remedy="look at what wrote it; audit the other records by files without it.",
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _too_deep(where: str) -> DataError:
    return DataError(
        f"{where} has a record that is nested hundreds of levels deep, and cannot be compared.",
        remedy="look at what wrote it; audit the other records by files without it.",
    )


class _Number(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


def _text_array(values: list[Any]) -> pa.Array:
    # Arrow's own way is much the faster one; it knows columns of one kind of scalar only.
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        column = pa.array(values)
        if not pa.types.is_nested(column.type):
            return column.cast(pa.string())
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _nested_text(value)


def _nested_text(value: Any) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        items = (f"{json.dumps(key)}:{_nested_text(item)}" for key, item in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_nested_text, value))}]"
    return json.dumps(value)
