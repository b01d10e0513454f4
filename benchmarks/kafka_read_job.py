"""A Spark session that reads a topic whenever it is told to; run by ``kafka_source`` as a process.

    python kafka_read_job.py FORMAT OPTIONS_AS_JSON [JAR ...]

For each line on standard input it reads the topic once, into nothing, and prints the seconds and the
rows. It imports nothing of ours, so that it runs under another version of Spark as well.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    name, options, jars = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    builder = SparkSession.builder.master("local[2]").appName("kafka-read")
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "2g"}
    conf |= {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    if jars:
        conf["spark.jars"] = ",".join(jars)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    for _ in sys.stdin:
        seen = Observation()
        began = time.perf_counter()
        frame = spark.read.format(name).options(**options).load()
        # Every column is touched, so that no side may leave one out.
        used = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
        used.write.format("noop").mode("overwrite").save()
        print(json.dumps({"seconds": time.perf_counter() - began, **seen.get}), flush=True)


if __name__ == "__main__":
    main()
