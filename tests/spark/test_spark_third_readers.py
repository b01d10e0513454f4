"""What the audit says of a job that was killed is confirmed by a reader that shares no library with us.

One test for each system: the job is killed, goes on to its end, ``abs_audit`` finds it clean, and the
other reader sees each row once. Then somebody loses a row, and doubles one, behind the audit's back:
the reader sees both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import duckdb
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake
from psycopg import connect
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from abs_audit import AuditSettings, Files, audit, relation
from abs_core.crash import CrashPoint
from abs_services import S3Service
from tests.kit import third_reader
from tests.spark.drivers import killed_at
from tests.spark.epoch_world import JOB, EpochWorld
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.lake import Lake
from tests.spark.lake_spark import ask_with_file
from tests.spark.world import World

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("store"),
]

FILES = 3


@dataclass(frozen=True)
class Target:
    """A job's target.

    Args:
        audited: its URL for the audit, and the table of a database.
        read: the other reader: how often each id is there.
        lose, double: what somebody does to the row with id 0, and to that with id 1; in Kafka to the
            first one that is there.
    """

    job: Job
    audited: tuple[str, str | None]
    read: Callable[[], Counter[int]]
    lose: Callable[[], object]
    double: Callable[[], object]


def postgres(world: EpochWorld, spark: SparkSession, s3: S3Service, folder: Path) -> Target:
    url = world.files.url

    def execute(statement: str) -> None:
        with connect(url, autocommit=True) as connection:
            connection.execute(statement)

    return Target(
        replace(world.files.job, options={"dbtable": "t", "protocol": "2pc", "job": JOB}),
        (url, "t"),
        lambda: third_reader.ids_by_pg_dump(url, "t"),
        lambda: execute("delete from t where id = 0"),
        lambda: execute("insert into t select * from t where id = 1"),
    )


def kafka(world: EpochWorld, spark: SparkSession, s3: S3Service, folder: Path) -> Target:
    bootstrap, topic = world.kafka.bootstrap, world.kafka.topic
    select = [
        "cast(id as string) as key",
        "to_json(named_struct('id', id, 'word', word)) as value",
    ]
    whole = world.job()
    options = {**whole.sinks[1]["options"], "job": JOB}

    def first() -> tuple[int, int, str]:
        records = third_reader.records_by_kafka(bootstrap, topic, folder)
        return min(records, key=lambda record: record[:2])

    def double() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, first()[2].encode())
        assert producer.flush(30) == 0

    def lose() -> None:
        partition, offset, _ = first()
        behind = TopicPartition(topic, partition, offset + 1)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for deleted in admin.delete_records([behind]).values():
            deleted.result(30)

    return Target(
        replace(whole, sinks=[], format="abs-kafka", options=options, select=select),
        (f"kafka://{bootstrap}/{topic}", None),
        lambda: third_reader.ids_by_kafka(bootstrap, topic, folder),
        lose,
        double,
    )


def s3(world: EpochWorld, spark: SparkSession, s3: S3Service, folder: Path) -> Target:
    place = world.bucket.options["path"].removeprefix(f"s3://{s3.bucket}/")
    bucket = third_reader.BucketByCurl(s3, place)
    copies = iter(folder / f"copy-{number}" for number in range(9))

    def read() -> Counter[int]:
        files = bucket.fetch(next(copies))
        rows = spark.read.parquet(*map(str, files.values())).select("id").collect()
        return Counter(row["id"] for row in rows)

    def put(name: str, source: Path, where: str) -> None:
        made = folder / "made.parquet"
        duckdb.sql(f"copy (select * from '{source}' where {where}) to '{made}'")
        bucket.put(name, made)

    def with_row(number: int) -> tuple[str, Path]:
        for name, path in bucket.fetch(next(copies)).items():
            if number in {row[0] for row in duckdb.read_parquet(str(path)).fetchall()}:
                return name, path
        raise AssertionError("no file has the row")

    def lose() -> None:
        put(*with_row(0), "id <> 0")

    def double() -> None:
        name, path = with_row(1)
        put(f"{name.rpartition('/')[0]}/more.parquet", path, "id = 1")

    options = {**world.bucket.options, "protocol": "2pc", "job": JOB}
    query = urlencode({k: world.bucket.options[k] for k in ("endpoint", "region")})
    return Target(
        replace(world.files.job, format="abs-s3", options=options),
        (f"{world.bucket.options['path']}?{query}", None),
        read,
        lose,
        double,
    )


def lake(kind: str) -> Callable[[EpochWorld, SparkSession, S3Service, Path], Target]:
    def made(world: EpochWorld, spark: SparkSession, s3: S3Service, folder: Path) -> Target:
        lake = Lake(kind, world.files.folder)
        scratches = iter(folder / f"asked-{number}" for number in range(9))

        def read() -> Counter[int]:
            scratch = next(scratches)
            scratch.mkdir()
            [rows] = ask_with_file("read_tables.py", scratch, [[lake.kind, lake.place, ["id"]]])
            return Counter(row["id"] for row in rows)

        def double() -> None:
            table = lake.read()
            row = table.filter(pc.equal(table["id"], 1))
            if kind == "delta":
                write_deltalake(str(lake.folder), row, mode="append")
            else:
                load_catalog("default", **lake.catalog).load_table("db.t").append(row)

        def lose() -> None:
            if kind == "delta":
                DeltaTable(str(lake.folder)).delete("id = 0")
            else:
                load_catalog("default", **lake.catalog).load_table("db.t").delete("id = 0")

        where = {f"catalog.{k}": v for k, v in lake.catalog.items()} if kind == "iceberg" else {}
        url = f"delta:{lake.folder}" if kind == "delta" else f"iceberg:db.t?{urlencode(where)}"
        job = replace(world.files.job, format=lake.format, options={**lake.options, "job": JOB})
        return Target(job, (url, None), read, lose, double)

    return made


TARGETS: dict[str, Callable[[EpochWorld, SparkSession, S3Service, Path], Target]] = {
    "postgres": postgres,
    "kafka": kafka,
    "s3": s3,
    "delta": lake("delta"),
    "iceberg": lake("iceberg"),
}


def audited(world: World, target: Target) -> list[str]:
    """Why the audit is not clean; empty if it is."""
    url, table = target.audited
    columns = ["id", "word"] if target.job.format == "abs-kafka" else None
    settings = AuditSettings(key=["id"], columns=columns)
    expected = Files((str(Path(world.job.input) / "*.parquet"),))
    report = audit(expected, relation([url], table=table), settings)
    return list(report.reasons)


@pytest.mark.parametrize("system", TARGETS)
def test_a_reader_of_other_make_sees_what_the_audit_says_after_a_kill(
    system: str, world: EpochWorld, spark: SparkSession, s3: S3Service, tmp_path: Path
) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    target = TARGETS[system](world, spark, s3, folder)
    expected = Counter(row[0] for row in world.files.add_files(range(FILES)))
    url = world.files.url if target.job.format == "abs-postgres" else None
    killed_at(CrashPoint.AFTER_DECIDE, 2, target.job, tmp_path / "killed", url)
    run_to_end(spark, target.job, url)
    assert audited(world.files, target) == []
    assert target.read() == expected
    target.lose()
    assert (expected - target.read()).total() == 1, "the reader sees that a row is gone"
    target.double()
    assert (target.read() - expected).total() == 1, "the reader sees the row that is there twice"
