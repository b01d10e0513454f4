"""Once an epoch of a format has shown how large rows are, Spark counts rows in place of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from abs_spark.datasource import batch_size
from abs_spark.foreach.row_size import BYTES, MOST_ROWS, ROWS

pytestmark = pytest.mark.spark


class Counted(DataSource):
    """Notes the rows of each batch that it gets, in a file for each epoch."""

    @classmethod
    def name(cls) -> str:
        return "abs-counted"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        folder = self.options["folder"]

        class Writer(DataSourceStreamArrowWriter):
            def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
                from pyspark import TaskContext

                context = TaskContext.get()
                assert context is not None
                epoch = context.getLocalProperty("streaming.sql.batchId")
                rows = [str(batch.num_rows) for batch in iterator]
                with open(f"{folder}/{epoch}", "a") as file:  # noqa: PTH123 - it is pickled
                    file.write(" ".join(rows) + " ")
                return WriterCommitMessage()

        return Writer()


def batches(
    spark: SparkSession, folder: Path, *, rows: int, width: int, epochs: int = 4
) -> list[list[int]]:
    """The rows of each batch, by epoch."""
    spark.dataSource.register(Counted)
    wide = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {width}) as text")
    for epoch in range(epochs):
        wide.coalesce(1).write.mode("append").parquet(str(folder / "in" / str(epoch)))
    sizes = batch_size.BatchSizes(spark)
    spark.streams.addListener(sizes)
    reader = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1)
    query = (
        reader.parquet(str(folder / "in" / "*"))
        .writeStream.format("abs-counted")
        .option("folder", str(folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        spark.streams.removeListener(sizes)
    assert BYTES not in spark.conf.getAll, "it is set in the query's own session only"
    found = (folder / str(epoch) for epoch in range(epochs))
    return [[int(number) for number in path.read_text().split()] for path in found]


def test_rows_come_by_their_number_once_an_epoch_has_shown_their_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Rows of 20 kB: Spark's own bound is 64 MiB, about 3,000 of them.
    found = batches(spark, tmp_path, rows=12_000, width=20_000)
    assert max(found[0]) > 1000
    assert 700 < max(found[-1]) < 900, "a quarter of 64 MiB"


def test_rows_of_a_megabyte_take_no_more_memory_than_with_sparks_own_bound(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "WORTH_ROWS", 1)
    found = batches(spark, tmp_path, rows=150, width=1 << 20)
    assert max(found[-1]) <= 16 < max(found[0]) <= 64


def test_a_small_epoch_and_a_setting_of_the_user_change_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = batches(spark, tmp_path / "few", rows=500, width=20_000)
    assert few == [[500]] * 4
    monkeypatch.setattr(batch_size, "WORTH_ROWS", 1)
    spark.conf.set(ROWS, str(MOST_ROWS // 100))
    try:
        found = batches(spark, tmp_path / "own", rows=500, width=20_000)
    finally:
        spark.conf.unset(ROWS)
    assert found == [[100] * 5] * 4
