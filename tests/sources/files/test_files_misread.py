"""What other readers were reported to lose or change in silence is read right, or refused by name."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import itertools
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_core.errors import OptionError, RowError, SchemaError
from abs_sources.files import FileOptions, FileSource, lines
from tests.sources.files.fill import Folder
from tests.sources.files.test_files_reading import rows_of

ID = pa.schema([("id", pa.int64())])
THREE = pa.schema([("i", pa.int32()), ("t", pa.string()), ("u", pa.string())])
MOMENT, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize("blank", ["", "\n", "\r\n", "\n\n", " \n", "\ufeff\n"])
@pytest.mark.parametrize(
    ("name", "packed"), [("b.csv", bytes), ("b.csv.gz", gzip.compress), ("b.csv.bz2", bz2.compress)]
)
@pytest.mark.parametrize("piece", [1, 4, 100])
def test_blank_lines_before_a_csv_header_lose_no_row(
    blank: str, name: str, packed: type[bytes], piece: int, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put(name, packed(f"{blank}id\n2\n3\n".encode()))
    how = {"partition_bytes": piece, "chunk": 4}
    found = rows_of(disk, ID, {"fileformat": "csv", "header": "true"}, how)
    assert [row["id"] for row in found] == [2, 3]


@pytest.mark.parametrize("content", ["", "\n", " \n\n", "\ufeff", "id\n", "\nid"])
def test_a_csv_file_without_a_record_has_no_rows(content: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("a.csv", content.encode())
    assert rows_of(disk, ID, {"fileformat": "csv", "header": "true"}) == []


@pytest.mark.parametrize("header", ['"id\n"', '"id"x', '"id'])
def test_a_csv_header_that_is_no_line_of_the_form_is_refused(header: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("a.csv", f"{header},t\n1,a\n".encode())
    with pytest.raises(
        RowError, match=r"The file .*a\.csv has a value with a line break in it, or quotes"
    ):
        rows_of(disk, ID, {"fileformat": "csv", "header": "true"})


@pytest.mark.parametrize(
    ("escape", "line", "value"),
    [
        ("\\", "1,C:\\new\\tmp,x", "C:\\new\\tmp"),
        ("\\", '1,"D:\\x, y",x', "D:\\x, y"),
        ("\\", '1,"say \\"hi\\" now",x', 'say "hi" now'),
        ("\\", '1,"ends in \\\\",x', "ends in \\"),
        ("\\", "1,a\\\\b,x", "a\\\\b"),
        ('"', '1,"a ""b""",x', 'a "b"'),
        ("", '1,"a ""b""",x', 'a "b"'),
        ("", '1,5" pipe,x', '5" pipe'),
        ("", '1,"C:\\new\\",x', "C:\\new\\"),
    ],
)
def test_only_an_escape_before_a_quote_or_itself_within_quotes_is_one(
    escape: str, line: str, value: str, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put("a.csv", f"{line}\n".encode())
    [row] = rows_of(disk, THREE, {"fileformat": "csv", "escape": escape})
    assert (row["t"], row["u"]) == (value, "x")


@pytest.mark.parametrize(
    "line", ['1,"say \\"hi\\" now",x', '1,"abc"def,x', '1,"abc" ,x', '1,"a"b"c",x']
)
def test_quotes_of_another_dialect_are_refused(line: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("a.csv", f"0,a,b\n{line}\n".encode())
    with pytest.raises(RowError, match="quotes in another dialect"):
        rows_of(disk, THREE, {"fileformat": "csv"})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (MOMENT, "2026-01-02T03:04:05"),
        (MOMENT, "2026-01-02"),
        (CLOCK, "2026-01-02T03:04:05+05:00"),
        (CLOCK, "2026-01-02T03:04:05Z"),
    ],
)
@pytest.mark.parametrize("form", ["json", "csv", "in a struct", "in a list", "in a map"])
def test_a_time_that_another_zone_would_move_is_refused(
    kind: pa.DataType, text: str, form: str, tmp_path: Path
) -> None:
    wrapped, line = {
        "csv": (kind, text),
        "json": (kind, f'{{"at": "{text}"}}'),
        "in a struct": (pa.struct([("t", kind)]), f'{{"at": {{"t": "{text}"}}}}'),
        "in a list": (pa.list_(kind), f'{{"at": ["{text}"]}}'),
        "in a map": (pa.map_(pa.string(), kind), f'{{"at": {{"k": "{text}"}}}}'),
    }[form]
    disk = Folder(tmp_path)
    disk.put("a", f"{line}\n".encode())
    with pytest.raises(RowError, match=r"at.* is '2026.*its form is 2026-01-02T03:04:05.*, with"):
        rows_of(
            disk, pa.schema([("at", wrapped)]), {"fileformat": "csv" if form == "csv" else "json"}
        )


