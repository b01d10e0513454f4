"""The rows of a CSV file are those that were written: however it is cut, whichever columns are read."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abs_core.errors import RowError
from abs_sinks.s3.formats import encoder
from abs_sinks.s3.options import S3Options
from abs_sources.files import lines
from abs_sources.files.lines import CsvForm
from tests.planted import planted
from tests.sources.files.fill import Folder
from tests.sources.files.test_files_reading import rows_of

Value = str | None
VALUES = st.none() | st.text('a1"\\, \t\r\n€\ufeff', max_size=4)
MARK = "\ufeff"


def written(rows: list[list[Value]], sep: str, escape: str) -> bytes:
    """A CSV file: NULL is nothing, a text is in quotes unless it consists of plain signs."""

    def field(value: Value) -> str:
        if value is None:
            return ""
        if value and set(value) <= set("a1€" + MARK):
            return value
        if escape:
            value = value.replace(escape, 2 * escape)
        return '"' + value.replace('"', f'{escape or chr(34)}"') + '"'

    return "".join(sep.join(map(field, row)) + "\n" for row in rows).encode()


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    width=st.integers(1, 3),
    sep=st.sampled_from([",", "\t", " "]),
    escape=st.sampled_from(["", "\\"]),
    chunk=st.integers(1, 60),
    piece=st.integers(1, 80),
    packing=st.booleans(),
    ended=st.booleans(),
    data=st.data(),
)
def test_csv_rows_are_the_same_however_a_file_is_cut(
    width: int,
    sep: str,
    escape: str,
    chunk: int,
    piece: int,
    packing: bool,
    ended: bool,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    rows = data.draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=8))
    names = ["a", "b", "c"][:width]
    read = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    disk = Folder(tmp_path)
    for name in disk.names():
        disk.delete(name)
    content = (MARK + sep.join(names)).encode() + b"\n" + written(rows, sep, escape)
    if not ended and rows and rows[-1] != [None]:
        content = content[:-1]
    disk.put("f.csv.gz" if packing else "f.csv", gzip.compress(content) if packing else content)
    schema = pa.schema([(name, pa.string()) for name in read])
    options = {"fileformat": "csv", "header": "true", "sep": sep, "escape": escape}
    how = {"chunk": chunk, "partition_bytes": piece}
    if any("\n" in value for row in rows for value in row if value is not None):
        with pytest.raises(RowError):
            rows_of(disk, schema, options, how)
        return
    there = [dict(zip(names, row, strict=True)) for row in rows]
    found = rows_of(disk, schema, options, how)
    assert found == [{name: row[name] for name in read} for row in there]


def test_what_arrow_misreads_at_the_ends_of_a_block_is_read(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("f.csv", f'a,b\n{MARK}x,y\n{MARK}x,"y"\n"x",'.encode())
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    options = {"fileformat": "csv", "header": "true"}
    found = rows_of(disk, schema, options, {"chunk": 4})
    assert found == [{"a": f"{MARK}x", "b": "y"}] * 2 + [{"a": "x", "b": None}]


@pytest.mark.parametrize("form", ["csv", "json", "text"])
@pytest.mark.parametrize("name", ["f", "f.gz"])
def test_a_file_of_a_mark_alone_has_no_rows(form: str, name: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    content = MARK.encode()
    disk.put(name, gzip.compress(content) if name.endswith("gz") else content)
    schema = pa.schema([("value", pa.string())])
    assert rows_of(disk, schema, {"fileformat": form}, {}) == []


def test_the_check_of_blocks_sees_those_that_arrow_gets_as_they_are(tmp_path: Path) -> None:
    with planted((lines, "csv_block", lambda block: block)):
        test_what_arrow_misreads_at_the_ends_of_a_block_is_read(tmp_path)


@pytest.mark.parametrize("chunk", [4, 8, 12, 1000])
@pytest.mark.parametrize("piece", [6, 1000])
def test_an_escape_outside_of_quotes_is_an_ordinary_sign_also_before_a_line_s_end(
    chunk: int, piece: int, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put("f.csv", b"0,zero\n1,one\\\n2,two\n")
    schema = pa.schema([("number", pa.string()), ("word", pa.string())])
    how = {"chunk": chunk, "partition_bytes": piece}
    found = rows_of(disk, schema, {"fileformat": "csv", "escape": "\\"}, how)
    assert [row["word"] for row in found] == ["zero", "one\\", "two"]


@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "csv"])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("chunk", [1, 1000])
def test_what_the_s3_sink_writes_is_read_again_row_by_row(
    form: str, width: int, chunk: int, tmp_path: Path
) -> None:
    values = [None, "", " ", "\t", "a", '"', None, ",", "€", "\\", None]
    table = pa.table(dict.fromkeys(["a", "b"][:width], values))
    options = S3Options.parse({"path": "s3://bucket/folder", "fileformat": form})
    out = io.BytesIO()
    made = encoder(out, table.schema, options)
    made.write(table)
    made.close()
    disk = Folder(tmp_path)
    disk.put(f"f.{form}", out.getvalue())
    header = {"header": "true"} if form == "csv" else {}
    found = rows_of(disk, table.schema, {"fileformat": form, **header}, {"chunk": chunk})
    assert found == table.to_pylist()


OWN = [
    pa.array([1.5, float("inf"), -0.0, None]),
    pa.array([1.5, float("-inf")], pa.float32()),
    pa.array([[("a", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
    pa.array([[(1, "x")], None], pa.map_(pa.int32(), pa.string())),
    pa.array([1_767_355_200_000_001, None], pa.timestamp("us", "UTC")),
    pa.array([1_767_355_200_000_001, None], pa.timestamp("us")),
    pa.array([20_455, None], pa.date32()),
    pa.array([3_723_000_001, None], pa.time64("us")),
    pa.array([True, None]),
    pa.array(["NaN", "", " x", '"', None]),
]


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("column", OWN, ids=lambda column: str(column.type))
def test_every_type_that_the_s3_sink_writes_as_text_is_read_again(
    form: str, column: pa.Array, tmp_path: Path
) -> None:
    if form == "csv" and pa.types.is_nested(column.type):
        pytest.skip("the sink refuses it")
    table = pa.table({"v": column, "n": range(len(column))})
    out = io.BytesIO()
    made = encoder(
        out, table.schema, S3Options.parse({"path": "s3://bucket/folder", "fileformat": form})
    )
    made.write(table)
    made.close()
    disk = Folder(tmp_path)
    disk.put("f", out.getvalue())
    header = {"header": "true"} if form == "csv" else {}
    assert rows_of(disk, table.schema, {"fileformat": form, **header}) == table.to_pylist()


def test_a_file_cut_behind_an_opening_quote_is_refused_also_by_a_python_that_matches_part_of_a_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    match = re.match

    def before_3_11_5(pattern: bytes, text: bytes) -> re.Match[bytes] | None:
        found = match(
            pattern, text
        )  # gh-106052: what the last, failing repetition took stays taken
        part = found and text[found.end() :] == b'"'
        return match(b"(?s:.*)", text) if part else found

    with monkeypatch.context() as patch:
        patch.setattr(re, "match", before_3_11_5)
        with pytest.raises(RowError, match="quotes in another dialect"):
            CsvForm().plain(b'1,"', "a.csv")
