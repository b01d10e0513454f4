"""What the rows of a file are: every format, however it is cut; and what cannot be read is told."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abs_core.errors import (
    AbsError,
    OptionError,
    ReplayMismatchError,
    RowError,
    SchemaError,
    UnavailableError,
)
from abs_core.source import Limit, Split
from abs_services import S3Service
from abs_sources.files import FileOptions, FileSource, lines
from abs_sources.files.model import Pin
from abs_sources.files.source import OPEN_COST, pack
from tests import sample
from tests.planted import planted
from tests.sinks.s3.proxy import Fault, Plan, running
from tests.sources.files.fill import (
    TEXT,
    Bucket,
    Disk,
    Folder,
    credentials,
    packed,
    table_of,
)

Row = dict[str, Any]


def rows_of(
    disk: Disk,
    schema: pa.Schema | None,
    options: Mapping[str, str] | None = None,
    how: Mapping[str, Any] | None = None,
) -> list[Row]:
    """All rows of the place, in the order of splits and batches."""
    parsed = FileOptions.parse({**disk.given, **(options or {})}, streaming=True)
    source = FileSource(replace(parsed, log=None, **(how or {})), schema)
    start = source.initial()
    found: list[Row] = []
    for split in source.splits(start, source.latest(start, Limit())):
        reader = source.open(split)
        while not reader.finished:
            batch = reader.read(0.1)
            found += [] if batch is None else batch.to_pylist()
        reader.close()
    return found


def rows_from(source: FileSource, split: Split) -> Iterator[tuple[str, Split]]:
    """The words of a split, each with the position behind it."""
    reader = source.open(split)
    while (batch := reader.read(0.1)) is not None:
        (word,) = batch.column(0).to_pylist()
        yield word, reader.position
    assert reader.finished
    reader.close()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(st.text("ab€ ", max_size=12), max_size=20),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    chunk=st.integers(1, 60),
    piece=st.integers(1, 80),
    packing=st.booleans(),
)
def test_lines_are_the_same_however_a_file_is_cut(
    lines: list[str], end: str, last: bool, chunk: int, piece: int, packing: bool, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    for name in disk.names():
        disk.delete(name)
    text = end.join(lines) + (end if last and lines else "")
    content = text.encode()
    disk.put("f.txt.gz" if packing else "f.txt", gzip.compress(content) if packing else content)
    how = {"chunk": chunk, "partition_bytes": piece}
    found = [row["value"] for row in rows_of(disk, TEXT, {"fileformat": "text"}, how)]
    expected = text.split("\n")
    expected = [line.removesuffix("\r") for line in expected[: -1 if expected[-1] == "" else None]]
    assert found == expected


@pytest.mark.long
@sample.cases(1, of="piece")
@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "csv"])
@pytest.mark.parametrize("piece", [1, 97, 1000, 1 << 20])
def test_a_big_file_in_many_splits_has_each_row_once(form: str, piece: int, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    numbers = list(range(203))
    disk.put("a", packed(numbers, form))
    how = {"partition_bytes": piece, "chunk": 64}
    found = rows_of(disk, table_of([]).schema, {"fileformat": form}, how)
    assert sorted(row["id"] for row in found) == numbers
    assert all(row["word"] == f"word {row['id']}" for row in found)


def test_many_small_files_share_a_split_and_a_big_one_has_several(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    for number in range(40):
        disk.put(f"{number:02d}", b"%02d\n" % number)
    options = FileOptions.parse({**disk.given, "fileformat": "text"}, streaming=True)
    source = FileSource(options, TEXT)
    start = source.initial()
    small = source.latest(start, Limit())
    splits = source.splits(start, small)
    assert len(splits) == 8
    found = [list(rows_from(source, split)) for split in splits]
    assert [word for words in found for word, _ in words] == [f"{n:02d}" for n in range(40)]
    for words in found:
        for number, (_, position) in enumerate(words, 1):
            rest = [word for word, _ in rows_from(source, position)]
            assert rest == [word for word, _ in words[number:]], "a reader that goes on there"
    disk.put("big", b"x" * 99 + b"\n" + b"y" * 30_000_000)
    end = source.latest(small, Limit())
    splits = source.splits(small, end)
    assert len(splits) == 8
    assert len({split.source for split in splits}) == 8


@pytest.mark.parametrize(("short", "splits"), [(0, 2), (1, 4)])
def test_a_split_has_so_many_bytes_at_most(short: int, splits: int) -> None:
    pins = [Pin(name, 5, "s") for name in "abcd"]
    most = 2 * (5 + OPEN_COST) - short
    assert len(pack(pins, most, 1, lambda _: True)) == splits


TYPES = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
    ]
)
ROW = {
    "i": 7,
    "s": 'say "x, y"',
    "d": date(2026, 1, 2),
    "t": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
    "m": Decimal("1.50"),
    "b": True,
}
EMPTY = dict.fromkeys(TYPES.names)


def test_csv_values_as_spark_reads_them(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put(
        "a.csv",
        b"\xef\xbb\xbfS,i,extra,d,t,m,b\n"
        b'"say ""x, y""",7,z,2026-01-02,2026-01-02T03:04:05.000600Z,1.50,true\n'
        b'"",,,,,,\n,,,,,,\n',
    )
    found = rows_of(disk, TYPES, {"fileformat": "csv", "header": "true"})
    assert found == [ROW, {**EMPTY, "s": ""}, EMPTY]
    disk.put("a.csv", b"7;NA\n8;'NA'\n9;'a\\'b'\n")
    two = pa.schema([("i", pa.int32()), ("s", pa.string())])
    given = {"sep": ";", "quote": "'", "escape": "\\", "nullValue": "NA"}
    found = rows_of(disk, two, {"fileformat": "csv", **given})
    assert [row["s"] for row in found] == [None, "NA", "a'b"]


