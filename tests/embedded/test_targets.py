"""Real sources, the embedded runtime, real targets: killed at crash points, each row is there once.

The runtime itself knows none of these targets; the sinks and sources are those that Spark uses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from abs_audit import AuditSettings, Files, audit
from abs_audit.postgres import PostgresTable
from abs_audit.s3 import S3Files
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.crash import VARIABLE, CrashPoint
from abs_core.errors import UnavailableError
from abs_core.model import job_key
from abs_embedded import Graph, Job, Settings
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_services import KafkaService, S3Service
from tests import sample
from tests.embedded.jobs.moving import ROWS, TABLE, sink_of

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

JOB = Path(__file__).parent / "jobs" / "moving.py"
COUNT, FILES = 3_000, 6

DECIDING = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_COMMIT)
CO_COMMITTING = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.INSIDE_CO_COMMIT)
POINTS = {"2pc": DECIDING, "wal": CO_COMMITTING, "idempotent": CO_COMMITTING}


def long(protocol: str) -> Any:
    """For the campaign; the runtime does the same for each protocol."""
    return pytest.param(protocol, marks=pytest.mark.campaign)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that hold each row twice; ``expected`` holds each once."""
    rows = pa.table({"id": range(COUNT), "value": [f"v{n}" for n in range(COUNT)]}, ROWS)
    for name in ("input", "expected"):
        (tmp_path / name).mkdir()
    parquet.write_table(rows, tmp_path / "expected" / "rows.parquet")
    for number in range(FILES):
        some = rows.take(list(range(number % 3, COUNT, 3)))
        parquet.write_table(some, tmp_path / "input" / f"{number}.parquet")
    return tmp_path


def live(folder: Path, settings: Mapping[str, Any], crash: str = "") -> int:
    """Run the job to its end, or to a crash point; its exit code."""
    written = folder / "settings.json"
    written.write_text(json.dumps({"folder": str(folder), **settings}))
    with (folder / "log").open("ab") as log:
        process = subprocess.run(
            [sys.executable, str(JOB), str(written)],
            env={**os.environ, VARIABLE: crash},
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=200,
            check=False,
        )
    assert process.returncode != 0 or process.stdout == b"done\n"
    return process.returncode


def killed_at(folder: Path, settings: Mapping[str, Any], points: Sequence[CrashPoint]) -> None:
    """One life for each point, killed as it passes it; then one that gets to the end."""
    for point in points:
        code = live(folder, settings, point)
        assert code == -signal.SIGKILL, (point, (folder / "log").read_text())
    assert live(folder, settings) == 0, (folder / "log").read_text()
    for kind, given in settings["sinks"].items():
        sink = sink_of(kind, given, own=len(settings["sinks"]) == 1)
        assert sink.committer().in_doubt(job_key("moving")) == []
        sink.close()


def from_files(folder: Path) -> dict[str, Any]:
    return {"files": {"path": str(folder / "input"), "batchsize": "10"}}


def clean(folder: Path, actual: Any) -> None:
    report = audit(Files((str(folder / "expected"),)), actual, AuditSettings(key=("id",)))
    assert report.reasons == ()
    assert report.to_dict()["actual"]["records"] == COUNT


def table(database: str, protocol: str) -> dict[str, str]:
    keyed = protocol == "idempotent"
    with psycopg.connect(database, autocommit=True) as connection:
        key = ", PRIMARY KEY (id)" if keyed else ""
        connection.execute(f"CREATE TABLE {TABLE} (id bigint, value text{key})".encode())
    more = {"write": "upsert", "key": "id"} if keyed else {}
    return {"url": database, "dbtable": TABLE, "protocol": protocol, **more}


def the_table(database: str) -> PostgresTable:
    return PostgresTable(Address.parse(database), TableName.parse(TABLE))


