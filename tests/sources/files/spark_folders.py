"""What Spark makes of folder names and of files: asked once, and kept in ``spark_folders.json``.

    python -m tests.sources.files.spark_folders      # asks Spark, and writes the answers anew

Three questions: what names Spark gives to folders of values, and how it reads them; how it reads the
folders that ``abs-s3`` makes, and folders made by hand; how it reads JSON and CSV of ``abs-s3``. Each
under three session zones, where zones matter.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from abs_sinks.s3 import S3Options
from abs_sinks.s3.formats import encoder
from abs_sinks.s3.partitions import Partitioning

ANSWERS = Path(__file__).with_suffix(".json")
ZONES = ("America/New_York", "Europe/Berlin", "UTC")
UTC = pa.timestamp("us", "UTC")
_CLOCKS = [
    "0001-01-01T00:00:00", "1582-10-10T12:00:00", "1850-01-01T05:00:00.5",
    "1883-11-18T17:00:00", "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00",
    "2026-01-02T00:00:00", "2026-01-02T03:04:05", "2026-01-02T03:04:05.120000",
    "2026-03-08T07:30:00", "2026-03-29T01:30:00", "2026-10-25T00:30:00", "2026-10-25T01:30:00",
    "2026-11-01T05:30:00", "2026-11-01T06:30:00", "2026-07-04T12:00:00.000001",
    "9999-12-30T23:59:59.999999",
]  # fmt: skip
"""Also both passages of the hour that autumn repeats, and the hours that spring leaves out."""
_TIMES = [*map(datetime.fromisoformat, _CLOCKS), None]
_TEXTS = [
    "a", "", None, "a b", " lead", "trail ", "a/b", "a=b", "a%b", "%41", "a+b", "é", "日本", "😀",
    "__HIVE_DEFAULT_PARTITION__", "C:\\new", "'", '"', "#", "?", "*", "[x]", "{y}", "^", ":", "a\tb",
    "a\nb", "\x7f", "1.0", "2026-01-02", "null", ".", "..", "~", "\u2028", "&<>", ",", ";", "01",
]  # fmt: skip
FOLDERS: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "timestamp": (UTC, _TIMES),
    "timestamp_ntz": (pa.timestamp("us"), _TIMES),
    "date": (
        pa.date32(),
        [date(1, 1, 1), date(1582, 10, 10), date(2026, 1, 2), date(9999, 12, 31), None],
    ),
    "string": (pa.string(), _TEXTS),
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 0, 127, None]),
    "smallint": (pa.int16(), [-(2**15), 7, 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 0, 2**31 - 1, None]),
    "bigint": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "decimal(10,2)": (
        pa.decimal128(10, 2),
        [Decimal("1.50"), Decimal("-99999999.99"), Decimal("0.00"), None],
    ),
    "decimal(38,18)": (
        pa.decimal128(38, 18),
        [
            Decimal("0.000000000000000000"),
            Decimal("0.000000000000000001"),
            Decimal("-12345678901234567890.123456789012345678"),
            None,
        ],
    ),
    "decimal(5,0)": (pa.decimal128(5, 0), [Decimal(99999), Decimal(0), None]),
}
SPARKS_ALONE = {
    "double": (pa.float64(), [1.5, float("nan"), float("inf"), -0.0, 1e22, 5e-324, None]),
    "float": (pa.float32(), [1.5, float("-inf"), None]),
}
BY_HAND: Mapping[str, list[str]] = {
    "timestamp": [
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05+01:00",
        "2026-01-02 03:04",
        "2026-01-02T03:04:05.1234567Z",
        "2026-03-08 02:30:00",
        "2026-03-29 02:30:00",
        "2026-1-2 3:4:5",
        "2026",
        "later",
        "2026-01-02T03:04:05 Europe/Berlin",
        "2026-01-02T03:04:05-0500",
        "2026-02-30 00:00:00",
        "1767323045",
    ],
    "timestamp_ntz": [
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "2026-01-02 03:04",
        "2026-03-08 02:30:00",
        "x",
    ],
    "date": [
        "2026-01-02",
        "2026-1-2",
        "2026-01-02 03:04:05",
        "2026-01",
        "20260102",
        "later",
        "2026-02-30",
    ],
    "int": ["5", " 5", "+5", "-0", "0x10", "1e3", "5.0", "٣", "007", "2147483648", "x"],
    "bigint": ["0xffff", "9223372036854775808", "1_000"],
    "boolean": ["TRUE", "t", "1", "0", "yes", "x"],
    "decimal(10,2)": ["1", "1.5", "1.005", "1e2", "x", "123456789.00", "NaN"],
    "double": ["1", "1e3", "NaN", "Infinity", "-Infinity", "nan", "inf", "0x10", "x", "1d"],
    "string": ["a%2Fb", "a%zz", "%E2%82%AC"],
}
_NUMBERS = [1.5, float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1e22, None]
_MOMENTS = [*map(datetime.fromisoformat, ("0001-01-01", "2026-01-02T03:04:05.678901")), None]
_WORDS = ["a", 'q"x', "\\", "C:\\new", 'end\\"', "a,b", "NaN", " lead ", "é日本", "'", None]
CONTENT: Mapping[str, tuple[str, pa.DataType, list[Any]]] = {
    "boolean": ("boolean", pa.bool_(), [True, False, None]),
    "bigint": ("bigint", pa.int64(), [2**63 - 1, -(2**63), None]),
    "double": ("double", pa.float64(), _NUMBERS),
    "float": ("float", pa.float32(), [1.5, float("nan"), float("inf"), float("-inf"), None]),
    "decimal": (
        "decimal(38,18)",
        pa.decimal128(38, 18),
        [Decimal("1E-18"), Decimal("0E-18"), None],
    ),
    "string": ("string", pa.string(), _WORDS),
    "empty string": ("string", pa.string(), ["a", ""]),
    "line break": ("string", pa.string(), ["a\nb", "a\r\nb"]),
    "binary": ("binary", pa.binary(), [b"\x00\xff", b"a", None]),
    "date": ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "timestamp": ("timestamp", UTC, _MOMENTS),
    "timestamp_ntz": ("timestamp_ntz", pa.timestamp("us"), _MOMENTS),
    "time": ("time(6)", pa.time64("us"), [time(1, 2, 3, 4), time(0), None]),
    "interval": ("interval day to second", pa.duration("us"), [timedelta(days=1, seconds=2), None]),
    "void": ("string", pa.null(), [None, None]),
    "list": ("array<double>", pa.list_(pa.float64()), [[1.0, float("nan"), None], [], None]),
    "list of binary": ("array<binary>", pa.list_(pa.binary()), [[b"\xff", None], None]),
    "struct": (
        "struct<b: binary, t: timestamp>",
        pa.struct([("b", pa.binary()), ("t", UTC)]),
        [{"b": b"\x00\xff", "t": _MOMENTS[1]}, None],
    ),
    "map": (
        "map<string, bigint>",
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1), ("b", None)], [], None],
    ),
    "map of binary": ("map<string, binary>", pa.map_(pa.string(), pa.binary()), [[("a", b"\xff")]]),
    "map of numbers": ("map<int, string>", pa.map_(pa.int32(), pa.string()), [[(1, "x")]]),
    "list of intervals": (
        "array<interval day to second>",
        pa.list_(pa.duration("us")),
        [[timedelta(1)]],
    ),
}
"""Columns of JSON and CSV files: Spark's type, Arrow's, values."""

FORMS = ("json", "csv")


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value that JSON keeps, the same for the same value: moments are microseconds since 1970."""
    if value is None or pa.types.is_boolean(kind):
        return value
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return {str(key): plain(item, kind.item_type) for key, item in dict(value).items()}
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, pa.timestamp("us", kind.tz)).value
    return repr(value) if pa.types.is_floating(kind) else str(value)


