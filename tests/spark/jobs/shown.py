"""A query by ``abs_spark.epoch`` and one by each format, and all that Spark can show of them.

    python shown.py FOLDER

The folder has an input folder ``input``. ``ABS_TEST_SINKS`` holds the sinks, each the arguments of
``abs_spark.sink``. Spark keeps its event log in ``FOLDER/events``; plans, progress and pickles go to
``FOLDER/shown``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import abs_spark
from abs_spark.foreach import function as of_epoch
from abs_spark.foreach.tasks import EpochTask, writing
from tests.spark.jobs.session import small_session
from tests.spark.jobs.stream_files import SCHEMA


def main(folder: Path) -> None:
    events, shown = folder / "events", folder / "shown"
    events.mkdir()
    shown.mkdir()
    conf = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    spark = small_session(
        folder / "scratch", **{f"spark.eventLog.{name}": text for name, text in conf.items()}
    )
    given = json.loads(os.environ["ABS_TEST_SINKS"])
    sinks = [abs_spark.sink(**one) for one in given]
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder / "input"))

    def run(name: str, writer: DataStreamWriter) -> None:
        checkpoint = str(folder / f"checkpoint-{name}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            query.explain(extended=True)
        (shown / f"{name}.plan").write_text(told.getvalue())
        (shown / f"{name}.progress").write_text(json.dumps(query.recentProgress, default=str))

    function = abs_spark.epoch(
        sinks, job="together", checkpointLocation=str(folder / "checkpoint-epoch")
    )

    def sent(work: EpochTask) -> object:
        made = writing(work)
        (shown / "task.pickle").write_bytes(cloudpickle.dumps(made))  # type: ignore[no-untyped-call]
        return made

    def write(df: DataFrame, batch: int) -> None:
        function(df, batch)
        df.explain(extended=True)

    of_epoch.writing = sent  # type: ignore[assignment, attr-defined]
    run("epoch", rows.writeStream.foreachBatch(write))
    (shown / "epoch.pickle").write_bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    (shown / "explained").write_text(f"{function!r} {function.sinks!r}")
    for one in given:
        frame = rows.selectExpr(*one["select"]) if "select" in one else rows
        name = one["name"]
        options = {**one["options"], "job": f"alone-{name}"}
        run(name, frame.writeStream.format(one["format"]).options(**options))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
