"""Files of payments into PostgreSQL, Kafka and S3 under one decision: each epoch in all or in none.

In a clone, after `make setup` and `. .venv/bin/activate`:

    eval "$(abs up postgres kafka s3)"
    python examples/spark_epoch.py

Run the second command again: each target still has 1000 payments, each once. The job
knows what it has written. Kill it at any moment: the next run finishes the epoch.
"""

import json
import os
import sys
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow.dataset import dataset
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

import abs_spark

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/spark_epoch").absolute()
(folder / "in").mkdir(parents=True, exist_ok=True)
for number in range(4):  # each file is one epoch
    rows = [{"id": n, "amount": n / 100} for n in range(number * 250, number * 250 + 250)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / f"{number}.json").write_text(text)

servers = {"bootstrap.servers": os.environ["ABS_KAFKA_BOOTSTRAP"]}
topic = "example-epoch"
admin = AdminClient(servers)
if topic not in admin.list_topics(timeout=30).topics:
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result()

path = f"s3://{os.environ['ABS_S3_BUCKET']}/example/epoch"
url = os.environ["ABS_POSTGRES_URL"]

spark = SparkSession.builder.master("local[2]").getOrCreate()
payments = (
    spark.readStream.schema("id BIGINT, amount DOUBLE")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
)
sinks = [
    abs_spark.sink(
        "abs-postgres",
        {"url": url, "dbtable": "example_epoch", "createtable": "true"},
        name="table",
    ),
    abs_spark.sink(
        "abs-kafka",
        {"kafka.bootstrap.servers": servers["bootstrap.servers"], "topic": topic},
        name="topic",
        select=["CAST(id AS STRING) AS key", "to_json(struct(*)) AS value"],
    ),
    abs_spark.sink(
        "abs-s3",
        {"path": path, "endpoint": os.environ["ABS_S3_ENDPOINT"]},
        name="folder",
    ),
]
write = abs_spark.epoch(sinks, job="example-epoch", checkpointLocation=f"{folder}/checkpoint")
query = (
    payments.writeStream.foreachBatch(write)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)  # ends when all files are read
    .start()
)
query.awaitTermination()

with psycopg.connect(url) as connection:
    (rows,) = connection.execute("SELECT count(*) FROM example_epoch").fetchone()
bucket = S3FileSystem(endpoint_override=os.environ["ABS_S3_ENDPOINT"])
ids = dataset(path.removeprefix("s3://"), filesystem=bucket).to_table().column("id")
print(f"table: {rows} rows; folder: {len(ids)} rows, {len(ids.unique())} different ids")
