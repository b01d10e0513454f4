"""A Spark session that reads a topic whenever it is told to; see ``other_spark``.

    python kafka_read_job.py [JAR ...]

A question is ``{"format": ..., "options": {...}}``: it reads the topic once, into nothing, and answers
with the seconds and the rows. It imports nothing of ours, so that another version of Spark runs it too.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("kafka-read")
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "2g"}
    conf |= {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    if sys.argv[1:]:
        conf["spark.jars"] = ",".join(sys.argv[1:])
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    for line in sys.stdin:
        asked, seen = json.loads(line), Observation()
        began = time.perf_counter()
        frame = spark.read.format(asked["format"]).options(**asked["options"]).load()
        # Every column is touched, so that no side may leave one out.
        used = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
        used.write.format("noop").mode("overwrite").save()
        print(json.dumps({"seconds": time.perf_counter() - began, **seen.get}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
