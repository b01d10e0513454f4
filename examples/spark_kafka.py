"""Files of payments into a topic of Kafka and back, each payment exactly once.

In a clone, after `make setup` and `. .venv/bin/activate`:

    eval "$(abs up kafka)"
    python examples/spark_kafka.py

Run the second command again: the topic still has 1000 records, each once. The job
knows what it has written. Kill it at any moment: the next run finishes the epoch.
"""

import json
import os
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import abs_spark

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/spark_kafka").absolute()
(folder / "in").mkdir(parents=True, exist_ok=True)
for number in range(4):  # each file is one epoch
    rows = [{"id": n, "amount": n / 100} for n in range(number * 250, number * 250 + 250)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / f"{number}.json").write_text(text)

servers = {"bootstrap.servers": os.environ["ABS_KAFKA_BOOTSTRAP"]}
topic = "example-payments"
admin = AdminClient(servers)
if topic not in admin.list_topics(timeout=30).topics:
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result()

spark = SparkSession.builder.master("local[2]").getOrCreate()
abs_spark.register(spark)
payments = (
    spark.readStream.schema("id BIGINT, amount DOUBLE")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
)
query = (
    payments.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    .writeStream.format("abs-kafka")
    .option("kafka.bootstrap.servers", servers["bootstrap.servers"])
    .option("topic", topic)
    .option("job", "example-kafka")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)  # ends when all files are read
    .start()
)
query.awaitTermination()

found = (
    spark.read.format("abs-kafka")
    .option("kafka.bootstrap.servers", servers["bootstrap.servers"])
    .option("subscribe", topic)
    .load()
)
print(f"{found.count()} records, {found.select('key').distinct().count()} different keys")
