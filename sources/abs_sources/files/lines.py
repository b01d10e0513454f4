"""Reads files of lines (JSON, CSV, text): a piece has the lines that begin in it.

Arrow parses a chunk of whole lines at once; progress is the position of the next byte. Compressed
files are read from the beginning, by one reader.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from abs_clients.options import Option, boolean
from abs_core.errors import RowError, SchemaError
from abs_sources.files.columnar import Rest, Step, malformed
from abs_sources.files.jsontypes import from_json, json_schema
from abs_sources.files.model import Piece
from abs_sources.files.schema import fit, match

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_BOM = b"\xef\xbb\xbf"
_NULL_LINE = re.compile(rb"(?:\A|\n)[ \t\r]*null(?![ \t\r]*[,}\]\w])")
_OVER = 65_536
"""Bytes read beyond a piece, to find the end of its last line."""

Parse = Callable[[bytes], pa.RecordBatch | None]


def one_character(text: str) -> str:
    unescaped = {"\\t": "\t"}.get(text, text)
    if len(unescaped) != 1 or unescaped in "\r\n":
        raise ValueError("one character")
    return unescaped


def one_or_none(text: str) -> str:
    return one_character(text) if text else ""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """Format of a CSV file; the names are Spark's.

    Args:
        header: the first line names the columns; else they are the schema's, in order.
        quote: around a value that contains a separator; empty: none.
        escape: before a quote within a value; empty: it is doubled instead.
        nullvalue: unquoted text for null.
    """

    header: Annotated[bool, boolean] = False
    sep: Annotated[str, one_character] = ","
    quote: Annotated[str, one_or_none] = '"'
    escape: Annotated[str, one_or_none] = ""
    nullvalue: Annotated[str, Option("nullValue", str, "")] = ""


def codec_of(path: str) -> str | None:
    """The codec of a file with this name; None if it is not compressed."""
    return next((codec for end, codec in CODECS.items() if path.endswith(end)), None)


def read_json(rest: Rest) -> Iterator[Step]:
    """One JSON object per line; fields that are not in the schema are ignored.

    Raises RowError for a line that is not an object, or a value that does not fit or is not UTF-8.
    """
    schema, name = rest.schema, rest.name
    options = pyarrow.json.ParseOptions(
        explicit_schema=json_schema(schema), unexpected_field_behavior="ignore"
    )

    def parse(lines: bytes) -> pa.RecordBatch:
        if b"null" in lines and _NULL_LINE.search(lines):
            # Arrow makes a row without a value of it, and dies of one that comes first (26.0.1).
            raise RowError(
                f"The file {name} has a line that is null instead of a JSON object.",
                remedy="remove the line; no line is skipped silently.",
            )
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        batch = _one(pyarrow.json.read_json(pa.BufferReader(lines), read, options))
        batch.validate(full=True)  # Arrow reads JSON that is not UTF-8
        return from_json(batch, schema, name)

    return _steps(rest, parse)


def read_csv(rest: Rest, form: CsvForm) -> Iterator[Step]:
    """One record per line; a value with a line break is an error, also in a column not in the schema.

    An empty line of a file with one column is a record, whose value is NULL; in other files it is none.

    Raises RowError for a wrong number of values or one that does not fit, SchemaError if the header
    lacks a column.
    """
    schema, name = rest.schema, rest.name
    names, skip = schema.names, 0
    if form.header:
        with malformed(name):
            names, skip = _header(rest.content, name, form)
        if not names:
            return
    columns = match(schema.names, names, name)
    for column in schema.names:
        if column not in columns:
            raise SchemaError(
                f"The file {name} has no column {column}; it has {', '.join(names)}.",
                remedy="correct the schema, or the options header and sep.",
            )
    alone = len(names) == 1
    parsing = pyarrow.csv.ParseOptions(
        delimiter=form.sep,
        quote_char=form.quote or False,
        double_quote=not form.escape,
        escape_char=form.escape or False,
        ignore_empty_lines=not alone,
    )
    kinds = {columns[field.name]: field.type for field in schema}
    converting = partial(
        pyarrow.csv.ConvertOptions,
        column_types=dict.fromkeys(names, pa.binary()) | kinds,
        null_values=[form.nullvalue],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    breaking = [sign.encode() for sign in (form.quote, form.escape) if sign]

    def parse(lines: bytes) -> pa.RecordBatch:
        read = pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(lines) + 1, column_names=names
        )
        may_break = any(sign in lines for sign in breaking)
        convert = converting(include_columns=[] if may_break else list(kinds))
        batch = _one(pyarrow.csv.read_csv(pa.BufferReader(lines), read, parsing, convert))
        if may_break:
            _refuse_line_breaks(batch, name)
        return fit(batch, schema, columns, name)

    yield from _steps(rest, parse, skip, blank=b"" if alone else b"\r\n")


def read_text(rest: Rest) -> Iterator[Step]:
    """One row per line, without ``\\n`` or ``\\r\\n``; raises RowError if it is not UTF-8."""

    def parse(lines: bytes) -> pa.RecordBatch:
        whole = lines[:-1] if lines.endswith(b"\n") else lines
        text = pa.array([whole], pa.large_binary()).cast(pa.large_string())
        found = pc.split_pattern(text, "\n").values
        if b"\r" in lines:
            found = pc.replace_substring_regex(found, "\r$", "")
        column = found.cast(rest.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=rest.schema)

    return _steps(rest, parse, blank=b"")


def _steps(rest: Rest, parse: Parse, skip: int = 0, *, blank: bytes = b" \t\r\n") -> Iterator[Step]:
    """Parse whole lines; those that consist of bytes of ``blank`` only are no records."""
    codec = codec_of(rest.name)
    cut = _plain if codec is None else partial(_unpacked, codec)
    with malformed(rest.name):
        for lines, after in cut(rest, skip):
            if blank and not lines.strip(blank):
                continue
            batch = parse(lines)
            if batch is not None and batch.num_rows:
                yield batch, after


def _plain(rest: Rest, skip: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines that begin in the piece, and the position after them."""
    content, piece, chunk, size = rest.content, rest.piece, rest.most, rest.piece.pin.size
    place = rest.at if isinstance(rest.at, int) else _first_line(content, piece, chunk, skip)
    while place < min(piece.end, size):
        lines = b""
        cut = 0
        while cut == 0:
            content.seek(place + len(lines))
            beyond = max(0, piece.end - place - len(lines)) + _OVER
            more = content.read(min(max(chunk, len(lines)), beyond))
            lines += more
            # The last line of the piece is the one that its last byte is in.
            last = max(0, piece.end - 1 - place)
            inside = len(lines) > last
            cut = 1 + (lines.find(b"\n", last) if inside else lines.rfind(b"\n"))
            if place + len(lines) >= size and cut == 0:
                cut = len(lines)
            if not more:
                break
        if cut == 0:
            return
        yield _without_mark(lines[:cut], place), place + cut
        place += cut


