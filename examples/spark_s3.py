"""Files of payments into a folder of Parquet files on S3, each payment exactly once.

In a clone, after `make setup` and `. .venv/bin/activate`:

    eval "$(abs up s3)"
    python examples/spark_s3.py

Run the second command again: the folder still has 1000 rows, each once. The job
knows what it has written. Kill it at any moment: the next run finishes the epoch.
"""

import json
import os
import sys
from pathlib import Path

from pyarrow.dataset import dataset
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

import abs_spark

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/spark_s3").absolute()
(folder / "in").mkdir(parents=True, exist_ok=True)
for number in range(4):  # each file is one epoch
    rows = [{"id": n, "amount": n / 100} for n in range(number * 250, number * 250 + 250)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / f"{number}.json").write_text(text)

path = f"s3://{os.environ['ABS_S3_BUCKET']}/example/payments"

spark = SparkSession.builder.master("local[2]").getOrCreate()
abs_spark.register(spark)
payments = (
    spark.readStream.schema("id BIGINT, amount DOUBLE")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/in")
)
query = (
    payments.writeStream.format("abs-s3")
    .option("path", path)  # credentials as boto3 finds them
    .option("endpoint", os.environ["ABS_S3_ENDPOINT"])  # on Amazon's S3: leave it out
    .option("job", "example-s3")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)  # ends when all files are read
    .start()
)
query.awaitTermination()

bucket = S3FileSystem(endpoint_override=os.environ["ABS_S3_ENDPOINT"])
ids = dataset(path.removeprefix("s3://"), filesystem=bucket).to_table().column("id")
print(f"{len(ids)} rows, {len(ids.unique())} different ids")
