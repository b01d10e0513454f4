"""Once the size of an epoch's rows is known, Spark counts rows in place of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import psycopg
import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayConnection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import functions as pandas_functions

import abs_spark
from abs_spark.foreach.row_size import (
    BYTES,
    MAX_ROWS,
    ROWS,
    UNMEASURED,
    Measured,
    batches_by_rows,
    has_other_functions,
    may_count_rows,
    rows_of_a_batch,
)

pytestmark = pytest.mark.spark


def sizes(spark: SparkSession, rows: int, width: int) -> list[int]:
    """The rows of each batch that a task gets, of rows of this width."""

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    wide = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {width}) as text")
    return [row["rows"] for row in wide.mapInArrow(counted, "rows long").collect()]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


def test_small_rows_come_by_their_number_without_being_measured(session: SparkSession) -> None:
    with batches_by_rows(session, 100):
        assert session.conf.get(BYTES) == UNMEASURED
        assert sizes(session, 2_500, 100) == [MAX_ROWS, MAX_ROWS, 500]
    assert {BYTES, ROWS}.isdisjoint(session.conf.getAll)


def test_rows_of_a_megabyte_take_no_more_memory_than_with_sparks_own_bound(
    session: SparkSession,
) -> None:
    width = 1 << 20
    by_spark = sizes(session, 80, width)
    with batches_by_rows(session, width):
        assert max(sizes(session, 80, width)) <= min(64, max(by_spark))


def test_an_unknown_size_and_a_setting_of_the_user_change_nothing(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    with batches_by_rows(session, 0):
        assert dict(session.conf.getAll) == before
    session.conf.set(ROWS, "77")
    with batches_by_rows(session, 100):
        assert sizes(session, 200, 10) == [77, 77, 46]
    assert session.conf.get(ROWS) == "77"


def calls_into_the_jvm(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that this process sends to the JVM from now on."""
    sent: list[str] = []

    def noted(send: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def command(connection: Any, text: str) -> Any:
            if not text.startswith("m"):  # Java may forget an object
                sent.append(text)
            return send(connection, text)

        return command

    connections = ClientServerConnection.send_command, GatewayConnection.send_command
    monkeypatch.setattr(ClientServerConnection, "send_command", noted(connections[0]))
    monkeypatch.setattr(GatewayConnection, "send_command", noted(connections[1]))
    return sent


def test_an_epoch_asks_the_jvm_for_two_settings_and_not_for_all(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = calls_into_the_jvm(monkeypatch)
    with batches_by_rows(session, 100):
        pass
    assert 6 <= len(sent) <= 8
    sent.clear()
    assert session.conf.getAll, "planted: what was asked for before"
    assert len(sent) > 50, "the count sees it"


def test_a_failed_epoch_leaves_the_session_as_it_was(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    with pytest.raises(ValueError, match="on purpose"), batches_by_rows(session, 5):
        raise ValueError("on purpose")
    assert dict(session.conf.getAll) == before


pandas_udf: Any = pandas_functions.pandas_udf


def total(given: pd.Series) -> int:
    return int(given.sum())


FUNCTIONS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "mapInArrow": lambda ids: ids.mapInArrow(lambda given: given, "id long"),
    "mapInPandas": lambda ids: ids.mapInPandas(lambda given: given, "id long"),
    "applyInPandas": lambda ids: ids.groupBy("id").applyInPandas(lambda given: given, "id long"),
    "applyInArrow": lambda ids: ids.groupBy("id").applyInArrow(lambda given: given, "id long"),
    "pandas_udf": lambda ids: ids.select(pandas_udf(lambda given: given, "long")("id")),
    "aggregate": lambda ids: ids.groupBy("id").agg(pandas_udf(total, "long")("id")),
    "nothing new": lambda ids: ids.limit(0).select(pandas_udf(lambda given: given, "long")("id")),
    "cached": lambda ids: ids.mapInArrow(lambda given: given, "id long").cache(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_query_with_functions_that_take_arrow_is_known_by_its_plan(
    session: SparkSession, name: str
) -> None:
    ids: Any = session.range(3)
    assert not has_other_functions(ids._jdf.queryExecution())
    with_function: Any = FUNCTIONS[name](ids.filter("id > 0"))
    assert has_other_functions(with_function._jdf.queryExecution())


@pytest.mark.services
def test_what_a_function_before_an_epoch_takes_stays_bounded_by_bytes(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    taken = tmp_path / "taken"

    def lengths(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            with taken.open("a") as file:
                file.write(f"{batch.num_rows} ")
            yield pa.RecordBatch.from_pydict({"n": [1] * batch.num_rows})

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table lengths (n bigint)")
        wide = spark.range(0, 100, 1, 1).selectExpr(f"repeat('x', {1 << 20}) as text")
        for epoch in range(2):
            wide.write.parquet(str(tmp_path / "in" / str(epoch)))
        checkpoint = str(tmp_path / "checkpoint")
        target = abs_spark.sink("abs-postgres", {"url": database, "dbtable": "lengths"})
        read = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1)
        write = (
            read.parquet(str(tmp_path / "in" / "*"))
            .coalesce(1)
            .mapInArrow(lengths, "n long")
            .writeStream.foreachBatch(abs_spark.epoch(target, checkpointLocation=checkpoint))
            .option("checkpointLocation", checkpoint)
        )
        write.trigger(availableNow=True).start().awaitTermination()
        assert connection.execute("select count(*) from lengths").fetchall() == [(200,)]
    rows = [int(each) for each in taken.read_text().split()]
    assert sum(rows) == 200
    assert max(rows) <= 65


def test_a_query_that_is_not_known_is_measured(session: SparkSession) -> None:
    assert not may_count_rows(None, session.range(3))


def test_the_largest_rows_of_a_task_are_told() -> None:
    small = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int64())})
    large = pa.RecordBatch.from_pydict({"a": pa.array(["x" * 1000])})
    measured: Any = Measured(iter([small, large, small.slice(0, 0)]))
    assert [batch.num_rows for batch in measured] == [2, 1, 0]
    assert measured.row_bytes >= 1000
    assert [rows_of_a_batch(size) for size in (1, 1 << 20, 1 << 30)] == [MAX_ROWS, 64, 1]
