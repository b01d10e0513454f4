"""A query that is restarted with one more column adds it to its table, for the epochs from there on."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from tests import sample

pytestmark = [pytest.mark.spark, pytest.mark.services]

FORMAT, EPOCH, TWO = "format", "epoch", "two sinks of one epoch"


def started(df: DataFrame, how: str, options: dict[str, str], checkpoint: str) -> None:
    writer = df.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if how == FORMAT:
        writer = writer.format("abs-postgres").options(**options, job="words")
    else:
        names = ("words", "others")[: 1 if how == EPOCH else 2]
        sinks = [
            abs_spark.sink("abs-postgres", options | {"dbtable": name}, name=name) for name in names
        ]
        writer = writer.foreachBatch(
            abs_spark.epoch(sinks, job="words", checkpointLocation=checkpoint)
        )
    writer.start().awaitTermination()


@sample.cases(2)
@pytest.mark.parametrize("protocol", ["wal", "2pc"])
@pytest.mark.parametrize("how", [FORMAT, EPOCH, TWO])
def test_a_restart_with_a_new_column_adds_it(
    spark: SparkSession, database: str, tmp_path: Path, how: str, protocol: str
) -> None:
    (tmp_path / "in").mkdir()
    options = {"url": database, "dbtable": "words", "protocol": protocol, "schemachange": "add"}
    with psycopg.connect(database, autocommit=True) as db:
        tables = ("words", "others") if how == TWO else ("words",)
        for table in tables:
            db.execute(f"create table {table} (id bigint)")
        for run, columns in enumerate((["id"], ["id", "id * 2 as twice"], ["id"])):
            (tmp_path / "in" / f"{run}.json").write_text(f'{{"id": {run}}}\n')
            read = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))
            started(read.selectExpr(*columns), how, options, str(tmp_path / "checkpoint"))
        for table in tables:
            found = db.execute(f"select * from {table} order by id").fetchall()
            assert found == [(0, None), (1, 2), (2, None)]


def test_without_the_option_the_restart_is_refused_and_names_it(
    spark: SparkSession, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("create table words (id bigint)")
        options = {"url": database, "dbtable": "words", "job": "words", "epoch": "1"}
        writer = spark.range(3).selectExpr("id", "id * 2 as twice").write.format("abs-postgres")
        with pytest.raises(Exception, match="set schemachange to add or ignore"):
            writer.options(**options).mode("append").save()
        writer.options(**options, schemachange="ignore").mode("append").save()
        assert db.execute("select * from words order by id").fetchall() == [(0,), (1,), (2,)]
