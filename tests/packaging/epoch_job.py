"""A job as somebody writes it who has installed the wheel: a file of numbers into a table.

python epoch_job.py URL FOLDER
"""

import sys

from pyspark.sql import SparkSession

import abs_spark

url, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
payments = abs_spark.sink("abs-postgres", {"url": url, "dbtable": "t"}, name="payments")
written = abs_spark.epoch([payments], job="job", checkpointLocation=f"{folder}/checkpoint")
writer = rows.writeStream.foreachBatch(written)
query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query.start().awaitTermination()
loaded = {name.partition(".")[0] for name in sys.modules}
print(spark.version, abs_spark.__file__)
print("loaded:", *sorted(loaded & {"duckdb", "rich", "typer", "confluent_kafka", "boto3"}))
