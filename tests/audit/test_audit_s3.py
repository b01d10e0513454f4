"""A prefix of a bucket is audited as plain readers see it: by listing, read whole each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from pyarrow import parquet

from abs_audit import Files, Report, audit, relation
from abs_core.errors import ConfigError, OptionError
from abs_services import S3Service
from tests.audit.conftest import BY_ID

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


def test_a_prefix_without_objects_is_an_error(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="no object"):
        folder.audit()


@pytest.mark.parametrize("url", ["s3://", "s3://b/p?secret=x", "s3://key:x@b/p"])
def test_a_url_that_names_no_prefix_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="not a prefix of a bucket"):
        relation([url])
