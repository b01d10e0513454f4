"""A format's wrong options are told by ``start()``, whether or not the source has something new."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import abs_spark
from abs_core.errors import OptionError
from abs_spark.datasource.early import _check as check
from tests.spark.epoch_world import SCHEMA

pytestmark = pytest.mark.spark

RIGHT = {"url": "postgresql://nowhere.invalid/db", "dbtable": "t", "job": "job"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"schemachange": "evolve"}, "schemachange must be"),
        ({"epoch": "today"}, "the option epoch names a batch write"),
        ({"Protocoll": "wal"}, "protocol"),
        ({"protocol": "idempotent"}, "write=upsert"),
    ],
)
@pytest.mark.parametrize("spelled", ["before", "in start()"])
def test_a_wrong_option_is_refused_by_start_though_there_is_nothing_to_write(
    spark: SparkSession, tmp_path: Path, wrong: dict[str, str], told: str, spelled: str
) -> None:
    abs_spark.register(spark)
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    writer = rows.writeStream.trigger(availableNow=True)
    given = {**RIGHT, **wrong, "checkpointLocation": str(tmp_path / "checkpoint")}
    if spelled == "before":
        writer, given = writer.format("abs-postgres").options(**given), {}
    else:
        given |= {"format": "abs-postgres", "queryName": "named"}
    with pytest.raises(OptionError, match=told):
        writer.start(**given)
    assert not spark.streams.active
    assert not (tmp_path / "checkpoint").exists(), "Spark has begun a query"


def test_right_options_and_formats_of_others_start_as_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    abs_spark.register(spark)
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    for name, given in {"abs-postgres": RIGHT, "noop": {}, "parquet": {}}.items():
        writer = rows.writeStream.trigger(availableNow=True).format(name).options(**given)
        writer = writer.option("checkpointLocation", str(tmp_path / "of" / name))
        writer.start(str(tmp_path / "out"), queryName=None, outputMode="append").awaitTermination()


def test_where_spark_hides_the_options_of_a_query_a_warning_says_when_they_are_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hidden: Any = SimpleNamespace(_jwrite=object())
    check(hidden)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "checked with its first rows" in record.message
