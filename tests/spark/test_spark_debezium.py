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
HOW: dict[str, tuple[str, dict[str, Any]]] = {
    "bare": (COLUMNS.format("INTERVAL DAY TO SECOND"), {"milliseconds": ["ms"]}),
    "full": (COLUMNS.format("INTERVAL DAY TO SECOND"), {"milliseconds": ["ms"]}),
    "wrapped": (COLUMNS.format("STRING"), {"decimals": "string"}),
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


def test_the_target_table_gives_the_types(
    spark: SparkSession, database: str, db: Connection[tuple[object, ...]]
) -> None:
    db.execute(TABLE.format("copy"))
    db.execute("alter table copy drop column clock")
    where = {"url": database, "dbtable": "copy"}
    read = abs_spark.debezium(frame(spark, lines_of("bare")), table=where)
    given = abs_spark.debezium(frame(spark, lines_of("bare")), HOW["bare"][0], milliseconds=["ms"])
    assert read.dtypes == given.dtypes
    assert read.exceptAll(given).count() == given.exceptAll(read).count() == 0


def test_a_changed_key_whose_large_value_is_not_sent_is_an_error(
    spark: SparkSession, database: str, db: Connection[tuple[object, ...]]
) -> None:
    db.execute("create table copy (id int primary key, big text)")
    events = [{"op": "d", "before": {"id": 1}}, {"op": "c", "after": {"id": 2, "big": UNAVAILABLE}}]
    values = [json.dumps(event | {"source": {"lsn": 5}}) for event in events]
    changes = abs_spark.debezium(frame(spark, values), "id INT, big STRING").coalesce(1)
    with pytest.raises(Exception, match="its row does not exist"):
        (
            changes.write.format("abs-postgres")
            .mode("append")
            .options(url=database, dbtable="copy", job="copy", epoch="1", protocol="wal")
            .options(write="changes", positions="side", sequenceby="lsn", unchanged="unchanged")
            .save()
        )


def event(op: str, **after: object) -> str:
    return json.dumps({"op": op, "after": after, "before": None, "source": {"lsn": 1}})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (event("t"), "is no change of a row: its op is t"),
        (event("m"), "its op is m"),
        ("{}", "its op is NULL"),
        ('{"op": "c", "after": {"id": ', "MALFORMED_RECORD"),
        (event("c", id="x"), "MALFORMED_RECORD"),
        (event("c", id=1, at="never"), "at|CAST_INVALID_INPUT"),
    ],
)
def test_what_is_no_change_of_a_row_is_an_error_and_never_null(
    spark: SparkSession, value: str, why: str
) -> None:
    changes = abs_spark.debezium(frame(spark, [value]), "id INT, at TIMESTAMP")
    with pytest.raises(Exception, match=why):
        changes.collect()


def test_decimals_as_bytes_are_exact(spark: SparkSession) -> None:
    import base64
    from decimal import Decimal

    numbers = [
        "0",
        "-1",
        "127",
        "-128",
        "128",
        "12.34",
        "-0.01",
        "9" * 36 + ".99",
        "-" + "9" * 36 + ".99",
    ]
    values = []
    for key, number in enumerate(numbers):
        whole = int(f"{number}00" if "." not in number else number.replace(".", ""))
        sent = whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)
        values.append(event("c", id=key, n=base64.b64encode(sent).decode()))
    values.append(event("c", id=len(numbers), n=json.dumps({"scale": 1, "value": "AJY="})))
    read = abs_spark.debezium(frame(spark, values), "id INT, n DECIMAL(38,2)").orderBy("id")
    assert [row.n for row in read.collect()] == [*map(Decimal, numbers), Decimal("15.0")]


def test_the_sequence_is_split_into_numbers(spark: SparkSession) -> None:
    sources = [{"lsn": 5, "sequence": '[null,"5"]'}, {"lsn": 10, "sequence": '["9","10"]'}]
    values = [json.dumps({"op": "c", "after": {"id": 1}, "source": source}) for source in sources]
    read = abs_spark.debezium(frame(spark, values), "id INT", commit="commit_lsn")
    assert [(row.commit_lsn, row.lsn) for row in read.collect()] == [(0, 5), (9, 10)]


def test_wrong_arguments_are_refused_by_name(spark: SparkSession) -> None:
    df = frame(spark, [])
    for given, why in (
        ({}, "needs either a schema or a table"),
        ({"schema": "id INT", "decimals": "double"}, "decimals=double"),
        ({"schema": "id INT", "key": ("other",)}, "key names other"),
        ({"schema": "id INT, op STRING"}, "columns named op"),
    ):
        with pytest.raises(OptionError, match=why):
            abs_spark.debezium(df, **given)
    with pytest.raises(SchemaError, match="cannot be read as map"):
        abs_spark.debezium(df, "id INT, m MAP<STRING, STRING>")
