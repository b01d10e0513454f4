"""Reads files of lines (JSON, CSV, text): a piece has the lines that begin in it.

Arrow parses a chunk of whole lines at once; progress is the position of the next byte. Compressed
files are read from the beginning, by one reader.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from abs_clients.buffers import MARK, csv_block
from abs_clients.options import Option, boolean, described
from abs_core.errors import RowError, SchemaError
from abs_sources.files.columnar import Rest, Step, malformed
from abs_sources.files.jsontypes import json_batch
from abs_sources.files.model import Piece
from abs_sources.files.schema import fit, from_base64, from_text, match

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
UNREAD = (".deflate", ".snappy")
"""Spark unpacks these, too. Here their bytes, which can be valid text, would be taken for lines."""
_OVER = 65_536
"""Bytes read beyond a piece, to find the end of its last line."""

Parse = Callable[[bytes], pa.RecordBatch]


def one_character(text: str) -> str:
    unescaped = {"\\t": "\t"}.get(text, text)
    # Arrow's parser knows ASCII alone, and ``CsvForm.plain`` compares single bytes.
    if len(unescaped) != 1 or unescaped in "\r\n" or not unescaped.isascii():
        raise ValueError("one character of ASCII")
    return unescaped


def one_or_none(text: str) -> str:
    return one_character(text) if text else ""


@described
@dataclass(frozen=True, slots=True)
class CsvForm:
    """Format of a CSV file; the names are Spark's."""

    header: Annotated[
        bool,
        boolean,
        "csv: whether the first line names the columns; columns are then found by name",
    ] = False
    sep: Annotated[str, one_character, "csv: the separator of columns"] = ","
    quote: Annotated[str, one_or_none, "csv: the character around a value"] = '"'
    escape: Annotated[
        str,
        one_or_none,
        "csv: the character before a quote or itself within quotes; default: a quote is doubled",
    ] = ""
    nullvalue: Annotated[
        str,
        Option("nullValue", str, ""),
        "csv: the text that means null, without quotes; an empty field is null, too",
    ] = ""

    def plain(self, lines: bytes, name: str) -> bytes:
        """The same lines, with ``\\n`` at their ends and doubled quotes within values.

        Raises RowError for quotes that other dialects read differently, and for a value with a line
        break: where a chunk or a piece ends there, it would be two rows.
        """
        lines = lines.replace(b"\r\n", b"\n")
        quote, escape = self.quote.encode(), self.escape.encode()
        if b"\r" not in lines and (not quote or quote not in lines):
            return lines
        if escape in (b"", quote) and _is_quoted_plainly(lines, quote, self.sep.encode()):
            return lines
        return self._by_pattern(lines, name)

    def _by_pattern(self, lines: bytes, name: str) -> bytes:
        """As ``plain``, of lines that end with ``\\n``."""
        quote, escape = self.quote.encode(), self.escape.encode()
        q, e, sep = map(re.escape, (quote, escape, self.sep.encode()))
        inside = (
            b"[^%b\n]++|%b%b" % (q, q, q) if e in (b"", q) else b"[^%b%b\n]++|%b[^\n]" % (q, e, e)
        )
        quoted = b"%b((?:%b)*+)%b|(?!%b)" % (q, inside, q, q) if q else b""
        field = b"(?:%b[^%b\n\r]*+)(?:%b|\n)" % (quoted, sep, sep)
        if not lines.endswith(b"\n"):
            lines += b"\n"  # before 3.11.5, Python matches part of a field at the end (gh-106052)
        read = re.match(b"(?:%b)*+" % field, lines)
        end = read.end() if read else 0
        if end < len(lines):
            line = lines[lines.rfind(b"\n", 0, end) + 1 :].split(b"\n", 1)[0]
            raise RowError(
                f"The file {name} has a value with a line break in it, or quotes in another dialect "
                f"than the options say, in the line {line[:80]!r}.",
                remedy="set quote and escape as the writer did (Spark's own: escape=\\\\); write one "
                "record a line, or read the file with Spark's own source and multiLine.",
            )
        if not q or e in (b"", q) or escape not in lines:
            return lines

        def doubled(field: re.Match[bytes]) -> bytes:
            if field[1] is None:
                return field[0]
            value = re.sub(b"%b([%b%b])" % (e, e, q), rb"\1", field[1])
            return quote + value.replace(quote, 2 * quote) + field[0][len(field[1]) + 1 :]

        return re.sub(field, doubled, lines)


def _is_quoted_plainly(lines: bytes, quote: bytes, sep: bytes) -> bool:
    """Whether each quote stands at an end of a value, or is doubled in one, and no value has a break.

    What this does not see (False), the pattern of ``CsvForm.plain`` decides, at four times the CPU.
    """
    if b"\r" in lines or len(quote) != 1 or len(sep) != 1:
        return False
    around = np.frombuffer(b"\n" + lines + b"\n", np.uint8)
    at = np.flatnonzero(around == quote[0])
    edges = np.array([*b"\n", *sep, *quote], np.uint8)
    return (
        len(at) % 2 == 0
        and bool(np.isin(around[at[::2] - 1], edges).all())
        and bool(np.isin(around[at[1::2] + 1], edges).all())
        and not bool((np.searchsorted(at, np.flatnonzero(around == 10)) % 2).any())
    )