def test_json_numbers_that_are_no_numbers_maps_and_binary_at_any_depth_are_read(
    tmp_path: Path,
) -> None:
    deep = pa.struct([("b", pa.binary()), ("m", pa.map_(pa.string(), pa.float64()))])
    schema = pa.schema([("f", pa.float32()), ("s", deep), ("t", pa.string())])
    disk = Folder(tmp_path)
    infinite = '{"f": "-Infinity", "s": {"b": "AP8=", "m": {"k": "Infinity", "l": null}}}'
    disk.put("a", f'{{"f": 1.5, "s": null, "t": "NaN"}}\n{infinite}\n'.encode())
    inner = {"b": b"\x00\xff", "m": [("k", float("inf")), ("l", None)]}
    assert rows_of(disk, schema, {"fileformat": "json"}) == [
        {"f": 1.5, "s": None, "t": "NaN"}, {"f": float("-inf"), "s": inner, "t": None},
    ]  # fmt: skip
    plain = pa.schema([("f", pa.float32()), ("t", pa.string())])
    disk.put("a", b'{"f": 1.5, "t": "NaN"}\n{"f": "-Infinity"}\n{"f": 2}\n')
    found = rows_of(disk, plain, {"fileformat": "json"})
    assert found == [{"f": 1.5, "t": "NaN"}, {"f": float("-inf"), "t": None}, {"f": 2.0, "t": None}]