def answers(column: pa.Array) -> list[Any]:
    kind = pa.timestamp("us", "UTC") if getattr(column.type, "tz", None) else column.type
    return [plain(value, kind) for value in column.cast(kind).to_pylist()]


def sinks_folders(kind: str) -> list[str]:
    """The folder of ``abs-s3`` for each value of a kind."""
    arrow, values = FOLDERS[kind]
    table = pa.table({"id": range(len(values)), "v": pa.array(values, arrow)})
    folders = Partitioning(table.schema, ["v"]).split(table.to_batches()[0])
    of = {n: folder.rstrip("/") for folder, rows in folders for n in rows["id"].to_pylist()}
    return [of[n] for n in range(len(values))]


def sinks_file(form: str, name: str) -> tuple[pa.Schema, S3Options, Callable[[], bytes]]:
    """Schema, options and content of a file as ``abs-s3`` writes it."""
    _, arrow, values = CONTENT[name]
    table = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, arrow)})
    options = S3Options.parse({"path": "s3://bucket/folder", "fileformat": form})

    def content() -> bytes:
        out = pa.BufferOutputStream()
        writer = encoder(out, table.schema, options)
        writer.write(table)
        writer.close()
        written: bytes = out.getvalue().to_pybytes()
        return written

    return table.schema, options, content


