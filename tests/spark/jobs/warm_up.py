"""A job that uses what most tests use of Spark, so that the JVM has seen the classes; see ``jvm.py``.

python warm_up.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tests.spark.jobs.folder_sink import FolderDataSource
from tests.spark.jobs.session import small_session
from tests.spark.jobs.stream_files import Job, run_to_end


def main(folder: Path) -> None:
    rows = folder / "input"
    rows.mkdir(parents=True)
    spark = small_session(folder / "spark")
    spark.dataSource.register(FolderDataSource)
    schema = pa.schema(
        [("id", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    )
    pq.write_table(pa.table([[1, 2], ["a", "b"], [0, 0]], schema), rows / "0.parquet")
    options = {"path": str(folder / "target")}
    checkpoint = str(folder / "checkpoint")
    job = Job(str(rows), checkpoint, str(folder), "abs-folder", options, scramble=True)
    run_to_end(spark, job)

    def take(batch: DataFrame, _: int) -> None:
        batch.cache().toArrow()
        batch.mapInArrow(lambda tables: tables, batch.schema).selectExpr("count(*)").collect()
        batch.unpersist()

    stream = spark.readStream.schema("id bigint, word string, at timestamp").parquet(str(rows))
    writer = stream.dropDuplicates(["id"]).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(folder / "second"))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