def codec_of(path: str) -> str | None:
    """The codec of a file with this name, in upper or lower case; None if it is not compressed."""
    name = path.lower()
    return next((codec for end, codec in CODECS.items() if name.endswith(end)), None)


def _readable_codec(name: str) -> str | None:
    """As ``codec_of``; raises RowError for a codec of ``UNREAD``."""
    if name.lower().endswith(UNREAD):
        raise RowError(
            f"The file {name} is compressed, by its name, with a codec that abs-files does not read.",
            remedy=f"compress it as one of {', '.join(CODECS)}, or rename it if it is not compressed.",
        )
    return codec_of(name)


def read_json(rest: Rest) -> Iterator[Step]:
    """One JSON object per line; fields that are not in the schema are ignored.

    Raises RowError for a line that is not an object, or a value that does not fit or is not UTF-8.
    """
    schema, name = rest.schema, rest.name
    columns = {column: column for column in schema.names}

    def parse(lines: bytes) -> pa.RecordBatch:
        return fit(json_batch(lines, schema), schema, columns, name, from_base64)

    return _steps(rest, parse)


def read_csv(rest: Rest, form: CsvForm) -> Iterator[Step]:
    """One record per line, in the form of the options; any other line is an error.

    An empty line of a file with one column is a record, whose value is NULL; in other files it is
    skipped.

    Raises RowError for a wrong number of values or one that does not fit, SchemaError if the header
    lacks a column.
    """
    schema, name = rest.schema, rest.name
    names, skip = schema.names, 0
    parsing = partial(pyarrow.csv.ParseOptions, delimiter=form.sep, quote_char=form.quote or False)
    if form.header:
        with malformed(name):
            names, skip = _header(rest.content, name, form, parsing())
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
    used = list(columns.values())
    converting = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(used, pa.string()),
        include_columns=used,
        null_values=[form.nullvalue, ""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def parse(lines: bytes) -> pa.RecordBatch:
        read = pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(lines) + 1, column_names=names
        )
        content = pa.BufferReader(csv_block(form.plain(lines, name)))
        table = pyarrow.csv.read_csv(
            content, read, parsing(ignore_empty_lines=not alone), converting
        )
        [batch] = table.combine_chunks().to_batches()
        return fit(batch, schema, columns, name, from_text)

    yield from _steps(rest, parse, skip, blank=b"" if alone else b"\r\n")


def read_text(rest: Rest) -> Iterator[Step]:
    """One row per line, up to ``\\n``, ``\\r\\n`` or ``\\r``; raises RowError if it is not UTF-8."""

    def parse(lines: bytes) -> pa.RecordBatch:
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        whole = lines[:-1] if lines.endswith(b"\n") else lines
        text = pa.array([whole], pa.large_binary()).cast(pa.large_string())
        column = pc.split_pattern(text, "\n").values.cast(rest.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=rest.schema)

    return _steps(rest, parse, blank=b"")


def _steps(rest: Rest, parse: Parse, skip: int = 0, *, blank: bytes = b" \t\r\n") -> Iterator[Step]:
    """Parse whole lines; those that consist of bytes of ``blank`` only are no records."""
    codec = _readable_codec(rest.name)
    cut = _plain if codec is None else partial(_unpacked, codec)
    with malformed(rest.name):
        for lines, after in cut(rest, skip):
            if not lines or (blank and not lines.strip(blank)):  # a mark alone is no line
                continue
            batch = parse(lines)
            if batch.num_rows:
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
        newline = block.find(b"\n")
        if newline >= 0 or not block:
            return int(place + newline + 1) if block else piece.pin.size
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


def _header(
    content: pa.NativeFile, name: str, form: CsvForm, parsing: pyarrow.csv.ParseOptions
) -> tuple[list[str], int]:
    """The names in the first line that is not blank, and the position after it; none without one."""
    codec = _readable_codec(name)
    # Not over the file itself: with the stream Arrow would close it.
    stream = content if codec is None else pa.CompressedInputStream(_Lent(content), codec)
    content.seek(0)
    end, line = 0, b""
    for read in io.BufferedReader(_Lent(stream), 65_536):
        line = _without_mark(read, end)
        end += len(read)
        if line.strip():
            break
    content.seek(0)
    if not line.strip():
        return [], end
    line = form.plain(line, name).removesuffix(b"\n") + b"\n"
    [text] = pa.array([csv_block(line)]).cast(pa.string())  # UTF-8, or an error
    return pyarrow.csv.read_csv(text.as_buffer(), parse_options=parsing).column_names, end


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
    return lines.removeprefix(MARK) if place == 0 else lines