@pytest.mark.parametrize(
    ("form", "line"),
    [("json", '{"a":1} {"a":2}'), ("json", '[{"a":1}]'), ("json", '{"a":1,"a":2}')],
)
def test_a_json_line_that_is_not_one_object_is_refused(
    form: str, line: str, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put("a", f'{{"a": 0}}\n{line}\n'.encode())
    with pytest.raises(RowError, match=r"The file .*/a .*in the line b"):
        rows_of(disk, pa.schema([("a", pa.int32())]), {"fileformat": form})


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_later_file_of_another_type_is_refused_with_its_column_and_both_types(
    form: str, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    late = pa.array([dt.datetime.fromisoformat("2026-01-02T23:30:00")], CLOCK)
    table = pa.table({"a": pa.StructArray.from_arrays([late], names=["D"])})
    out = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, out)
    else:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    disk.put("b", out.getvalue())
    schema = pa.schema([("A", pa.struct([("d", pa.date32())]))])
    with pytest.raises(
        SchemaError, match=r"The column A of the file .*/b is .*A\.d is timestamp_ntz, not date"
    ):
        rows_of(disk, schema, {"fileformat": form})


def test_instants_of_96_bits_are_instants_within_structs_lists_and_maps(tmp_path: Path) -> None:
    moments = pa.array([dt.datetime.fromisoformat("2026-01-02T03:04:05")], CLOCK)
    struct = pa.StructArray.from_arrays([moments], names=["t"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), moments)
    out = io.BytesIO()
    pq.write_table(pa.table({"s": struct, "l": lists}), out, use_deprecated_int96_timestamps=True)
    disk = Folder(tmp_path)
    disk.put("a", out.getvalue())
    stored = FileSource(FileOptions.parse(disk.given, streaming=True)).schema
    assert stored == pa.schema([("s", pa.struct([("t", MOMENT)])), ("l", pa.list_(MOMENT))])


def test_what_the_quick_look_at_quotes_lets_pass_the_pattern_does_not_refuse() -> None:
    form = lines.CsvForm()
    texts = [bytes(t) for n in range(8) for t in itertools.product(b'",a\n', repeat=n)]
    passed = [t for t in texts if b'"' in t and lines._is_quoted_plainly(t, b'"', b",")]
    assert len(passed) > 1000
    assert all(
        form._by_pattern(t, "f").removesuffix(b"\n") == t.removesuffix(b"\n") for t in passed
    )


@pytest.mark.parametrize("nested", [False, True])
def test_96_bits_whose_day_has_overflowed_are_refused(nested: bool, tmp_path: Path) -> None:
    day = -107_700_000  # what Spark writes for the year 289,000 or so
    moments = pa.array([dt.datetime.fromisoformat("2026-01-02T00:00:01")], CLOCK)
    column = pa.StructArray.from_arrays([moments], names=["t"]) if nested else moments
    out = io.BytesIO()
    table = pa.table({"c": column})
    plain: Any = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(table, out, use_deprecated_int96_timestamps=True, **plain)
    julian = 2_440_588 + (dt.date(2026, 1, 2) - dt.date(1970, 1, 1)).days
    old, new = (struct.pack("<qi", 1_000_000_000, each) for each in (julian, day))
    assert out.getvalue().count(old) == 1
    disk = Folder(tmp_path)
    disk.put("a", out.getvalue().replace(old, new))
    with pytest.raises(RowError, match=r"/a .*c has a moment that INT96 does not hold"):
        rows_of(disk, None)


@pytest.mark.parametrize("way", ["by Arrow", "by Python"])
def test_a_float_in_json_is_rounded_once(way: str, tmp_path: Path) -> None:
    # By way of a double it would be 1.0000002, and so is no nearer.
    disk = Folder(tmp_path)
    disk.put("a", b'{"f": 1.00000017881393432617187499}\n')
    more = [pa.field("m", pa.map_(pa.string(), pa.string()))] if way == "by Python" else []
    schema = pa.schema([pa.field("f", pa.float32()), *more])
    [row] = rows_of(disk, schema, {"fileformat": "json"})
    assert row["f"] == 1 + 2**-23


def test_a_return_ends_a_line_of_text_and_of_json(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("a", b"one\rtwo\r\n\rfour")
    text = pa.schema([("value", pa.string())])
    found = rows_of(disk, text, {"fileformat": "text"})
    assert [row["value"] for row in found] == ["one", "two", "", "four"]
    disk.put("a", b'{"id": 1}\r{"id": 2}\r')
    assert rows_of(disk, ID, {"fileformat": "json"}) == [{"id": 1}, {"id": 2}]


def test_without_quotes_nothing_and_nullvalue_are_null_with_them_they_are_texts(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    disk.put("a", b'1,,NA\n2,"","NA"\n')
    given = {"fileformat": "csv", "nullValue": "NA"}
    assert [(row["t"], row["u"]) for row in rows_of(disk, THREE, given)] == [
        (None, None),
        ("", "NA"),
    ]
    assert rows_of(disk, THREE, {**given, "quote": ""})[1] == {"i": 2, "t": '""', "u": '"NA"'}


SPARK_S: Mapping[str, str] = {
    "multiLine": "one record a line",
    "mode": "always an error",
    "columnNameOfCorruptRecord": "always an error",
    "emptyValue": "the empty text",
    "timestampFormat": "to_timestamp",
    "timestampNTZFormat": "to_timestamp_ntz",
    "dateFormat": "to_date",
    "comment": "without comments",
    "enforceSchema": "by the header's names",
    "nanValue": "cast in the query",
    "encoding": "UTF-8",
    "ignoreLeadingWhiteSpace": "trim",
}


@pytest.mark.parametrize("option", SPARK_S)
def test_an_option_of_spark_s_reader_is_refused_with_what_to_do_instead(option: str) -> None:
    with pytest.raises(OptionError) as error:
        FileOptions.parse({"path": "/x", "fileformat": "csv", option: "x"}, streaming=False)
    assert option.lower() in str(error.value).lower()
    assert SPARK_S[option] in str(error.value)
