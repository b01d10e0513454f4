"""Files of payments into a table of PostgreSQL, each payment exactly once.

In a clone, after `make setup` and `. .venv/bin/activate`:

    eval "$(abs up postgres)"
    python examples/spark_postgres.py

Run the second command again: the table still has 1000 rows, each once. The job
knows what it has written. Kill it at any moment: the next run finishes the epoch.
"""

import json
import os
import sys
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

import abs_spark

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/spark_postgres").absolute()
(folder / "in").mkdir(parents=True, exist_ok=True)
for number in range(4):  # each file is one epoch
    rows = [{"id": n, "amount": n / 100} for n in range(number * 250, number * 250 + 250)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / f"{number}.json").write_text(text)

spark = SparkSession.builder.master("local[2]").getOrCreate()
abs_spark.register(spark)
payments = (
    spark.readStream.schema("id BIGINT, amount DOUBLE")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
)
query = (
    payments.writeStream.format("abs-postgres")
    .option("url", os.environ["ABS_POSTGRES_URL"])
    .option("dbtable", "example_payments")
    .option("createtable", "true")
    .option("job", "example-postgres")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)  # ends when all files are read
    .start()
)
query.awaitTermination()

with psycopg.connect(os.environ["ABS_POSTGRES_URL"]) as connection:
    found = connection.execute("SELECT count(*), count(DISTINCT id) FROM example_payments")
    print("{} rows, {} different ids".format(*found.fetchone()))
