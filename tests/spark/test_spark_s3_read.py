"""Spark reads through ``abs-s3`` exactly what is committed, on a real S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession

from abs_services import S3Service
from abs_sinks.s3.client import close_idle
from abs_sources.files import bucket as buckets

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture
def folder(s3: S3Service, prefix: str, spark: SparkSession) -> Iterator[Mapping[str, str]]:
    """Options of a folder of this test's own; Spark's processes find the keys in boto3's file."""
    keys = f"aws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}"
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(f"[default]\n{keys}\n")
    yield {"path": f"s3://{s3.bucket}/{prefix}", "endpoint": s3.endpoint, "region": s3.region}
    close_idle()
    buckets.close_idle()


def double_a_file(s3: S3Service, prefix: str) -> None:
    """An object such as an attempt leaves that was written and never committed."""
    client = boto3.client(
        "s3", endpoint_url=s3.endpoint, region_name=s3.region,
        aws_access_key_id=s3.access_key, aws_secret_access_key=s3.secret_key,
    )  # fmt: skip
    listed = client.list_objects_v2(Bucket=s3.bucket, Prefix=f"{prefix}/")["Contents"]
    key = next(item["Key"] for item in listed if item["Key"].endswith("-0.m.parquet"))
    other = key.removesuffix("-0.m.parquet") + "-7.m.parquet"
    content = client.get_object(Bucket=s3.bucket, Key=key)["Body"].read()
    client.put_object(Bucket=s3.bucket, Key=other, Body=content)
    client.close()


def contents(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.select("id", "day", "word").collect())


@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_what_is_read_is_what_was_committed(
    protocol: str, folder: Mapping[str, str], spark: SparkSession, s3: S3Service, prefix: str
) -> None:
    frame = spark.range(100).selectExpr(
        "id", "concat('w', id % 7) as word", "date_add(date'2026-01-01', cast(id % 3 as int)) day"
    )
    how = {"protocol": protocol, "job": "j", "partitionby": "day"}
    for epoch in (1, 2, 2):
        part = frame.where(f"id % 2 = {epoch - 1}")
        part.write.format("abs-s3").mode("append").options(**folder, **how, epoch=epoch).save()
    if protocol == "idempotent":
        double_a_file(s3, prefix)
    reader = spark.read.format("abs-s3").options(**folder)
    assert contents(reader.schema("id long, day date, word string").load()) == contents(frame)
    stored = spark.read.format("abs-s3").options(**folder).load()
    assert stored.schema.simpleString() == "struct<id:bigint,word:string,day:string>"
    assert stored.count() == 100