def _first_line(content: pa.NativeFile, piece: Piece, chunk: int, skip: int) -> int:
    """Position of the first line that begins in the piece."""
    if piece.start <= skip:
        return skip
    place = piece.start - 1
    while True:
        content.seek(place)
        block = content.read(chunk)
        found = block.find(b"\n")
        if found >= 0 or not block:
            return int(place + found + 1) if block else piece.pin.size
        place += len(block)


def _unpacked(codec: str, rest: Rest, skip: int) -> Iterator[tuple[bytes, int]]:
    """As ``_plain``, with positions in the decompressed content."""
    if rest.piece.start != 0:
        return
    stream = pa.CompressedInputStream(rest.content, codec)
    place = max(skip, rest.at if isinstance(rest.at, int) else 0)
    _pass_over(stream, place)
    lines = b""
    while block := stream.read(rest.most):
        lines += block
        cut = lines.rfind(b"\n") + 1
        if cut:
            yield _without_mark(lines[:cut], place), place + cut
            place, lines = place + cut, lines[cut:]
    if lines:
        yield _without_mark(lines, place), place + len(lines)


def _pass_over(stream: pa.NativeFile, count: int) -> None:
    while count > 0:
        passed = len(stream.read(min(count, 1 << 20)))
        if passed == 0:
            return
        count -= passed


def _header(content: pa.NativeFile, name: str, form: CsvForm) -> tuple[list[str], int]:
    """The names in the first line, and the position of the second."""
    codec = codec_of(name)
    # Not over the file itself: with the stream Arrow would close it.
    stream = content if codec is None else pa.CompressedInputStream(_Lent(content), codec)
    content.seek(0)
    line = io.BufferedReader(_Lent(stream), 65_536).readline()
    content.seek(0)
    try:
        text = line.removeprefix(_BOM).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise RowError(
            f"The header of the file {name} is not UTF-8.", remedy="write the file in UTF-8."
        ) from error
    how: dict[str, Any] = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    rows = list(csv.reader([text], delimiter=form.sep, strict=True, **how))
    return (rows[0] if rows else []), len(line)


def _refuse_line_breaks(batch: pa.RecordBatch, name: str) -> None:
    """Raise RowError if a value has one: where a chunk or a piece ends there, it would be two rows."""
    texts = [c for c in batch.columns if pa.types.is_string(c.type) or pa.types.is_binary(c.type)]
    if any(pc.any(pc.match_substring(text, "\n")).as_py() for text in texts):
        raise RowError(
            f"The file {name} has a value with a line break in it.",
            remedy="write one record a line, or read the file with Spark's own source and multiLine.",
        )


class _Lent(io.RawIOBase):
    """A file that stays open when this is closed."""

    def __init__(self, content: pa.NativeFile) -> None:
        super().__init__()
        self._content = content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read: bytes = self._content.read(len(buffer))
        buffer[: len(read)] = read
        return len(read)


def _without_mark(lines: bytes, place: int) -> bytes:
    return lines.removeprefix(_BOM) if place == 0 else lines


def _one(table: pa.Table) -> pa.RecordBatch:
    [batch] = table.combine_chunks().to_batches()
    return batch
