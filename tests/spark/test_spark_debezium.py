"""A recorded feed of Debezium ends as the source's table, in PostgreSQL.

The feeds were recorded from Debezium 3.6.1.Final by ``tests.kit.debezium``: random inserts, updates,
deletes and changed keys of rows with 21 columns. The rows of the source in the end are beside them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.errors import OptionError, SchemaError
from abs_services.native.postgres import NativePostgres
from abs_spark.change_events import UNAVAILABLE
from tests.kit.debezium import TABLE, record

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

FEEDS = Path(__file__).parent / "debezium"
COLUMNS = (
    "id INT, s SMALLINT, l BIGINT, price DECIMAL(12,2), r FLOAT, d DOUBLE, ok BOOLEAN, name STRING,"
    " code STRING, raw BINARY, day DATE, ts TIMESTAMP_NTZ, ms TIMESTAMP_NTZ, at TIMESTAMP,"
    " span {}, u STRING, doc STRING, nums ARRAY<INT>, tags ARRAY<STRING>, big STRING"
)
DEFAULTS: dict[str, Any] = {
    "decimals": "precise",
    "scales": {"price": 2},
    "binary": "bytes",
    "times": "adaptive",
    "milliseconds": ["ms"],
}
"""What is to be said of Debezium's own defaults, of events without a schema."""
HOW: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": (COLUMNS.format("INTERVAL DAY TO SECOND"), DEFAULTS),
    "full": (COLUMNS.format("INTERVAL DAY TO SECOND"), DEFAULTS),
    "wrapped": (COLUMNS.format("STRING"), {"schemas": True}),
}
EPOCHS = 4


@pytest.fixture
def db(database: str) -> Iterator[Connection[tuple[object, ...]]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def lines_of(feed: str, folder: Path = FEEDS) -> list[str | None]:
    with gzip.open(folder / f"{feed}.jsonl.gz", "rt") as file:
        values = [json.loads(line)["value"] for line in file]
    return [None if value is None else json.dumps(value) for value in values]


def frame(spark: SparkSession, values: Sequence[str | None]) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "value STRING")


def ends_as_the_source(spark: SparkSession, database: str, folder: Path, feed: str) -> None:
    """Apply the feed in some epochs; the table then has the rows of the source."""
    schema, how = HOW[feed]
    values = lines_of(feed, folder)
    size = len(values) // EPOCHS + 1
    with psycopg.connect(database, autocommit=True) as db:
        for name in ("source", "copy"):
            db.execute(TABLE.format(name))
        with db.cursor().copy("copy source from stdin (format csv, header)") as copy:
            copy.write(gzip.decompress((folder / f"{feed}.csv.gz").read_bytes()))
        for epoch in range(EPOCHS):
            part = frame(spark, values[epoch * size : (epoch + 1) * size])
            changes = abs_spark.debezium(part, schema, **how)
            (
                changes.coalesce(1)
                .write.format("abs-postgres")
                .mode("append")
                .options(url=database, dbtable="copy", job="copy", epoch=str(epoch))
                .options(protocol="wal", write="changes", positions="side")
                .options(sequenceby="lsn", unchanged="unchanged")
                .save()
            )
        for name in ("source", "copy"):  # Spark has no time of day
            db.execute(f"alter table {name} drop column clock")
        for one, other in (("source", "copy"), ("copy", "source")):
            differ = f"select * from (table {one} except table {other}) d"
            assert db.execute(differ).fetchall() == []
        assert db.execute("select count(*) > 10 from copy").fetchone() == (True,)


@pytest.mark.parametrize("feed", HOW)
def test_a_recorded_feed_ends_as_the_sources_table(
    spark: SparkSession, database: str, feed: str
) -> None:
    ends_as_the_source(spark, database, FEEDS, feed)


@pytest.mark.campaign
@pytest.mark.parametrize("feed", HOW)
def test_debeziums_own_feed_ends_as_the_sources_table(
    spark: SparkSession, database: str, tmp_path: Path, feed: str
) -> None:
    with NativePostgres(settings={"wal_level": "logical"}) as server:
        record(server.admin_url, tmp_path, feed, changes=5_000, keys=400)
    ends_as_the_source(spark, database, tmp_path, feed)


