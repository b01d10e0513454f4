"""A Spark session that writes files to a sink whenever it is told to; see ``other_spark``.

    python write_job.py [JAR ...]

A question is ``{"format": ..., "options": {...}, "input": FOLDER, "schema": DDL, "files": N}``, and
``"conf": {...}`` where the session is to be set for this job, ``"register": true`` for a format of
ours as its users have it, ``"select": [...]`` the expressions of what is written, ``"sql": [...]``
statements to be run before: it runs a streaming job over the parquet files, ``N`` an epoch, to its end,
and answers with each epoch's rows and Spark's own ``durationMs``. A question with anything else is an
error. It imports nothing of ours but for ``abs_spark.register`` and the format ``bench-kafka``, so that
another version of Spark runs it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession

PARTIAL = "bench-kafka"
KEYS = {"format", "options", "input", "schema", "files", "register", "conf", "select", "sql"}


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("write-job")
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "2g"}
    conf |= {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    if sys.argv[1:]:
        conf["spark.jars"] = ",".join(sys.argv[1:])
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps({"epochs": run(spark, json.loads(line))}), flush=True)
    spark.stop()


def run(spark: SparkSession, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The job, to its end: rows and milliseconds of each epoch."""
    if unread := asked.keys() - KEYS:
        raise ValueError(f"nobody reads {', '.join(sorted(unread))}")
    if asked["format"] == PARTIAL:
        from benchmarks.kafka_stage import KafkaStage

        spark.dataSource.register(KafkaStage)
    if asked.get("register"):
        import abs_spark

        abs_spark.register(spark)
    for key, value in asked.get("conf", {}).items():
        spark.conf.set(key, value)
    for statement in asked.get("sql", ()):
        spark.sql(statement)
    frame = spark.readStream.schema(asked["schema"]).option("maxFilesPerTrigger", asked["files"])
    rows = frame.parquet(asked["input"]).selectExpr(*asked.get("select", ["*"]))
    writer = rows.writeStream.format(asked["format"])
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {**asked["options"], "checkpointLocation": checkpoint}
        query = writer.options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
    for key in asked.get("conf", {}):
        spark.conf.unset(key)
    epochs = [p for p in query.recentProgress if p["numInputRows"]]
    return [{"rows": p["numInputRows"], "ms": dict(p["durationMs"])} for p in epochs]


if __name__ == "__main__":
    main()
