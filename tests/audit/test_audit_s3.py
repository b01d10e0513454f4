"""A prefix of a bucket is audited as its readers see it, read whole each time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from pyarrow import parquet

from abs_audit import Files, Report, audit, relation
from abs_audit import s3 as audit_s3
from abs_clients.s3.objects import Objects
from abs_core.contracts import Task
from abs_core.errors import (
    AbsError,
    ConfigError,
    OptionError,
    RefusedError,
    RegisterLostError,
    UnavailableError,
)
from abs_core.model import Wrote
from abs_services import S3Service
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Sink
from abs_testing.engine import Run
from tests.audit.conftest import BY_ID
from tests.planted import planted

pytestmark = pytest.mark.services

ROWS = [{"id": n, "name": f"n{n}"} for n in range(300)]


@pytest.fixture
def client(s3: S3Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    made = boto3.client("s3", endpoint_url=s3.endpoint, region_name=s3.region)
    yield made
    made.close()


class Folder:
    """A prefix with parquet files, and the audit of it."""

    def __init__(self, s3: S3Service, client: Any, prefix: str, scratch: Path) -> None:
        self.bucket, self.prefix, self.client, self.scratch = s3.bucket, prefix, client, scratch
        self.url = f"s3://{s3.bucket}/{prefix}?endpoint={s3.endpoint}&region={s3.region}"

    def put(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(list(rows)), sink)
        body = sink.getvalue().to_pybytes()
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}", Body=body)

    def audit(self) -> Report:
        expected = self.scratch / "expected.parquet"
        parquet.write_table(pa.Table.from_pylist(ROWS), expected)
        return audit(Files((str(expected),)), relation([self.url]), BY_ID)


@pytest.fixture
def folder(s3: S3Service, client: Any, prefix: str, tmp_path: Path) -> Folder:
    return Folder(s3, client, prefix, tmp_path)


def test_objects_with_exactly_the_records_are_clean(folder: Folder) -> None:
    folder.put("a/part-0.parquet", ROWS[:100])
    folder.put("b/part-0.parquet", ROWS[100:])
    folder.put("_abs/part-1.parquet", ROWS[:50])
    folder.put(".hidden.parquet", ROWS[:50])
    report = folder.audit()
    assert report.clean, report.reasons


LONG = "n" * 240
"""Most of the longest name that this server takes; with a number before it, it is too long here."""


@pytest.mark.parametrize("name", [f"{LONG}.parquet", f"a=/{LONG}.x.parquet", f"{LONG}=/a.parquet"])
def test_an_object_is_audited_whatever_its_name_is(folder: Folder, name: str) -> None:
    folder.put(name, ROWS)
    report = folder.audit()
    assert report.clean, report.reasons


def test_planted_copies_that_have_the_name_of_their_object_are_found(folder: Folder) -> None:
    with planted(
        (audit_s3, "endings", lambda name: ["-", name]), by=RefusedError, match="too long"
    ):
        test_an_object_is_audited_whatever_its_name_is(folder, f"{LONG}.parquet")


def test_columns_of_folders_are_those_of_the_key(folder: Folder) -> None:
    day = "d" * 200
    rows = [{**row, "day": day} for row in ROWS]
    folder.put(f"x/day={day}/a/part.parquet", ROWS)
    expected = folder.scratch / "expected.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), expected)
    report = audit(Files((str(expected),)), relation([folder.url]), BY_ID)
    assert report.clean, report.reasons


@pytest.mark.parametrize(("name", "kind"), [("a.csv", "is damaged"), ("a.x", "is unknown")])
def test_an_object_that_cannot_be_read_is_named_and_not_its_copy(
    folder: Folder, name: str, kind: str
) -> None:
    where = {"Bucket": folder.bucket, "Key": f"{folder.prefix}/{name}"}
    folder.client.put_object(**where, Body=b"a,b\n1,2,3\n")
    with pytest.raises(AbsError, match=f"s3://{folder.bucket}/{folder.prefix}.* {kind}") as error:
        folder.audit()
    assert "abs-audit-" not in str(error.value)


def test_an_object_that_is_removed_while_the_audit_reads_is_told_as_that(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("a.parquet", ROWS)
    made = boto3.client

    def removing(*given: Any, **more: Any) -> Any:
        client = made(*given, **more)
        key = f"{folder.prefix}/a.parquet"
        client.meta.events.register(
            "before-call.s3.HeadObject",
            lambda **_: folder.client.delete_object(Bucket=folder.bucket, Key=key) and None,
        )
        return client

    monkeypatch.setattr(boto3, "client", removing)
    with pytest.raises(UnavailableError, match=r"a\.parquet was removed while"):
        folder.audit()


def test_missing_and_doubled_records_are_found(folder: Folder) -> None:
    folder.put("part-0.parquet", ROWS[:290])
    folder.put("part-1.parquet", ROWS[:3])
    figures = folder.audit().differences.figures()
    assert (figures["missing"], figures["duplicate"]) == (10, 3)


def test_an_unfinished_upload_is_in_doubt(folder: Folder) -> None:
    folder.put("part-0.parquet", ROWS)
    where = {"Bucket": folder.bucket, "Key": f"{folder.prefix}/part-1.parquet"}
    upload = folder.client.create_multipart_upload(**where)["UploadId"]
    report = folder.audit()
    assert report.differences.none
    assert not report.clean
    assert report.left_behind is not None
    assert report.left_behind.pending[0].what.endswith("part-1.parquet")
    folder.client.abort_multipart_upload(UploadId=upload, **where)
    assert folder.audit().clean


class Job:
    """A job that writes to the folder, one attempt at a time."""

    def __init__(self, s3: S3Service, folder: Folder, protocol: str, **more: str) -> None:
        given = {"endpoint": s3.endpoint, "region": s3.region, "protocol": protocol, **more}
        path = f"s3://{folder.bucket}/{folder.prefix}"
        self.options = S3Options.parse({**given, "path": path})
        self.schema = pa.Table.from_pylist(ROWS).schema
        self.run = Run(S3Sink(self.options, self.schema), f"job-{protocol}")

    def attempt(self, epoch: int) -> Wrote:
        state, _ = self.run.begin(epoch)
        attempt = secrets.token_hex(8)
        handle = Task(state.register, self.run.job, state.generation, epoch, 0, attempt)
        writer = self.run.sink.writer(handle)
        writer.write(pa.RecordBatch.from_pylist(ROWS[epoch * 100 :][:100], schema=self.schema))
        return Wrote(100, writer.pre_commit())

    def seen(self) -> int:
        """How many rows a reader gets."""
        objects = Objects(self.options.bucket)
        found = [objects.get(file.key) for file in committed_files(self.options)]
        return sum(parquet.read_metadata(pa.BufferReader(f.data)).num_rows for f in found if f)


@pytest.mark.parametrize("protocol", ["wal", "idempotent"])
def test_the_rows_that_readers_get_are_audited_before_and_after_the_decision(
    protocol: str, s3: S3Service, folder: Folder
) -> None:
    folder.put("part-0.parquet", ROWS[200:])
    job = Job(s3, folder, protocol)
    for epoch in (0, 1):
        job.attempt(epoch)  # loses
        winner = job.attempt(epoch)
        if epoch == 1:
            report = folder.audit()
            assert report.differences.actual == job.seen() + 100
            assert not report.clean
        job.run.commit(epoch, [winner])
    report = folder.audit()
    assert report.differences.actual == job.seen() + 100
    assert report.clean, report.reasons


def test_the_check_of_what_readers_get_sees_files_that_no_manifest_names(
    s3: S3Service, folder: Folder
) -> None:
    with planted((audit_s3, "needs_manifest", lambda key: None)):
        test_the_rows_that_readers_get_are_audited_before_and_after_the_decision(
            "idempotent", s3, folder
        )


def test_files_whose_manifests_may_be_elsewhere_are_an_error_that_says_how_to_name_them(
    s3: S3Service, folder: Folder, prefix: str
) -> None:
    elsewhere = f"s3://{folder.bucket}/{prefix}-state"
    job = Job(s3, folder, "idempotent", statepath=elsewhere)
    job.run.commit(0, [job.attempt(0)])
    with pytest.raises(RegisterLostError, match="is committed only where a manifest names it"):
        folder.audit()
    folder.url += f"&statepath={elsewhere}"
    assert folder.audit().differences.actual == 100


def test_a_prefix_without_objects_is_an_error(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="no object"):
        folder.audit()


@pytest.mark.parametrize("url", ["s3://", "s3://b/p?secret=x", "s3://key:x@b/p"])
def test_a_url_that_names_no_prefix_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="not a prefix of a bucket"):
        relation([url])