def test_the_target_table_gives_the_columns_and_their_texts(
    spark: SparkSession, database: str, db: Connection[tuple[object, ...]]
) -> None:
    db.execute(TABLE.format("copy"))
    changes = abs_spark.debezium(
        frame(spark, lines_of("wrapped")), table={"url": database, "dbtable": "copy"}, schemas=True
    )
    write(changes.coalesce(1), database)
    db.execute(TABLE.format("source"))
    with db.cursor().copy("copy source from stdin (format csv, header)") as copy:
        copy.write(gzip.decompress((FEEDS / "wrapped.csv.gz").read_bytes()))
    rows = "select array_agg(t::text order by id) from {} t"
    source, copied = (db.execute(rows.format(name)).fetchone() for name in ("source", "copy"))
    assert copied == source  # as texts: an interval of 76 hours is not one of 3 days and 4 hours


def write(changes: DataFrame, database: str, table: str = "copy", **more: str) -> None:
    """Apply the changes in an epoch of a job of their own."""
    (
        changes.write.format("abs-postgres")
        .mode("append")
        .options(url=database, dbtable=table, job=table, epoch="1", protocol="wal", write="changes")
        .options(positions="side", sequenceby="lsn", unchanged="unchanged", **more)
        .save()
    )


def test_a_changed_key_whose_large_value_is_not_sent_is_an_error(
    spark: SparkSession, database: str, db: Connection[tuple[object, ...]]
) -> None:
    db.execute("create table copy (id int primary key, big text)")
    events = [{"op": "d", "before": {"id": 1}}, {"op": "c", "after": {"id": 2, "big": UNAVAILABLE}}]
    values = [json.dumps(event | {"source": {"lsn": 5}}) for event in events]
    changes = abs_spark.debezium(frame(spark, values), "id INT, big STRING").coalesce(1)
    with pytest.raises(Exception, match="its row does not exist"):
        write(changes, database)


def event(op: str, **after: object) -> str:
    return json.dumps({"op": op, "after": after, "before": None, "source": {"lsn": 1}})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (event("t"), "is no change of a row: its op is t"),
        (event("m"), "its op is m"),
        ("{}", "its op is NULL"),
        ('{"op": "c", "after": {"id": ', "is not JSON"),
        (event("c", id="x", at=None), "column id is not sent as its type says"),
        (event("c", id=1, at="never"), "column at is no time in ISO form"),
        (event("c", id=1), "lacks the columns at"),
    ],
)
def test_what_is_no_change_of_a_row_is_an_error_and_never_null(
    spark: SparkSession, value: str, why: str
) -> None:
    changes = abs_spark.debezium(frame(spark, [value]), "id INT, at TIMESTAMP")
    with pytest.raises(Exception, match=why):
        changes.collect()


def test_the_sequence_is_split_into_numbers(spark: SparkSession) -> None:
    sources = [{"lsn": 5, "sequence": '[null,"5"]'}, {"lsn": 10, "sequence": '["9","10"]'}]
    values = [json.dumps({"op": "c", "after": {"id": 1}, "source": source}) for source in sources]
    read = abs_spark.debezium(frame(spark, values), "id INT", commit="commit_lsn")
    assert [(row.commit_lsn, row.lsn) for row in read.collect()] == [(0, 5), (9, 10)]


def test_wrong_arguments_are_refused_by_name(spark: SparkSession) -> None:
    df = frame(spark, [])
    for given, why in (
        ({}, "needs either a schema or a table"),
        ({"schema": "id INT", "decimals": "float"}, "decimals=float"),
        ({"schema": "id INT, n DECIMAL(9,2)", "decimals": "double"}, "n: numeric, which double"),
        ({"schema": "id INT, n DECIMAL(9,2)"}, "do not tell how .* n: numeric"),
        ({"schema": "id INT, at TIMESTAMP_NTZ", "times": "adaptive"}, "at: without a zone"),
        ({"schema": "id INT", "schemachange": "evolve"}, "schemachange=evolve"),
        ({"schema": "id INT", "key": ("other",)}, "key names other"),
        ({"schema": "id INT, op STRING"}, "columns named op"),
    ):
        with pytest.raises(OptionError, match=why):
            abs_spark.debezium(df, **given)
    with pytest.raises(SchemaError, match="cannot be read as map"):
        abs_spark.debezium(df, "id INT, m MAP<STRING, STRING>")


def test_a_new_column_of_the_source_is_read_if_it_is_told(
    spark: SparkSession, database: str, db: Connection[tuple[object, ...]]
) -> None:
    db.execute("create table copy (id int primary key, loaded timestamptz default now())")
    where = {"url": database, "dbtable": "copy"}
    changes = abs_spark.debezium(
        frame(spark, [event("c", id=1, vip=True)]),
        table=where,
        more="vip BOOLEAN",
        ignore=["loaded"],
    )
    write(changes.coalesce(1), database, schemachange="add")
    assert db.execute("select id, vip, loaded is null from copy").fetchall() == [(1, True, False)]