def ask(spark: Any) -> dict[str, Any]:
    """All answers."""
    return {
        "sparks": [one for zone in ZONES for one in _sparks(spark, zone)],
        "sinks": [one for zone in ZONES for one in _sinks(spark, zone)],
        "by hand": [one for zone in ZONES for one in _by_hand(spark, zone)],
        "content": [one for zone in ZONES[:2] for one in _content(spark, zone)],
    }


def _sparks(spark: Any, zone: str) -> Iterator[dict[str, Any]]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    for kind, (arrow, values) in {**FOLDERS, **SPARKS_ALONE}.items():
        column = pa.array(values, arrow)
        rows = spark.createDataFrame(pa.table({"id": range(len(values)), "v": column}))
        with tempfile.TemporaryDirectory() as folder:
            # A task for each row: Spark's writer fails if one has both passages of autumn's hour.
            alone = rows.repartitionByRange(len(values), "id")
            alone.write.mode("overwrite").partitionBy("v").parquet(folder)
            found = spark.read.schema(f"id bigint, v {kind}").parquet(folder)
            read = found.selectExpr("id", "v", "_metadata.file_path f").orderBy("id").toArrow()
            there = {
                row: path.parent.name
                for path in Path(folder).rglob("*.parquet")
                for row in pq.ParquetFile(path).read()["id"].to_pylist()
            }
        wrote = answers(column)
        for row, value in zip(
            read["id"].to_pylist(), answers(read["v"].combine_chunks()), strict=True
        ):
            yield {
                "zone": zone,
                "kind": kind,
                "folder": there[row],
                "wrote": wrote[row],
                "reads": value,
            }


def _tree(root: Path, folders: list[str]) -> None:
    for number, folder in enumerate(folders):
        (root / folder).mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), root / folder / f"{number}.parquet")


def _sinks(spark: Any, zone: str) -> Iterator[dict[str, Any]]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    for kind in FOLDERS:
        folders = sinks_folders(kind)
        with tempfile.TemporaryDirectory() as folder:
            _tree(Path(folder), folders)
            found = spark.read.schema(f"id bigint, v {kind}").parquet(folder)
            read = found.orderBy("id").toArrow()
        for named, value in zip(folders, answers(read["v"].combine_chunks()), strict=True):
            yield {"zone": zone, "kind": kind, "folder": named, "reads": value}


def _by_hand(spark: Any, zone: str) -> Iterator[dict[str, Any]]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    for kind, texts in BY_HAND.items():
        for text in texts if kind == "timestamp" or zone == ZONES[0] else ():
            named = "v=" + (
                text if kind == "string" else text.replace(":", "%3A").replace("/", "%2F")
            )
            with tempfile.TemporaryDirectory() as folder:
                _tree(Path(folder), [named])
                try:
                    read = spark.read.schema(f"id bigint, v {kind}").parquet(folder).toArrow()
                    reads = {"reads": answers(read["v"].combine_chunks())[0]}
                except (PySparkException, Py4JError) as error:
                    reads = {"refuses": type(error).__name__}
            yield {"zone": zone, "kind": kind, "folder": named, **reads}


READ_CSV = {
    "header": "true", "escape": '"', "multiLine": "true",
    "nanValue": "nan", "positiveInf": "inf", "negativeInf": "-inf",
}  # fmt: skip
"""Options with which Spark reads CSV of ``abs-s3``: docs/reference/s3.md names them."""


def _content(spark: Any, zone: str) -> Iterator[dict[str, Any]]:
    from abs_core.errors import SchemaError
    from abs_sinks.s3.formats import check_schema

    spark.conf.set("spark.sql.session.timeZone", zone)
    for form in FORMS:
        for name, (kind, _, _) in CONTENT.items():
            schema, options, content = sinks_file(form, name)
            try:
                check_schema(schema, options)
            except SchemaError:
                continue
            written = content()
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / f"a.{form}").write_bytes(written)
                reader = spark.read.schema(f"id bigint, v {kind}")
                reader = reader.options(**READ_CSV) if form == "csv" else reader
                try:
                    read = reader.option("mode", "FAILFAST").format(form).load(folder).orderBy("id")
                    reads: dict[str, Any] = {"reads": answers(read.toArrow()["v"].combine_chunks())}
                except (PySparkException, Py4JError) as error:
                    reads = {"refuses": str(error)[:200]}
            yield {"zone": zone, "form": form, "name": name, "content": written.decode(), **reads}


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    found = ask(spark)
    lines = (
        f"{json.dumps(part)}: [\n" + ",\n".join(json.dumps(one) for one in each) + "\n]"
        for part, each in found.items()
    )
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print({part: len(each) for part, each in found.items()})


if __name__ == "__main__":
    main()
