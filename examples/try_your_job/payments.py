"""The job under test: payments from files into a table. `append` is the usual way, `exact` is ours."""

import os
import sys

import psycopg
from pyspark.sql import SparkSession

import abs_spark

url, folder, way = os.environ["DATABASE_URL"], sys.argv[1], sys.argv[2]


def append(batch, epoch):
    rows = [(row.id, row.amount) for row in batch.collect()]
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO payments VALUES (%s, %s)", rows)


spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
abs_spark.register(spark)
payments = (
    spark.readStream.schema("id BIGINT, amount DOUBLE")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
)
if way == "append":
    writer = payments.writeStream.foreachBatch(append)
else:
    to = {"url": url, "dbtable": "payments", "job": "payments"}
    writer = payments.writeStream.format("abs-postgres").options(**to)
query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query.start().awaitTermination()
