"""Whatever Arrow type and value comes, a sink refuses the type at its start, or rows, or writes them.

No exception of a library leaves it, and what is written has no row that must be refused: those could be
dead letters. Types and values are random, of each kind that Arrow has; no server is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from abs_clients.arrow import cast_plain, taken
from abs_clients.avro.schema import parsed
from abs_clients.s3.location import Location
from abs_core.errors import AbsError, ConfigError, OptionError, SchemaError
from abs_core.model import HandleName
from abs_sinks import refusals, rowhash
from abs_sinks.deadletters.letter import Shown, dead_letters, schema_text
from abs_sinks.deadletters.place import readable
from abs_sinks.kafka.avro.choose import avro_of
from abs_sinks.kafka.avro.encode import encode
from abs_sinks.kafka.records import plan_columns as kafka_columns
from abs_sinks.kafka.records import records_of, refuse_wall_clock, segment_of, sizes_of
from abs_sinks.lake import sink as lake_sink
from abs_sinks.lake.folder import FolderStore
from abs_sinks.postgres.columns.create import column_type
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.refusals import BadRows, MisfitError, find_bad_rows
from abs_sinks.rowhash import row_digest
from abs_sinks.s3 import formats, partitions
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Sink
from abs_sinks.s3.taskfiles import TaskFiles
from abs_testing.engine import Run
from tests import sample
from tests.kit.any_arrays import any_array, any_leaf, any_type
from tests.planted import Defect, planted
from tests.sinks.lake.job import Job
from tests.sinks.postgres import test_pg_type_mapping as types

Way = tuple[Callable[[Any], BadRows], Callable[[Any], object]]
"""Finds bad rows, and writes the others."""

ROWS = 8
COLUMN_TYPES: list[PgType] = [one for one in vars(types).values() if isinstance(one, PgType)]
COLUMN_TYPES += [types.numeric(9, 2), types.numeric(3, -2), types.numeric(38, 10)]
COLUMN_TYPES += [types.array(one) for one in COLUMN_TYPES]
BY_LABEL = {one.label: one for one in COLUMN_TYPES} | {
    "bigint": types.INT8,
    "integer": types.INT4,
    "smallint": types.INT2,
    "boolean": types.BOOL,
}


def into_postgres(
    schema: pa.Schema, random: Random, folder: Path, types_of: Callable[[Random, Any], PgType]
) -> Way:
    columns = tuple(Column(f.name, types_of(random, f.type)) for f in schema)
    encoder = plan_columns(schema, CatalogTable("public", "t", 1, columns)).encoder()
    encoder.header()
    return encoder.bad_rows, encoder.encode


def made_for(random: Random, kind: pa.DataType) -> PgType:
    """The type of a column that ``createtable`` makes."""
    label = column_type(kind)
    element, listed, _ = label.partition("[]")
    if element.startswith("numeric("):
        digits, scale = element.removeprefix("numeric(").removesuffix(")").split(",")
        made = types.numeric(int(digits), int(scale))
    else:
        made = BY_LABEL[element]
    return types.array(made) if listed else made


def into_files(
    schema: pa.Schema, random: Random, folder: Path, fileformat: str, by: Sequence[str] = ()
) -> Way:
    options = S3Options(
        Location("b", "p"), fileformat=fileformat, compression="none", partitionby=tuple(by)
    )
    S3Sink(options, schema)
    handle = HandleName("0" * 16, "job", 1, 1, 0, "a" * 8)
    files = TaskFiles(options, schema, handle, store=FolderStore(folder))

    def write(rows: pa.RecordBatch) -> None:
        try:
            files.write(rows)
            files.finish()
        finally:
            files.discard()

    return files.bad_rows, write


def into_table(
    schema: pa.Schema, random: Random, folder: Path, kind: str, by: Sequence[str] = ()
) -> Way:
    given = {"partitionby": ",".join(by)} if by else {}
    job = Job(kind, folder, deadletter="sink:dead", **given)
    run = Run(job.sink(job.options, schema), "job")
    attempt = run.attempt(0, 0)

    def write(rows: pa.RecordBatch) -> None:
        try:
            attempt.writer.write(rows)
            attempt._rows += rows.num_rows
            made = attempt.pre_commit()
        except BaseException:
            attempt.writer.abort()
            raise
        run.commit(0, [made])
        assert not run.state().open

    writer: Any = attempt.writer
    return writer.bad_rows, write


def into_records(schema: pa.Schema, random: Random, folder: Path) -> Way:
    """Columns of a record, by any name."""
    names = ["value", *random.sample(["key", "headers", "topic", "partition", "timestamp"], 2)]
    named = pa.schema([f.with_name(n) for f, n in zip(schema, names, strict=False)])
    columns = kafka_columns(named, "t")
    refuse_wall_clock(named, columns)

    def check(rows: pa.RecordBatch) -> Any:
        return records_of(pa.RecordBatch.from_arrays(rows.columns, schema=named), columns)

    def write(rows: pa.RecordBatch) -> None:
        records = check(rows)
        sizes_of(records)
        segment_of(records)

    return partial(find_bad_rows, check=check), write


def into_avro(schema: pa.Schema, random: Random, folder: Path) -> Way:
    node = parsed(json.dumps(avro_of(schema.field(0).type, "top", "value")))

    def check(rows: pa.RecordBatch) -> Any:
        return encode(node, rows.column(0), b"12345", "value")

    columns = [any_array(random, field.type, 1).slice(1) for field in schema]
    check(pa.RecordBatch.from_arrays(columns, schema=schema))
    return partial(find_bad_rows, check=check), check


def into_digest(schema: pa.Schema, random: Random, folder: Path) -> Way:
    def write(rows: pa.RecordBatch) -> None:
        parts = row_digest(rows.slice(0, 3)) + row_digest(rows.slice(3))
        assert parts == row_digest(rows), f"the parts of {schema.types} have another digest"

    return lambda rows: BadRows((), np.full(rows.num_rows, -1)), write


FILES = ("parquet", "json", "csv", "arrow")
WAYS: dict[str, Callable[..., Way]] = {
    "postgres": partial(into_postgres, types_of=lambda random, kind: random.choice(COLUMN_TYPES)),
    "postgres, created": partial(into_postgres, types_of=made_for),
    "kafka": into_records,
    "avro": into_avro,
    "digest": into_digest,
    **{name: partial(into_files, fileformat=name) for name in FILES},
    "folders": partial(into_files, fileformat="arrow", by=["p"]),
    "delta": partial(into_table, kind="delta"),
    "delta, partitions": partial(into_table, kind="delta", by=["p"]),
    "iceberg": partial(into_table, kind="iceberg"),
    "iceberg, partitions": partial(into_table, kind="iceberg", by=["p"]),
}
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]


def schema_for(way: str, random: Random) -> pa.Schema:
    if way == "kafka" and random.random() < 0.7:  # else most types are refused at once
        headers = pa.struct([("key", random.choice(TEXT)), ("value", random.choice(TEXT))])
        others = [pa.int32(), pa.timestamp("ns", "UTC"), pa.large_list(headers), *TEXT]
        kinds = [random.choice(TEXT), random.choice(others), random.choice(others)]
        return pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)])
    kinds = [any_type(random) for _ in range(random.randint(1, 2))]
    fields = [pa.field(f"c{n}", kind) for n, kind in enumerate(kinds)]
    return pa.schema([*fields, pa.field("p", any_leaf(random))])


def rows_for(way: str, random: Random) -> pa.RecordBatch:
    schema = schema_for(way, random)
    columns = [any_array(random, field.type, ROWS) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def reads_back(batch: pa.RecordBatch) -> None:
    """The rows of dead letters are those of the batch, each column in its type or in a plain one."""
    why = [(row, "code", "message", None) for row in range(batch.num_rows)]
    schema = schema_text(batch.schema)
    refused = enumerate(dead_letters(batch, why, Shown()))
    groups, unread = readable([{"id": n, "row": one.row, "schema": schema} for n, one in refused])
    assert not unread, f"{batch.schema.types}: {unread}"
    for letters, read in groups:
        given = taken(batch, pa.array([letter["id"] for letter in letters]))
        pairs = zip(given.columns, read.columns, strict=True)
        columns = [
            one if one.type == made.type else cast_plain(one, made.type) for one, made in pairs
        ]
        as_read = pa.RecordBatch.from_arrays(columns, schema=read.schema)
        assert row_digest(read) == row_digest(as_read), f"{batch.schema.types} is changed"


def tried(way: str, number: int, folder: Path) -> str:
    """Try a case; what became of it."""
    random = Random(f"{way} {number} {sample.seed()}")
    batch = rows_for(way, random)
    schema = batch.schema
    try:
        bad_rows, write = WAYS[way](schema, random, folder)
    except (SchemaError, OptionError, ConfigError, MisfitError):
        return "type refused"
    bad = bad_rows(batch)
    reads_back(batch)
    good = bad.others(batch)
    if not good.num_rows:
        return "rows refused"
    try:
        write(good)
    except AbsError as error:
        raise AssertionError(f"{schema.types}: {error}") from error
    return "written"


def all_tried(way: str, numbers: Sequence[int], folder: Path) -> set[str]:
    return {tried(way, number, folder / str(number)) for number in numbers}


@pytest.mark.parametrize("way", WAYS)
def test_types_and_rows_are_refused_or_written(way: str, tmp_path: Path) -> None:
    all_tried(way, range(6), tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("way", WAYS)
def test_many_types_and_rows_are_refused_or_written(way: str, tmp_path: Path) -> None:
    assert "written" in all_tried(way, range(6, 306), tmp_path)


def written_unchecked(way: str, numbers: Sequence[int], folder: Path) -> set[str]:
    """Try cases without a look for bad rows first, as where there are no dead letters."""
    ends = set()
    for number in numbers:
        random = Random(f"{way} {number} {sample.seed()}")
        batch = rows_for(way, random)
        try:
            _, write = WAYS[way](batch.schema, random, folder / str(number))
            write(batch)
        except AbsError as error:
            ends.add(type(error).__name__)
        except MisfitError:
            ends.add("type refused")
    return ends


@pytest.mark.parametrize("way", ["parquet", "json", "csv"])
def test_files_refuse_bad_rows_as_rows_also_when_they_are_written(way: str, tmp_path: Path) -> None:
    assert "RowError" in written_unchecked(way, range(40), tmp_path)


BUGS: dict[str, tuple[str, Defect]] = {
    "the errors of a table's casts": (
        "delta",
        (lake_sink, "converting", lambda *names: nullcontext()),
    ),
    "the errors of a folder's casts": (
        "folders",
        (partitions, "converting", lambda *names: nullcontext()),
    ),
    "rows of views and runs": ("json", (refusals, "taken", lambda rows, at: rows.take(at))),
    "seconds that Parquet does not have": (
        "parquet",
        (formats, "_is_fine_timestamp", pa.types.is_timestamp),
    ),
    "the begin of an array in place of a slice's": (
        "digest",
        (rowhash, "_part_of_union", lambda array, *part: array.type_codes.to_numpy()),
    ),
}


@pytest.mark.campaign
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_error_of_the_library_is_found(bug: str, tmp_path: Path) -> None:
    way, defect = BUGS[bug]
    with planted(defect, by=(AssertionError, pa.ArrowException)):
        all_tried(way, range(200), tmp_path)
