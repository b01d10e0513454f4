"""Debezium -> Kafka -> a copy of the table, by our sink and source, killed on the way: it is exact."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from abs_audit import AuditSettings, audit
from abs_audit.postgres.relation import PostgresTable
from abs_chaos.job import Job
from abs_clients.kafka.settings import Settings
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_services import KafkaService
from abs_services.native.postgres import NativePostgres
from tests.kit.debezium import FEEDS, TABLE, change, recording
from tests.kit.kafka import make_topic
from tests.spark.jobs.debezium_copy import copy
from tests.spark.test_spark_debezium import HOW

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]

PARTITIONS = 3
PER_EPOCH = 20_000
KILLS = 5


def records(lines: Path) -> Iterator[tuple[str | None, str | None]]:
    """Key and value of each event, as Debezium wrote them."""
    decoder = json.JSONDecoder()
    with lines.open() as file:
        for line in file:
            found, ends = decoder.raw_decode(line, len('{"key": '))
            key = line[len('{"key": ') : ends]
            value = line[ends + len(', "value": ') : line.rindex("}")]
            yield (None if found is None else key), (None if value == "null" else value)


def into_kafka(spark: SparkSession, lines: Path, bootstrap: str, topic: str) -> int:
    """Write the events by our sink, in order; how many there were."""
    count, number, found = 0, 0, records(lines)
    while part := list(islice(found, PER_EPOCH)):
        keys, values = zip(*part, strict=True)
        frame = spark.createDataFrame(pa.table({"key": keys, "value": values}))
        (
            frame.coalesce(1)
            .write.format("abs-kafka")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap)
            .options(topic=topic, job=f"into {topic}", epoch=str(number))
            .save()
        )
        count, number = count + len(part), number + 1
    return count


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("changes", "keys"), [(10_000, 1_000), (200_000, 20_000)])
def test_a_killed_copy_of_a_busy_table_is_exact(
    spark: SparkSession,
    database: str,
    kafka: KafkaService,
    tmp_path: Path,
    changes: int,
    keys: int,
) -> None:
    topic, lines, rng = (
        f"debezium{os.getpid()}x{changes}",
        tmp_path / "feed.jsonl",
        random.Random(7),
    )
    with NativePostgres(settings={"wal_level": "logical"}) as server:
        fast = make_conninfo(server.admin_url, options="-c synchronous_commit=off")
        with psycopg.connect(fast, autocommit=True) as db:
            db.execute(TABLE.format("source"))
            for _ in range(changes // 10):
                change(db, "source", keys, rng, full=False)
            with recording(server.admin_url, "source", lines, **FEEDS["bare"]):
                for _ in range(changes):
                    change(db, "source", keys, rng, full=False)
            db.execute("alter table source drop column clock")  # Spark has no time of day
        bootstrap = kafka.bootstrap
        make_topic(Settings.of({"bootstrap.servers": bootstrap}), topic, PARTITIONS)
        events = into_kafka(spark, lines, bootstrap, topic)
        lines.unlink()
        with psycopg.connect(database, autocommit=True) as db:
            db.execute(TABLE.format("copy"))
            db.execute("alter table copy drop column clock")
        columns, _ = HOW["bare"]
        per_epoch = max(events // (3 * KILLS), 100)
        job = Job(
            copy,
            *(bootstrap, topic, columns, str(tmp_path), per_epoch),
            log=tmp_path / "job.log",
            checkpoint=tmp_path / "checkpoint",
            env={"ABS_TEST_URL": database, "PYTHONPATH": str(Path.cwd())},
        )
        kills = job.run_to_end(KILLS, seed=changes)
        for url, table in ((server.admin_url, "source"), (database, "copy")):
            # Debezium sends an interval as microseconds: 3 days and 4 hours come as 76 hours, which
            # PostgreSQL takes for equal and an audit does not.
            alike = (
                f"alter table {table} alter span type interval using extract(epoch from span) * "
            )
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(f"{alike}interval '1 second'".encode())
        source, target = (
            PostgresTable(Address.parse(url), TableName.parse(table))
            for url, table in ((server.admin_url, "source"), (database, "copy"))
        )
        report = audit(source, target, AuditSettings(key=["id"]))
        print(f"{events} events, {report}, kills: {[str(kill) for kill in kills]}")
        assert report.clean
        assert report.differences.expected > keys // 10
