"""Spark writes to a real S3 server through ``abs-s3``: streams and batches, replays, partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from abs_core.contracts import Task
from abs_core.model import JobState
from abs_sinks.s3 import S3Options, S3Sink
from tests import sample
from tests.spark.bucket import Bucket
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.services, pytest.mark.spark, sample.tests(2)]

ROWS = 40


def put_file(folder: Path, number: int) -> list[int]:
    """Put one input file in place, at once; its ids."""
    ids = list(range(number * 1000, number * 1000 + ROWS))
    folder.mkdir(parents=True, exist_ok=True)
    moment = pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": [f"word {n % 3}" for n in ids],
            "at": pa.repeat(moment, ROWS),
        }
    )
    pq.write_table(table, folder / f".{number:04d}")
    (folder / f".{number:04d}").rename(folder / f"{number:04d}.parquet")
    return ids


def forget_commits(checkpoint: Path, number: int) -> None:
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)


def test_a_replayed_epoch_changes_nothing_in_the_bucket(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(
        input=str(tmp_path / "input"),
        checkpoint=str(tmp_path / "checkpoint"),
        scratch="",
        format="abs-s3",
        options={**bucket.options, "partitionby": "word", "job": "words"},
        tasks=2,
    )
    expected = [number for file in range(3) for number in put_file(tmp_path / "input", file)]
    run_to_end(spark, job)
    assert bucket.ids() == Counter(expected)
    keys = bucket.names()
    forget_commits(tmp_path / "checkpoint", 2)
    run_to_end(spark, replace(job, scramble=True))
    assert bucket.names() == keys
    expected += put_file(tmp_path / "input", 3)
    run_to_end(spark, job)
    assert bucket.ids() == Counter(expected)
    assert bucket.uploads() == []
    folders = {key.split("/")[-2] for key in bucket.names()}
    assert folders == {"word=word 0", "word=word 1", "word=word 2"}


def test_a_batch_that_is_written_again_changes_nothing(bucket: Bucket, spark: SparkSession) -> None:
    frame = spark.range(100)
    for _ in range(2):
        writer = frame.write.format("abs-s3").mode("append").options(**bucket.options)
        writer.options(job="batch", epoch="2026-01-01", fileformat="parquet").save()
    assert bucket.ids() == Counter(range(100))
    assert bucket.uploads() == []


def test_files_of_several_schemas_are_read_together(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(2).selectExpr("id", "cast(id as string) as text")
    more = spark.range(2, 4).selectExpr("id", "cast(id as string) as text", "id * 1.5D as amount")
    less = spark.range(4, 5).selectExpr("id")
    for epoch, rows in enumerate((frame, more, less)):
        writer = rows.write.format("abs-s3").mode("append").options(**bucket.options)
        writer.options(job="batch", epoch=str(epoch)).save()
    expected = [(0, "0", None), (1, "1", None), (2, "2", 3.0), (3, "3", 4.5), (4, None, None)]
    path = bucket.copied_to(tmp_path)
    names = list(Path(path).glob("*.parquet"))
    schema = pa.unify_schemas([pq.read_schema(name) for name in names])
    table = ds.dataset(names, schema=schema).to_table(["id", "text", "amount"]).sort_by("id")
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    query = f"select id, text, amount from read_parquet('{path}/*.parquet', union_by_name = true)"
    assert duckdb.connect().execute(f"{query} order by id").fetchall() == expected
    columns = "id BIGINT, text STRING, amount DOUBLE"
    for read in (
        spark.read.option("mergeSchema", True).parquet(*map(str, names)),
        spark.read.schema(columns).parquet(*map(str, names)),
        spark.read.format("abs-s3").options(**bucket.options).schema(columns).load(),
    ):
        found = read.select("id", "text", "amount").collect()
        assert sorted(map(tuple, found)) == expected


@sample.cases(1)
@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_what_was_committed_is_read_back_and_nothing_else(
    bucket: Bucket, spark: SparkSession, tmp_path: Path, protocol: str
) -> None:
    options = {**bucket.options, "protocol": protocol, "partitionby": "k"}
    frame = spark.range(0, 100, 1, 3).selectExpr("id", "id % 4 as k")
    for batch in range(2):
        writer = frame.write.format("abs-s3").mode("append").options(**options)
        writer.options(job="batch", epoch=str(batch)).save()
    sink = S3Sink(S3Options.parse(options), pa.schema([("id", pa.int64()), ("k", pa.int64())]))
    register = "0123456789abcdef"
    begun = JobState(register, "other", sink.target_id, "lineage", 1, "run")
    sink.register().compare_and_set("other", None, begun)  # as each job begins
    loser = sink.writer(Task(register, "other", 1, 0, 0, "ab"))
    loser.write(pa.record_batch({"id": [-1], "k": [-1]}))
    loser.pre_commit()
    read = spark.read.format("abs-s3").options(**options).load()
    assert sorted(read.columns) == ["id", "k"]
    found = Counter(tuple(row) for row in read.selectExpr("id", "int(k)").collect())
    expected = Counter({(n, n % 4): 2 for n in range(100)})
    assert found == expected
    if protocol != "idempotent":
        plain = spark.read.parquet(bucket.copied_to(tmp_path))
        assert Counter(tuple(row) for row in plain.collect()) == expected, "readers that list"
    files = len(bucket.names())
    assert files == 8 if protocol == "wal" else files > 8, "wal composes one file for each folder"


def test_what_is_wrong_is_said_before_anything_is_written(
    bucket: Bucket, spark: SparkSession
) -> None:
    writer = spark.range(5).write.format("abs-s3").mode("append").options(**bucket.options)
    writer = writer.options(job="batch", epoch="1", partitionby="nothing")
    with pytest.raises(AnalysisException, match="partitionby names nothing"):
        writer.save()
    assert bucket.names() == []


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_moments_in_folder_names_are_the_same_for_every_reader_in_every_zone(
    zone: str, bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        clocks = ["2026-01-02T03:04:05Z", "2026-11-01T05:30:00.5Z", "2026-11-01T06:30:00.5Z"]
        rows = spark.createDataFrame([(n, at) for n, at in enumerate(clocks)], "id int, at string")
        rows = rows.selectExpr("id", "cast(at as timestamp) at").coalesce(1)
        writer = rows.write.format("abs-s3").mode("append").options(**bucket.options)
        writer.options(job="batch", epoch="1", partitionby="at").save()
        micros = {row.id: row.m for row in rows.selectExpr("id", "unix_micros(at) m").collect()}
        schema, copy = "id int, at timestamp", bucket.copied_to(tmp_path)
        readers = {
            "Spark": spark.read.schema(schema).parquet(copy),
            "abs-files": spark.read.format("abs-files").schema(schema).load(copy),
            "abs-s3": spark.read.format("abs-s3").options(**bucket.options).schema(schema).load(),
        }
        found = {
            name: {row.id: row.m for row in frame.selectExpr("id", "unix_micros(at) m").collect()}
            for name, frame in readers.items()
        }
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == dict.fromkeys(readers, micros)


JSON_TYPES = {
    "NaN": "double('NaN')",
    "Infinity": "float('Infinity')",
    "binary": "X'00ff'",
    "map": "map('a', 1)",
    "struct of binary": "struct(X'00ff' b)",
}
REFUSED_IN_JSON = {
    "interval": "interval '1 2:3:4' day to second",
    "list of intervals": "array(interval '1' day)",
    "map of numbers": "map(1, 'x')",
}


def test_json_that_is_committed_is_read_by_the_reader_of_committed_files(
    bucket: Bucket, spark: SparkSession
) -> None:
    columns = [f"{sql} as `{name}`" for name, sql in JSON_TYPES.items()]
    rows = spark.range(2).selectExpr("id", *columns)
    options = {**bucket.options, "fileformat": "json", "protocol": "idempotent"}
    writer = rows.write.format("abs-s3").mode("append").options(**options)
    writer.options(job="batch", epoch="1").save()
    read = spark.read.format("abs-s3").options(**options).schema(rows.schema).load().orderBy("id")
    assert repr(read.collect()) == repr(rows.orderBy("id").collect())


@pytest.mark.parametrize("sql", REFUSED_IN_JSON.values(), ids=REFUSED_IN_JSON)
def test_types_that_no_reader_of_json_reads_are_refused_before_anything_is_written(
    sql: str, bucket: Bucket, spark: SparkSession
) -> None:
    writer = spark.range(2).selectExpr("id", f"{sql} v").write.format("abs-s3").mode("append")
    writer = writer.options(**bucket.options, fileformat="json", job="batch", epoch="1")
    with pytest.raises(AnalysisException, match="The column v cannot be written as json"):
        writer.save()
    assert bucket.names() == []