def test_json_values_as_spark_reads_them(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    nested = pa.struct([("x", pa.int16()), ("days", pa.list_(pa.date32()))])
    schema = TYPES.append(pa.field("raw", pa.binary())).append(pa.field("n", nested))
    line = (
        b'{"s": "say \\"x, y\\"", "i": 7, "extra": [1], "d": "2026-01-02", "m": 1.50, "b": true, '
        b'"t": "2026-01-02T03:04:05.000600Z", "raw": "YWJj", "n": {"x": 1, "days": ["2026-01-02"]}}'
    )
    disk.put("a.json", line + b'\n\n{}\n{"i": null}')
    empty = dict.fromkeys(schema.names)
    deep = {"x": 1, "days": [date(2026, 1, 2)]}
    assert rows_of(disk, schema, {"fileformat": "json"}) == [
        {**ROW, "raw": b"abc", "n": deep}, empty, empty,
    ]  # fmt: skip


def test_parquet_columns_are_found_by_name_and_cast_where_no_value_changes(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    words = pa.array(["a", "b"]).dictionary_encode()
    table = pa.table({"WORD": words, "id": pa.array([1, 2], pa.int16()), "more": [1, 2]})
    out = io.BytesIO()
    pq.write_table(table, out)
    disk.put("a.parquet", out.getvalue())
    schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("later", pa.float64())])
    assert rows_of(disk, schema) == [
        {"id": 1, "word": "a", "later": None}, {"id": 2, "word": "b", "later": None},
    ]  # fmt: skip
    parsed = FileOptions.parse(disk.given, streaming=True)
    assert FileSource(parsed).schema == pa.schema(
        [("WORD", pa.string()), ("id", pa.int16()), ("more", pa.int64())]
    )


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        (pa.array(["a", "a", None]).dictionary_encode(), pa.string()),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), ["a", None]), pa.string()),
        (pa.array([[1], [2, 3], None], pa.list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array([Decimal("1.50"), None, 2], pa.decimal256(10, 2)), pa.decimal128(10, 2)),
        (pa.array([Decimal("1.50"), None, 2], pa.decimal32(5, 2)), pa.decimal128(5, 2)),
        (pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()), pa.binary()),
        (pa.array([1, None, 2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
        (pa.array([None, None, None]), pa.string()),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else str(given.type),
)
def test_arrow_s_own_layouts_are_read_as_the_plain_type_with_the_same_values(
    column: pa.Array, plain: pa.DataType, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    table = pa.table({"c": column})
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    disk.put("a.arrow", out.getvalue())
    parsed = FileOptions.parse({**disk.given, "fileformat": "arrow"}, streaming=True)
    assert FileSource(parsed).schema == pa.schema([("c", plain)])
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    found = [row["c"] for row in rows_of(disk, None, {"fileformat": "arrow"})]
    assert found == stored.to_pylist()


def test_values_in_folder_names_are_columns(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    null = "__HIVE_DEFAULT_PARTITION__"
    disk.put("day=2026-01-02/w%20=a%2Fb/1.parquet", packed([1], "parquet"))
    disk.put(f"day={null}/w%20={null}/2.parquet", packed([2], "parquet"))
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("w ", pa.string())])
    found = sorted(rows_of(disk, schema), key=lambda row: str(row["id"]))
    assert found == [
        {"day": date(2026, 1, 2), "id": 1, "w ": "a/b"}, {"day": None, "id": 2, "w ": None},
    ]  # fmt: skip
    stored = FileSource(FileOptions.parse(disk.given, streaming=True)).schema
    assert stored == pa.schema([*table_of([]).schema, ("day", pa.string()), ("w ", pa.string())])
    disk.put("day=later/w%20=x/3.parquet", packed([3], "parquet"))
    with pytest.raises(RowError, match="day=later, which cannot be read as date"):
        rows_of(disk, schema)


def test_columns_of_folders_are_found_as_those_of_files_are_without_regard_to_case(
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    disk.put("Day=2026-01-02/1.parquet", packed([1], "parquet"))
    schema = pa.schema([("day", pa.date32()), ("ID", pa.int64())])
    assert rows_of(disk, schema) == [{"day": date(2026, 1, 2), "ID": 1}]
    disk.put("Day=2026-01-02/DAY=2026-01-03/2.parquet", packed([2], "parquet"))
    with pytest.raises(SchemaError, match="several columns that could be day: Day, DAY"):
        rows_of(disk, schema)


@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "text"])
def test_without_a_column_of_its_own_a_file_has_as_many_rows(form: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("value=a/1", packed(range(20), form))
    assert rows_of(disk, TEXT, {"fileformat": form}, {"chunk": 64}) == 20 * [{"value": "a"}]


@pytest.mark.parametrize(
    ("header", "error"), [("false", "Expected 1 columns, got 2"), ("true", "has no column")]
)
def test_csv_files_need_a_column_of_their_own(header: str, error: str, tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("value=a/1.csv", packed(range(20), "csv"))
    with pytest.raises((RowError, SchemaError), match=error):
        rows_of(disk, TEXT, {"fileformat": "csv", "header": header})


def test_old_timestamps_of_spark_are_instants(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    moment = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
    out = io.BytesIO()
    pq.write_table(pa.table({"t": [moment]}), out, use_deprecated_int96_timestamps=True)
    disk.put("a.parquet", out.getvalue())
    assert rows_of(disk, None) == [{"t": moment}]


ID = pa.schema([("id", pa.int8())])
ENDINGS = {"gzip": "gz", "bz2": "bz2", "zstd": "zst", "lz4": "lz4"}


def damaged_parquet() -> bytes:
    """A file whose footer is whole, and whose pages are not."""
    out = io.BytesIO()
    words = [f"word {n}" for n in range(10_000)]
    pq.write_table(pa.table({"word": words}), out, compression="snappy")
    whole = out.getvalue()
    return whole[:2000] + bytes(byte ^ 0xFF for byte in whole[2000:2600]) + whole[2600:]


def streamed(content: bytes, codec: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as stream:
        stream.write(content)
    return bytes(out.getvalue())


@pytest.mark.parametrize(
    ("content", "schema", "given", "error", "text"),
    [
        (b"1\n300\n", ID, {"fileformat": "csv"}, RowError, "column id .* cannot be read as tinyint"),
        (b"1,2\n", ID, {"fileformat": "csv"}, RowError, "Expected 1 columns"),
        (b"ID2\n1\n", ID, {"fileformat": "csv", "header": "true"}, SchemaError, "no column id"),
        (b"id,ID\n1,2\n", pa.schema([("iD", pa.int8())]), {"fileformat": "csv", "header": "true"},
         SchemaError, "several columns that could be iD"),
        (b'{"id": "x"}\n', ID, {"fileformat": "json"}, RowError, "is not of its stated format"),
        (b'{"id": 1\n', ID, {"fileformat": "json"}, RowError, "is not of its stated format"),
        (b'{"id": "?"}\n', pa.schema([("id", pa.binary())]), {"fileformat": "json"}, RowError,
         "its form is Base64"),
        (b'{"id": "YWJj===="}\n', pa.schema([("id", pa.binary())]), {"fileformat": "json"}, RowError,
         "its form is Base64"),
        (b"{}\n", pa.schema([("id", pa.list_(pa.duration("us")))]), {"fileformat": "json"},
         SchemaError, "no text of id.* is read as interval"),
        (b"\xff\n", TEXT, {"fileformat": "text"}, RowError, "UTF8"),
        (b"\xff\n", TEXT, {"fileformat": "csv"}, RowError, "UTF8"),
        (b'{"value": "\xff"}\n', TEXT, {"fileformat": "json"}, RowError, "utf-8"),
        (b"PAR1no", ID, {}, RowError, "is not of its stated format"),
        (packed([1, 300], "parquet"), ID, {}, RowError, "column id .* cannot be read as tinyint"),
        (packed([1], "arrow"), pa.schema([("word", pa.list_(pa.int8()))]), {"fileformat": "arrow"},
         SchemaError, "word of the file .* is string"),
        (b"", None, {"fileformat": "json"}, SchemaError, "do not hold one"),
        (b'null\n{"id": 1}\n', ID, {"fileformat": "json"}, RowError, "is null instead of"),
        (b'{"id": 1}\n  null \n{"id": 1}\n', ID, {"fileformat": "json"}, RowError, "is null"),
        (b'{"id": 1}\nnull', ID, {"fileformat": "json"}, RowError, "is null instead of"),
        (damaged_parquet(), None, {}, RowError, "The file .*/a is damaged, is not of"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_that_names_the_file_or_column(
    content: bytes,
    schema: pa.Schema | None,
    given: Mapping[str, str],
    error: type[AbsError],
    text: str,
    tmp_path: Path,
) -> None:
    disk = Folder(tmp_path)
    disk.put("a", content)
    with pytest.raises(error, match=text):
        rows_of(disk, schema, given)


@pytest.mark.parametrize("chunk", [4, 12, 16, 20, 1000])
@pytest.mark.parametrize("piece", [10, 1000])
def test_a_line_break_in_a_csv_value_is_an_error_wherever_the_file_is_cut(
    chunk: int, piece: int, tmp_path: Path
) -> None:
    disk = Folder(tmp_path)
    disk.put("a.csv", b'0,"zero"\n1,"one\nand, a half"\n2,two\n')
    schema = pa.schema([("number", pa.string()), ("word", pa.string())])
    with pytest.raises(RowError, match="a value with a line break"):
        rows_of(disk, schema, {"fileformat": "csv"}, {"chunk": chunk, "partition_bytes": piece})


@pytest.mark.parametrize("codec", ["gzip", "bz2", "zstd", "lz4"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut short", "garbled"])
def test_a_compressed_file_that_is_damaged_is_named(codec: str, cut: bool, tmp_path: Path) -> None:
    content = b"".join(b'{"id": %d}\n' % (n % 100) for n in range(20_000))
    whole = streamed(content, codec)
    half = len(whole) // 2
    disk, name = Folder(tmp_path), f"a.{ENDINGS[codec]}"
    disk.put(name, whole[:half] if cut else whole[:half] + b"garbage!" * 9 + whole[half + 72 :])
    with pytest.raises(RowError, match=rf"The file .*{name} is damaged"):
        rows_of(disk, ID, {"fileformat": "json"})


BY_SPARK = {
    ".gz": gzip.compress(b"abc", mtime=0),
    ".bz2": bz2.compress(b"abc"),
    ".deflate": zlib.compress(b"abc", 1),  # all of it is ASCII
    ".snappy": b"\0\0\0\x03\0\0\0\x05\x03\x08abc",  # as Hadoop frames it
    ".lz4": b"\0\0\0\x03\0\0\0\x04\x30abc",
}
"""What Spark unpacks by these names, in upper or lower case."""


def check_no_packed_bytes_are_rows(folder: Path, form: str) -> None:
    for number, (end, content) in enumerate(BY_SPARK.items()):
        for ending in (end, end.upper()):
            disk = Folder(folder / f"{number}{ending.isupper()}")
            disk.put(f"a{ending}", content)
            schema = pa.schema([("value", pa.string())])
            try:
                rows = rows_of(disk, schema, {"fileformat": form})
            except RowError:
                continue
            assert rows == [{"value": "abc"}], ending


@pytest.mark.parametrize("form", ["text", "csv"])
def test_a_file_that_spark_unpacks_by_its_name_is_unpacked_or_refused(
    form: str, tmp_path: Path
) -> None:
    check_no_packed_bytes_are_rows(tmp_path / "held", form)
    with planted((lines, "UNREAD", ())):
        check_no_packed_bytes_are_rows(tmp_path / "found", form)


@pytest.mark.parametrize("name", ["sep", "quote", "escape"])
@pytest.mark.parametrize("sign", ["ä", "\u00a0", "😀", "||", "\r"])
def test_a_sign_of_csv_that_the_parser_does_not_know_is_refused_at_once(
    name: str, sign: str
) -> None:
    with pytest.raises(OptionError, match=f"option {name} must be one character of ASCII"):
        FileOptions.parse({"path": "/x", "fileformat": "csv", name: sign}, streaming=False)


@pytest.mark.parametrize("by", ["file", "folder"])
@pytest.mark.parametrize(
    ("form", "content"), [("json", b'{"id":1}\n{"id":2}\n'), ("csv", b"id\n1\n2\n")]
)
def test_a_compressed_file_is_read_by_its_own_name_and_with_its_header(
    form: str, content: bytes, by: str, tmp_path: Path
) -> None:
    file = tmp_path / f"f.{form}.gz"
    file.write_bytes(gzip.compress(content))
    given = {"path": str(file if by == "file" else tmp_path), "fileformat": form, "header": "true"}
    if form == "json":
        del given["header"]
    source = FileSource(FileOptions.parse(given, streaming=False), ID)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()))
    batch = source.open(split).read(0.1)
    assert batch is not None
    assert batch.to_pylist() == [{"id": 1}, {"id": 2}]


@pytest.mark.services
def test_an_object_that_is_replaced_while_it_is_read_is_never_read_mixed(
    s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    disk = Bucket(s3, prefix)
    numbers = list(range(100))
    disk.put("a.json", packed(numbers, "json"))
    options = FileOptions.parse({**disk.given, "fileformat": "json"}, streaming=True)
    source = FileSource(replace(options, chunk=200), table_of([]).schema)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()))
    reader = source.open(split)
    assert reader.read(1.0) is not None
    disk.put("a.json", packed([n + 1 for n in numbers], "json"))
    with pytest.raises(ReplayMismatchError, match=r"s3://.*/a\.json has changed"):
        [reader.read(1.0) for _ in range(100)]


@pytest.mark.services
@pytest.mark.parametrize("answer", ["whole", "nothing"])
def test_a_server_that_answers_with_another_range_is_an_error(
    answer: str, s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(s3).items():
        monkeypatch.setenv(name, value)
    disk = Bucket(s3, prefix)
    content = packed(list(range(100)), "json")
    disk.put("a.json", content)
    with running(s3.endpoint) as proxy:
        # A server may ignore the header Range (RFC 9110), or say that there is no content.
        told = (200, content) if answer == "whole" else (204, b"")
        proxy.plan = Plan("GetObject", Fault.LIED, skip=1, times=1000, answer=told)
        given = {**disk.given, "endpoint": proxy.endpoint, "fileformat": "json"}
        options = replace(FileOptions.parse(given, streaming=False), chunk=200)
        source = FileSource(options, table_of([]).schema)
        start = source.initial()
        (split,) = source.splits(start, source.latest(start, Limit()))
        reader = source.open(split)
        with pytest.raises(UnavailableError, match="bytes instead of"):
            [reader.read(1.0) for _ in range(100)]


def test_a_local_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    disk.put("a", packed(list(range(100)), "parquet"))
    options = FileOptions.parse({**disk.given, "batchsize": "10"}, streaming=True)
    source = FileSource(options, table_of([]).schema)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, Limit()))
    reader = source.open(split)
    assert reader.read(1.0) is not None
    disk.put("a", packed(list(range(1, 101)), "parquet"))
    with pytest.raises(ReplayMismatchError, match="has changed"):
        reader.read(1.0)
