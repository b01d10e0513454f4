"""Once the size of an epoch's rows is known, Spark counts rows in place of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from abs_spark.foreach.row_size import (
    BYTES,
    MOST_ROWS,
    ROWS,
    UNMEASURED,
    Measured,
    batches_by_rows,
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
        assert sizes(session, 25_000, 100) == [MOST_ROWS, MOST_ROWS, 5_000]
    assert {BYTES, ROWS}.isdisjoint(session.conf.getAll)


def test_rows_of_a_megabyte_take_no_more_memory_than_with_sparks_own_bound(
    session: SparkSession,
) -> None:
    width = 1 << 20
    by_spark = sizes(session, 150, width)
    with batches_by_rows(session, width):
        assert max(sizes(session, 150, width)) <= min(64, max(by_spark))


def test_an_unknown_size_and_a_setting_of_the_user_change_nothing(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    with batches_by_rows(session, 0):
        assert dict(session.conf.getAll) == before
    session.conf.set(ROWS, "77")
    with batches_by_rows(session, 100):
        assert sizes(session, 200, 10) == [77, 77, 46]
    assert session.conf.get(ROWS) == "77"


def test_a_failed_epoch_leaves_the_session_as_it_was(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    with pytest.raises(ValueError, match="on purpose"), batches_by_rows(session, 5):
        raise ValueError("on purpose")
    assert dict(session.conf.getAll) == before


def test_the_largest_rows_of_a_task_are_told() -> None:
    small = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int64())})
    large = pa.RecordBatch.from_pydict({"a": pa.array(["x" * 1000])})
    measured: Any = Measured(iter([small, large, small.slice(0, 0)]))
    assert [batch.num_rows for batch in measured] == [2, 1, 0]
    assert measured.row_bytes >= 1000
    assert [rows_of_a_batch(size) for size in (1, 1 << 20, 1 << 30)] == [MOST_ROWS, 64, 1]
