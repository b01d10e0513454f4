"""A task looks whether its executor gets to the target before it takes a row, by both ways in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.client import close_idle
from abs_core.certificate import Origin
from abs_core.errors import RefusedError, TargetError, UnavailableError
from abs_core.patience import Patience
from abs_services import PostgresService
from abs_services.contracts import S3Service
from abs_sinks.door import SinkFormat
from abs_sinks.kafka.door import FORMAT as KAFKA
from abs_sinks.postgres.door import FORMAT as POSTGRES
from abs_sinks.s3.door import FORMAT as S3
from abs_spark.datasource import stream as by_format
from abs_spark.foreach import tasks as by_epoch
from abs_spark.foreach.tasks import Obscured
from abs_spark.foreach.views import View
from abs_spark.names import Announced, RunName
from abs_spark.share import task_of
from abs_spark.sink_spec import SinkSpec
from tests import sample
from tests.kit.formats import Making
from tests.spark.epoch_world import EpochWorld
from tests.spark.test_spark_task import ROWS, SCHEMA, Options, Sink, begun

PROTOCOLS = ("2pc", "wal", "idempotent")
KINDS = ("postgres", "kafka", "s3")
JOB = "job"


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Host and port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        yield f"127.0.0.1:{held.getsockname()[1]}"


def target(kind: str, protocol: str, at: str, folder: Path, **more: str) -> SinkSpec:
    """Of a server at host and port."""
    given = {"protocol": protocol, "patience": "1", "job": JOB, **more}
    if kind == "postgres":
        upserts = {"write": "upsert", "key": "id"} if protocol == "idempotent" else {}
        given |= {"url": f"postgresql://u:p@{at}/d", "dbtable": "t", **upserts}
        return SinkSpec(POSTGRES, POSTGRES.parse(given), SCHEMA)
    if kind == "kafka":
        log = {"wal": folder.as_uri()} if protocol == "wal" else {}
        given |= {"kafka.bootstrap.servers": at, "topic": "t", **log}
        return SinkSpec(KAFKA, KAFKA.parse(given), SCHEMA)
    given |= {"path": "s3://bucket/data", "region": "us-east-1", "endpoint": f"http://{at}", **more}
    return SinkSpec(S3, S3.parse(given), SCHEMA)


class Rows(Iterator[pa.RecordBatch]):
    """A task's input, which tells whether any of it was asked for."""

    def __init__(self) -> None:
        self.asked = False

    def __next__(self) -> pa.RecordBatch:
        self.asked = True
        raise StopIteration


def of_a_format(to: SinkSpec, rows: Iterator[pa.RecordBatch], folder: Path) -> None:
    name = RunName(JOB, "query", folder.name)
    work = by_format.TaskWork(name, 0, 1, rows, Announced(), Origin(), digests=False)
    by_format.run_task(to, work)


def of_an_epoch(to: SinkSpec, rows: Iterator[pa.RecordBatch], folder: Path) -> None:
    part = by_epoch.Part(0, to, View(0, SCHEMA), "")
    task = task_of(begun(Options(folder / "register.db"), folder.name), 0, 0)
    work = by_epoch.EpochTask(
        Obscured(by_epoch.TaskSecrets((part,), to)), task, own=True, drain=False, digests=False
    )
    by_epoch.take_part(work, 1, rows)


TAKES = {"format": of_a_format, "epoch": of_an_epoch}
both = pytest.mark.parametrize("take", list(TAKES.values()), ids=list(TAKES))


@sample.cases(1, of="protocol")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", list(TAKES))
def test_without_a_way_to_the_target_no_row_is_taken_and_the_error_says_executor(
    way: str,
    kind: str,
    protocol: str,
    nowhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "some")
    # What a client takes to give up a broker that is not there.
    monkeypatch.setattr(timeouts, "REQUEST_SECONDS", 1.0)
    rows = Rows()
    try:
        with pytest.raises(UnavailableError) as raised:
            TAKES[way](target(kind, protocol, nowhere, tmp_path), rows, tmp_path)
    finally:
        close_clusters()
        close_idle()
    says_executor(raised.value)
    assert not rows.asked


@pytest.mark.services
@both
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_credentials_that_s3_refuses_no_row_is_taken(
    take: Any, protocol: str, store: S3Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of somebody else")
    close_idle()
    path = {"path": f"s3://{store.bucket}/{tmp_path.name}"}
    at, rows = store.endpoint.removeprefix("http://"), Rows()
    try:
        with pytest.raises(RefusedError) as raised:
            take(target("s3", protocol, at, tmp_path, **path), rows, tmp_path)
    finally:
        close_idle()
    says_executor(raised.value)
    assert not rows.asked


@pytest.mark.services
@both
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_a_password_that_postgresql_refuses_no_row_is_taken(
    take: Any, protocol: str, postgres: PostgresService, tmp_path: Path
) -> None:
    at = postgres.url.partition("@")[2].partition("/")[0]
    rows = Rows()
    with pytest.raises(TargetError, match="u") as raised:
        take(target("postgres", protocol, at, tmp_path), rows, tmp_path)
    says_executor(raised.value)
    assert not rows.asked


def says_executor(error: TargetError) -> None:
    assert error.what.startswith("This executor cannot reach its target"), error
    assert "credentials and the network path" in error.remedy


@pytest.mark.spark
@pytest.mark.services
def test_an_epoch_whose_executors_have_other_credentials_than_its_driver_names_the_executor(
    spark: SparkSession, world: EpochWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.files.add_files(range(1))
    # What Spark hands to its Python workers; the driver goes on with the right ones.
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_SECRET_ACCESS_KEY", "else")
    told = rf"This executor cannot reach its target.*on executor {socket.gethostname()}"
    with pytest.raises(StreamingQueryException, match=told):
        world.run(spark, world.epoch(world.to_s3()))
    assert not world.bucket.names()
    assert not world.bucket.uploads()


def counting(asked: list[int]) -> SinkFormat:
    """A format whose sinks note that they were asked."""

    class Asked(Sink):
        def reach(self) -> None:
            asked.append(1)

    return Making(Asked)


def test_a_process_asks_its_target_once(tmp_path: Path) -> None:
    """Small epochs do not get slower: the second task finds the sink that the first one asked by."""
    state = begun(Options(tmp_path / "t.db"), "run")
    asked: list[int] = []
    to = SinkSpec(counting(asked), Options(tmp_path / "t.db", patience=Patience(1.0)), SCHEMA)
    part = by_epoch.Part(0, to, View(0, SCHEMA), "")
    for _ in range(3):
        told = Obscured(by_epoch.TaskSecrets((part,), to))
        work = by_epoch.EpochTask(told, task_of(state, 0, 0), own=True, drain=False, digests=False)
        by_epoch.take_part(work, 1, iter([ROWS]))
    name = RunName(JOB, "query", "run")
    for partition in (1, 2):
        rows = iter([ROWS])
        by_format.run_task(
            to, by_format.TaskWork(name, 0, partition, rows, Announced(), Origin(), digests=False)
        )
    assert len(asked) == 2  # by each way in
