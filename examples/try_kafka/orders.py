"""The job under test: orders into a topic. `kafka` is Spark's own sink, `abs-kafka` is ours."""

import sys

import pyspark
from pyspark.sql import SparkSession

import abs_spark

folder, bootstrap, topic, sink = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config(
        "spark.jars.packages",
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    )
    .getOrCreate()
)
abs_spark.register(spark)
orders = (
    spark.readStream.schema("id BIGINT, item STRING")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
    .selectExpr("to_json(struct(*)) AS value")
)
writer = (
    orders.writeStream.format(sink)
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", topic)
    .option("checkpointLocation", f"{folder}/checkpoint")
)
if sink == "abs-kafka":
    writer = writer.option("job", "orders")
writer.trigger(availableNow=True).start().awaitTermination()
