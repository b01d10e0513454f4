"""Random columns, values, folders and formats of ``abs-s3``: foreign readers see what was written.

Or it is refused, and nothing is there. Readers are Arrow for whole values; DuckDB, and Spark in the
campaign, for numbers, texts and NULLs, folders among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import OptionError, RowError, SchemaError
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Sink, partitions
from abs_sinks.s3.committed import committed_files
from abs_testing.engine import Run
from tests.kit.random_values import PARTITIONS, PLAIN, SCALARS, Values, shown
from tests.sample import seed
from tests.spark.lake_spark import ask_with_file

pytestmark = pytest.mark.services

FORMATS = ["parquet", "parquet", "arrow", "json", "csv"]
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
REFUSALS = (OptionError, RowError, SchemaError)
Rows = dict[int, dict[str, Any]]


class Dataset:
    """A job into a folder, with what must be in it.

    Args:
        given: options of the server.
        local: takes copies of its files, for readers.
    """

    def __init__(self, path: str, given: Mapping[str, str], local: Path, number: int) -> None:
        self.random = random = Random(f"s3 {number} {seed()}")
        self.values = Values(random)
        self.local, self.rows = local, Rows()
        self.format = random.choice(FORMATS)
        self.columns = {f"c{n}": self._kind() for n in range(random.randint(1, 6))}
        self.folders = {f"p{n}": random.choice(PARTITIONS) for n in range(random.randint(0, 2))}
        options = {**given, "path": path, "fileformat": self.format}
        options["protocol"] = random.choice(["2pc", "wal", "idempotent"])
        if self.folders:
            options["partitionby"] = ",".join(self.folders)
        self.options = S3Options.parse(options)

    def _kind(self) -> pa.DataType:
        return self.random.choice(SCALARS) if self.format == "csv" else self.values.kind()

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        return {"id": pa.int64(), **self.columns, **self.folders}

    def epoch(self, number: int, tasks: int = 2) -> None:
        """Raises, with nothing written, where the format does not hold a value or a type."""
        due = Rows()
        run = Run(S3Sink(self.options, pa.schema(list(self.kinds.items()))), "job")
        made = []
        for task in range(tasks):
            first, size = len(self.rows) + len(due), self.random.randint(0, 30)
            ids = range(first, first + size)
            arrays = {
                name: pa.array(
                    ids if name == "id" else [self.values.value(kind) for _ in ids], kind
                )
                for name, kind in self.kinds.items()
            }
            due |= zip(ids, pa.table(arrays).to_pylist(), strict=True)
            attempt = run.attempt(number, task)
            try:
                attempt.writer.write(pa.record_batch(arrays))
            except BaseException:
                attempt.writer.abort()
                raise
            attempt._rows += size
            made.append(attempt.pre_commit())
        run.commit(number, made)
        self.rows |= due

    def widened(self) -> None:
        """The input has a column more from now on: older rows have NULL there."""
        self.columns[f"c{len(self.columns)}"] = self._kind()

    def copied(self) -> list[Path]:
        """The files that readers see."""
        objects, prefix = Objects(self.options.bucket), self.options.path.folder
        paths = []
        for file in committed_files(self.options):
            path = self.local / file.key.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            body = objects.get(file.key)
            assert body is not None
            path.write_bytes(body.data)
            paths.append(path)
        return paths

    # What readers must see.

    def due(self, names: Mapping[str, Callable[[Any], Any]]) -> list[str]:
        """Of these columns, each by its own form."""
        return [
            shown({name: form(self.rows[n].get(name)) for name, form in names.items()})
            for n in sorted(self.rows)
        ]

    def in_folder(self, value: Any) -> str | None:
        """In the name of a folder, where an empty text is NULL."""
        if value is None or value == "":
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    def in_spark(self) -> str:
        """The schema, as Spark's reader takes it."""
        return ", ".join(f"{name} {spark_type(kind)}" for name, kind in self.kinds.items())

    def read_by_spark(self, name: str) -> Callable[[Any], Any]:
        """What Spark reads of a value: in folders and in CSV an empty text is NULL."""
        empty = self.format == "csv" or name in self.folders
        return lambda value: None if empty and value == "" else value

    def plain(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        """SQL that any engine answers alike for each column, and what it must be."""
        asked: dict[str, tuple[str, Callable[[Any], Any]]] = {}
        for name, kind in self.kinds.items():
            if name in self.folders and kind not in (pa.date32(), pa.timestamp("us")):
                asked[name] = name, self.in_folder
            elif name in self.folders or kind not in PLAIN:
                asked[name] = f"{name} IS NULL", lambda value: value is None
            else:
                asked[name] = name, lambda value: value
        return asked


IN_SPARK: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": {},
    "csv": {
        "header": "true",
        "escape": '"',
        "multiLine": "true",
        "nanValue": "nan",
        "positiveInf": "inf",
        "negativeInf": "-inf",
    },
}
"""What the page asks Spark's reader of each format for."""

SPARKS: dict[pa.DataType, str] = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}


