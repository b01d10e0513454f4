"""A job into Parquet files on S3, exactly once: state here, the register in the bucket.

Usage: into_s3.py FOLDER s3://BUCKET/PREFIX ENDPOINT; keys are in the environment.
Another target is another sink: PostgresSink(PostgresOptions.parse(...), schema), and so on.
"""

import io
import sys
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_sinks.s3 import S3Options, S3Sink

folder, path, endpoint = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
sink = S3Sink(S3Options.parse({"path": path, "endpoint": endpoint}), schema)
rows = pa.table({"key": [n % 10 for n in range(20_000)]})

graph = Graph("into-s3", parallelism=2)
(
    graph.source("rows", TableSource([rows], 1000))
    .key_by("key")
    .reduce("count", "count")
    .map("columns", lambda batch: batch.select(["key", "count"]))
    .sink("out", sink)
)
# No register is named: the job takes the sink's own, below the path.
Job(graph, LocalSnapshotStore(folder / "snapshots"), settings=Settings(interval=0.1)).run()

bucket, _, prefix = path.removeprefix("s3://").partition("/")
client = boto3.client("s3", endpoint_url=endpoint)
found = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]
files = [one["Key"] for one in found if one["Key"].endswith(".parquet")]
tables = [
    pq.read_table(io.BytesIO(client.get_object(Bucket=bucket, Key=key)["Body"].read()))
    for key in files
]
counts = pa.concat_tables(tables).group_by("key").aggregate([("count", "max")])
assert set(counts["count_max"].to_pylist()) == {2_000}, counts
print(f"{len(files)} files, the last count of each of {counts.num_rows} keys is 2,000")
