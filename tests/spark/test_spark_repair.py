"""Targets that went back get their epochs again, by the steps of docs/how-to/restores.md."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from psycopg import sql
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

import abs_spark
from abs_clients.postgres.pool import close_idle
from abs_clients.s3.objects import Objects
from abs_services import KafkaService, PostgresService
from abs_services.native.kafka import NativeKafka
from abs_services.native.postgres import find_binaries
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.s3 import S3Options
from tests.kit.command import abs_prints
from tests.kit.kafka import make_topic
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_restored import Restored
from tests.spark.bucket import Bucket
from tests.spark.lake import Lake
from tests.spark.test_spark_snippets import PAGES, blocks

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]

JOB = "orders"


def numbers_of(events: DataFrame) -> DataFrame:
    return events.select(from_json(col("value").cast("string"), "id bigint").id.alias("id"))


def texts_of(events: DataFrame) -> DataFrame:
    return events.select(col("value").cast("string").alias("value"))


@dataclass
class Target:
    """One target of the job.

    Args:
        options: of its sink.
        where: the arguments that tell the commands where the registers are.
        actual: the arguments of the audit.
        backup: keeps it as it is now; the result puts it back.
        beside: options of the sink that holds the register, where this one must not.
        rows: what the query writes.
    """

    format: str
    options: dict[str, str]
    where: list[str]
    actual: Callable[[], list[str]]
    backup: Callable[[], Callable[[], None]]
    beside: dict[str, str] = field(default_factory=dict)
    rows: Callable[[DataFrame], DataFrame] = numbers_of


def of_file(read: Callable[[], pa.Table], folder: Path) -> Callable[[], list[str]]:
    def actual() -> list[str]:
        pq.write_table(read().select(["id"]), folder / "actual.parquet")
        return ["--actual", str(folder / "actual.parquet")]

    return actual


def lake(_: pytest.FixtureRequest, folder: Path, kind: str) -> Iterator[Target]:
    table = Lake(kind, folder)

    def backup() -> Callable[[], None]:
        if kind == "delta":
            version = DeltaTable(table.folder).version()

            def reset() -> None:
                DeltaTable(table.folder).restore(version)

            return reset
        now = load_catalog("default", **table.catalog).load_table("db.t")
        snapshot = now.current_snapshot()
        assert snapshot is not None

        def restore() -> None:
            now.refresh().manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()

        return restore

    named = {k: v for k, v in table.given.items() if k.startswith("catalog.")}
    place = f"delta:{table.folder}" if kind == "delta" else f"iceberg:db.t?{urlencode(named)}"
    read = of_file(table.read, folder)
    yield Target(f"abs-{kind}", table.given, ["--url", place], read, backup)


def bucket(request: pytest.FixtureRequest, _: Path) -> Iterator[Target]:
    there: Bucket = request.getfixturevalue("bucket")
    options = S3Options.parse(there.options)

    def backup() -> Callable[[], None]:
        kept = set(there.names())
        return lambda: Objects(options.bucket).delete([k for k in there.names() if k not in kept])

    more = {name: there.options[name] for name in ("endpoint", "region")}
    place = f"{there.options['path']}?{urlencode(more)}"
    yield Target("abs-s3", there.options, ["--url", place], lambda: ["--actual", place], backup)


def topic(_: pytest.FixtureRequest, folder: Path, way: str) -> Iterator[Target]:
    with NativeKafka() as broker, open_variant(broker.bootstrap, way) as harness:
        saved = Restored(harness, broker, folder)
        at = f"kafka://{broker.bootstrap}"
        winners = "?winners=true" if way == "idempotent" else ""
        actual = ["--actual", f"{at}/{harness.topic}{winners}", "--schema", "id bigint"]
        where = ["--url", f"{at}/{harness.given['registertopic']}"]
        yield Target("abs-kafka", harness.given, where, lambda: actual, saved.backup, rows=texts_of)


def database(request: pytest.FixtureRequest, folder: Path, protocol: str) -> Iterator[Target]:
    """With the register in a Delta table: in this database it would go back, too."""
    server: PostgresService = request.getfixturevalue("postgres")
    url: str = request.getfixturevalue("database")
    name = urlsplit(url).path.lstrip("/")
    admin = urlsplit(server.admin_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table t (id bigint primary key)")
    beside = {"path": str(folder / "beside"), "createtable": "true"}
    options = {"dbtable": "t", "url": url, "protocol": protocol}
    file = folder / "sinks.toml"
    named = [("beside", "abs-delta", beside), ("payments", "abs-postgres", options)]
    lines = [f'job = "{JOB}"', 'register = "beside"']
    for sink, kind, given in named:
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        lines += [f"[sinks.{sink}]", f'format = "{kind}"', f"options = {{ {pairs} }}"]
    file.write_text("\n".join(lines))

    def backup() -> Callable[[], None]:
        dump = folder / "dump"
        tool("pg_dump", "--format=custom", f"--file={dump}", admin)

        def restore() -> None:
            close_idle()
            with psycopg.connect(server.admin_url, autocommit=True) as connection:
                query = "select pg_get_userbyid(datdba) from pg_database where datname = %s"
                [owner] = connection.execute(query, (name,)).fetchone() or [""]
                both = sql.Identifier(name), sql.Identifier(owner)
                connection.execute(sql.SQL("drop database {} with (force)").format(both[0]))
                connection.execute(sql.SQL("create database {} owner {}").format(*both))
            tool("pg_restore", f"--dbname={admin}", str(dump))

        return restore

    where = ["--sinks", str(file), "--sink", "payments"]
    actual = ["--actual", url, "--table", "t"]
    yield Target("abs-postgres", options, where, lambda: actual, backup, beside)


def tool(name: str, *words: str) -> None:
    done = subprocess.run(
        [str(find_binaries(None) / name), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


TARGETS: dict[str, tuple[Callable[..., Iterator[Target]], tuple[str, ...]]] = {
    "delta": (lake, ("delta",)),
    "iceberg": (lake, ("iceberg",)),
    "s3": (bucket, ()),
    "kafka-2pc": (topic, ("2pc",)),
    "kafka-wal": (topic, ("wal",)),
    "kafka-idempotent": (topic, ("idempotent",)),
    "postgres-2pc": (database, ("2pc",)),
    "postgres-wal": (database, ("wal",)),
}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    opened, arguments = TARGETS[request.param]
    with contextmanager(opened)(request, tmp_path, *arguments) as made:
        yield made


def steps() -> tuple[str, str]:
    """The command and the program of the page."""
    (page,) = [one for one in PAGES if one.name == "restores.md"]
    command, program = [text for _, text in blocks(page) if "lost.json" in text]
    return command, program


class Source:
    """A topic of orders, and the query that copies it."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, target: Target) -> None:
        self.spark, self.target, self.folder = spark, target, folder
        self.bootstrap, self.produced = bootstrap, list[int]()
        name = f"orders-{folder.name}"
        servers = {"kafka.bootstrap.servers": bootstrap}
        make_topic(KafkaOptions.parse({**servers, "topic": name}).kafka, name, 2)
        self.options = {**servers, "subscribe": name}

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            producer.produce(self.options["subscribe"], json.dumps({"id": len(self.produced)}))
            self.produced.append(len(self.produced))
        assert producer.flush(60) == 0

    def run(self) -> None:
        reading = self.spark.readStream.format("abs-kafka").options(**self.options)
        rows = self.target.rows(reading.option("startingOffsets", "earliest").load())
        target = self.target
        if target.beside:
            sinks = [
                abs_spark.sink("abs-delta", target.beside, name="beside"),
                abs_spark.sink(target.format, target.options, name="payments"),
            ]
            epoch = abs_spark.epoch(sinks, job=JOB, checkpointLocation=self.checkpoint)
            writing = rows.writeStream.foreachBatch(epoch)
        else:
            writing = rows.writeStream.format(target.format).options(**target.options)
        writing = writing.option("job", JOB).option("checkpointLocation", self.checkpoint)
        writing.trigger(availableNow=True).start().awaitTermination()

    def audit(self) -> None:
        """Check that the target has each order once."""
        expected = self.folder / "expected.parquet"
        pq.write_table(pa.table({"id": pa.array(self.produced, pa.int64())}), expected)
        abs_prints(0, "audit", "--expected", expected, *self.target.actual())


def test_epochs_that_are_gone_are_written_again_once_and_the_job_goes_on(
    spark: SparkSession,
    kafka: KafkaService,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka.start()
    monkeypatch.chdir(tmp_path)
    source = Source(spark, kafka.bootstrap, tmp_path, target)
    source.produce(5)
    source.run()
    back = target.backup()
    for count in (7, 11):
        source.produce(count)
        source.run()
    source.audit()
    back()
    source.produce(2)
    with pytest.raises(Exception, match=r"18 rows of the finished epoch\(s\) 1 to 2"):
        source.run()
    command, program = steps()
    told = command.replace("/checkpoints/orders", source.checkpoint)
    arguments = shlex.split(told.partition(">")[0])[1:]
    at = arguments.index("--url")
    arguments[at : at + 2] = target.where
    Path("lost.json").write_text(abs_prints(0, *arguments))
    names = {"spark": spark, "source": source.options, "sink": target.options}
    program = program.replace("abs-delta", target.format)
    for _ in range(2):  # whoever does not know whether it was done repeats it
        exec(program, {**names, "orders_of": target.rows})
    abs_prints(0, *(each for each in arguments if each != "--json"), "--done")
    source.run()
    source.audit()