def spark_type(kind: pa.DataType) -> str:
    """Spark's name of a type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{part.name}: {spark_type(part.type)}' for part in kind)}>"
    return SPARKS[kind]


def read_inside(file: Path, form: str) -> list[dict[str, Any]]:
    """The rows of a file as its format has them."""
    if form == "parquet":
        return list(pq.ParquetFile(file).read().to_pylist())
    if form == "arrow":
        with pa.ipc.open_file(file) as opened:
            return list(opened.read_all().to_pylist())
    if form == "json":
        return [json.loads(line) for line in file.read_text().splitlines()]
    nulls = pcsv.ConvertOptions(
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    lines = pcsv.ParseOptions(newlines_in_values=True)
    read: pa.Table = pcsv.read_csv(file, convert_options=nulls, parse_options=lines)
    return list(read.to_pylist())


def folders_of(file: Path, root: Path) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in file.relative_to(root).parts[:-1])
    return {n: None if v == HIVE_NULL else unquote(v) for n, _, v in pairs}


def check_with_arrow(data: Dataset, files: list[Path]) -> None:
    """Whole values in Parquet and Arrow, plain ones in text."""
    whole = data.format in ("parquet", "arrow")
    form: dict[str, Callable[[Any], Any]] = {
        name: (lambda value: value) if whole or kind in PLAIN else (lambda value: value is None)
        for name, kind in {"id": pa.int64(), **data.columns}.items()
    }
    seen = {}
    for file in files:
        for row in read_inside(file, data.format):
            told = {name: make(row.get(name)) for name, make in form.items()}
            seen[int(row["id"])] = told | folders_of(file, data.local) | {"id": int(row["id"])}
    by_text = {
        name: data.in_folder
        for name, kind in data.folders.items()
        if kind not in (pa.date32(), pa.timestamp("us"))
    }
    left_out = data.folders.keys() - by_text.keys()
    rows = [{n: v for n, v in seen[key].items() if n not in left_out} for key in sorted(seen)]
    assert [shown(row) for row in rows] == data.due({**form, **by_text})


def check_with_duckdb(data: Dataset) -> None:
    asked = data.plain()
    columns = ", ".join(f"{sql} AS {name}" for name, (sql, _) in asked.items())
    found: Any = duckdb.sql(
        f"SELECT {columns} FROM read_parquet('{data.local}/**/*.parquet', union_by_name = true, "
        "hive_partitioning = true, hive_types_autocast = 0) ORDER BY id"
    )
    due = data.due({name: form for name, (_, form) in asked.items()})
    assert [shown(row) for row in found.to_arrow_table().to_pylist()] == due


def lived(number: int, store: S3Service, given: Mapping[str, str], local: Path) -> Dataset:
    """A folder after some epochs; one that is refused has nothing."""
    path = f"s3://{store.bucket}/random/{local.name}-{number}-{token_hex(4)}"
    data = Dataset(path, given, local / str(number), number)
    for epoch in range(3):
        if epoch == 2 and data.random.random() < 0.5:
            data.widened()
        before = len(data.rows)
        with suppress(*REFUSALS):
            data.epoch(epoch)
        if len(data.rows) == before:
            break
    files = data.copied()
    check_with_arrow(data, files)
    if data.format == "parquet" and data.rows:
        check_with_duckdb(data)
    return data


FROZEN, MORE = range(2), range(2, 60)


@pytest.mark.parametrize(
    "number",
    [*FROZEN, *(pytest.param(n, marks=pytest.mark.campaign) for n in MORE)],
)
def test_foreign_readers_see_what_was_written(
    number: int, store: S3Service, given: Mapping[str, str], tmp_path: Path
) -> None:
    lived(number, store, given, tmp_path)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_spark_reads_what_was_written(
    store: S3Service, given: Mapping[str, str], tmp_path: Path
) -> None:
    worlds = [lived(number, store, given, tmp_path) for number in range(200, 230)]
    worlds = [data for data in worlds if data.rows and data.format in IN_SPARK]
    assert {data.format for data in worlds} == IN_SPARK.keys()
    copies = [tmp_path / f"copy{number}" for number in range(len(worlds))]
    asked = [
        [
            data.format,
            str(data.local),
            ["*"],
            {"to": str(copy), "schema": data.in_spark(), "options": IN_SPARK[data.format]},
        ]
        for data, copy in zip(worlds, copies, strict=True)
    ]
    ask_with_file("read_tables.py", tmp_path, asked)
    for data, copy in zip(worlds, copies, strict=True):
        rows = sorted(pq.read_table(copy).to_pylist(), key=lambda row: int(row["id"]))
        due = data.due({name: data.read_by_spark(name) for name in data.kinds})
        assert list(map(shown, rows)) == due, (data.local.name, data.format)


# Planted.


def no_escape(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "_ESCAPED", re.compile("/"))


def null_is_a_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "NULL_FOLDER", "NULL")


@pytest.mark.parametrize("plant", [no_escape, null_is_a_text])
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    store: S3Service,
    given: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    def all_of_them() -> None:
        for number in partitioned():
            lived(number, store, given, tmp_path)

    with pytest.raises((AssertionError, KeyError)):
        all_of_them()


def partitioned() -> Iterator[int]:
    """Datasets with folders of texts."""
    for number in range(300):
        data = Dataset("s3://bucket/x", {}, Path(), number)
        if data.format == "parquet" and pa.string() in data.folders.values():
            yield number