def bucket(s3: S3Service, prefix: str, protocol: str, patch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in s3.env.items():
        if name.startswith("AWS_"):
            patch.setenv(name, value)
    path = f"s3://{s3.bucket}/{prefix}"
    return {"path": path, "endpoint": s3.endpoint, "region": s3.region, "protocol": protocol}


def topic_options(kafka: KafkaService, topic: str, protocol: str, folder: Path) -> dict[str, str]:
    from abs_sinks.kafka.options import KafkaOptions
    from tests.kit.kafka import make_topic

    more = {"wal": str(folder / "wal")} if protocol == "wal" else {}
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "registertopic": f"{topic}-register",
        "protocol": protocol,
        **more,
    }
    make_topic(KafkaOptions.parse(given).kafka, topic)
    return given


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", [*map(long, ("2pc", "wal")), "idempotent"])
def test_files_to_postgresql(folder: Path, database: str, protocol: str) -> None:
    sinks = {"postgres": table(database, protocol)}
    killed_at(folder, {"source": from_files(folder), "sinks": sinks}, POINTS[protocol])
    clean(folder, the_table(database))


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_files_to_s3(
    folder: Path, s3: S3Service, prefix: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = {"s3": bucket(s3, prefix, protocol, monkeypatch)}
    killed_at(folder, {"source": from_files(folder), "sinks": sinks}, DECIDING)
    clean(folder, S3Files(s3.bucket, prefix, s3.endpoint, s3.region))


@pytest.mark.campaign
def test_files_to_s3_by_manifests(
    folder: Path, s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from abs_clients.s3.objects import Objects
    from abs_sinks.s3.committed import committed_files
    from abs_sinks.s3.options import S3Options

    given = bucket(s3, prefix, "idempotent", monkeypatch)
    there = {"source": from_files(folder), "sinks": {"s3": given}}
    killed_at(folder, there, CO_COMMITTING)
    options, found = S3Options.parse(given), folder / "found"
    found.mkdir()
    for number, file in enumerate(committed_files(options)):
        body = Objects(options.bucket).get(file.key)
        assert body is not None
        (found / f"{number}.parquet").write_bytes(body.data)
    clean(folder, Files((str(found),)))


def test_files_to_three_targets_under_one_decision(
    folder: Path,
    database: str,
    kafka: KafkaService,
    topic: str,
    s3: S3Service,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from abs_audit.kafka import KafkaTopic

    sinks = {
        "postgres": table(database, "wal"),
        "kafka": topic_options(kafka, topic, "2pc", folder),
        "s3": bucket(s3, prefix, "wal", monkeypatch),
    }
    killed_at(folder, {"source": from_files(folder), "sinks": sinks}, DECIDING[:2])
    clean(folder, the_table(database))
    clean(folder, KafkaTopic(kafka.bootstrap, topic))
    clean(folder, S3Files(s3.bucket, prefix, s3.endpoint, s3.region))


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", [long("2pc"), "wal", long("idempotent")])
def test_files_to_kafka_and_from_there_to_postgresql(
    folder: Path, database: str, kafka: KafkaService, topic: str, protocol: str
) -> None:
    from abs_audit.kafka import KafkaTopic

    given = topic_options(kafka, topic, protocol, folder)
    there = {"source": from_files(folder), "sinks": {"kafka": given}}
    killed_at(folder, there, POINTS[protocol])
    winners = True if protocol == "idempotent" else None  # plain readers see attempts that lost
    clean(folder, KafkaTopic(kafka.bootstrap, topic, winners=winners))
    source = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "batchsize": "10",
        **({"winners": "true"} if protocol == "idempotent" else {}),
    }
    back = {"source": {"kafka": source}, "sinks": {"postgres": table(database, "2pc")}}
    onward = folder / "onward"
    onward.mkdir()
    killed_at(onward, back, [CrashPoint.AFTER_PRE_COMMIT])
    clean(folder, the_table(database))


class _NoRoom(LocalSnapshotStore):
    """Has no room for one record, whose handles are prepared by then; and tells of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.full = Event()

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        if checkpoint == 1:
            self.full.set()
            raise UnavailableError("planted: no room")
        super().complete(checkpoint, record, blobs)


@sample.cases(1)
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_region_is_restored_although_what_it_had_prepared_holds_its_keys(
    folder: Path, database: str, protocol: str
) -> None:
    """Under one generation nobody sweeps it: each restore would wait for its locks, in vain."""
    given = {**table(database, "idempotent"), "protocol": protocol, "locktimeout": "2"}
    del given["write"], given["key"]
    store, failed = _NoRoom(folder / "snapshots"), list[str]()

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        pause.wait(0.01)
        if store.full.is_set() and not failed:
            failed.append("once")
            raise OSError("planted")
        return batch

    pause, built = Event(), Graph("moving")
    rows = pa.table({"id": range(COUNT), "value": [f"v{n}" for n in range(COUNT)]}, ROWS)
    source = built.source("in", TableSource([rows], 10))
    source.map("fails", fails_once).sink("out", sink_of("postgres", given, own=True))
    Job(built, store, settings=Settings(interval=0.1), restarts=1).run()
    assert failed
    clean(folder, the_table(database))
