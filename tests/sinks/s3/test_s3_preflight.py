"""Preflight tells what a bucket's settings do to a job; encryption is asked for with each object."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from abs_clients.s3.client import client
from abs_clients.s3.objects import Objects
from abs_core.model import Finding, JobState, Severity
from abs_services import S3Service
from abs_services.buckets import s3_client
from abs_sinks.s3 import S3Options, S3Register
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.uploads import Uploads

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def lockable(store: S3Service) -> Iterator[tuple[Any, str]]:
    """A client, and a bucket that keeps versions and can lock: one, for a small server's sake."""
    server, name = s3_client(store), f"t-{secrets.token_hex(6)}"
    server.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    yield server, name
    server.close()


@pytest.fixture
def bucket(lockable: tuple[Any, str]) -> Iterator[tuple[Any, str]]:
    """The same, without rules."""
    yield lockable
    server, name = lockable
    server.delete_bucket_lifecycle(Bucket=name)
    no_rule = {"ObjectLockEnabled": "Enabled"}
    server.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=no_rule)


def found(given: Mapping[str, str], bucket: str, **more: str) -> list[Finding]:
    return preflight(S3Options.parse({**given, "path": f"s3://{bucket}/rows", **more}), "job")


def test_versions_are_noted(given: Mapping[str, str], bucket: tuple[Any, str]) -> None:
    (finding,) = found(given, bucket[1])
    assert finding.severity is Severity.NOTE
    assert "keeps versions" in finding.what


def test_a_default_retention_is_warned_of(
    given: Mapping[str, str], bucket: tuple[Any, str]
) -> None:
    server, name = bucket
    retention = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": retention}
    server.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=lock)
    warned = [f for f in found(given, name) if f.severity is Severity.WARNING]
    assert ["locks new objects" in finding.what for finding in warned] == [True]


@pytest.mark.parametrize(
    ("state", "is_seen"),
    [
        ("rows", True),
        ("rows/state", True),
        ("rows/a/b", True),
        ("rows/_k=1", True),
        ("rows/_state", False),
        ("rows/a/.b/c", False),
        ("rows-state", False),
        ("state", False),
    ],
)
def test_a_register_that_readers_of_the_path_would_see_is_refused(
    given: Mapping[str, str], bucket: tuple[Any, str], state: str, *, is_seen: bool
) -> None:
    said = [f for f in found(given, bucket[1], statepath=f"s3://{bucket[1]}/{state}") if f.remedy]
    errors = [finding.what for finding in said if finding.severity is Severity.ERROR]
    assert ["takes the register for rows" in error for error in errors] == [True] * is_seen


def test_a_register_that_lies_where_readers_see_it_is_warned_of_and_kept(
    given: Mapping[str, str], bucket: tuple[Any, str]
) -> None:
    where = {"path": f"s3://{bucket[1]}/rows", "statepath": f"s3://{bucket[1]}/rows/old"}
    register = S3Register(S3Options.parse({**given, **where}))
    before = JobState("0123456789abcdef", "before", "target", "lineage", 1, "run")
    register.compare_and_set("before", None, before)
    said = found(given, bucket[1], statepath=where["statepath"])
    assert Severity.ERROR not in [finding.severity for finding in said]
    (warned,) = (finding for finding in said if finding.severity is Severity.WARNING)
    assert "register move" in warned.remedy
    register.retire("before")


ENDS_UPLOADS = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}}
DELETES = {"Expiration": {"Days": 9}}


@pytest.mark.parametrize(
    ("prefix", "action", "protocol", "said"),
    [
        ("", ENDS_UPLOADS, "2pc", ["aborts unfinished uploads after 3 day"]),
        ("rows/", ENDS_UPLOADS, "wal", ["aborts unfinished uploads after 3 day"]),
        ("rows/k=1/", ENDS_UPLOADS, "2pc", ["aborts unfinished uploads after 3 day"]),
        ("other/", ENDS_UPLOADS, "2pc", []),
        # It leaves nothing undone behind a decision.
        ("", ENDS_UPLOADS, "idempotent", []),
        ("rows/_abs/", DELETES, "2pc", ["the record of what is committed is lost"]),
        ("", DELETES, "idempotent", ["the record of what is committed is lost"]),
        ("rows/k=1/", DELETES, "2pc", []),
    ],
)
def test_a_rule_that_touches_the_folder_is_warned_of_and_no_other(
    prefix: str,
    action: Mapping[str, Any],
    protocol: str,
    said: list[str],
    given: Mapping[str, str],
    bucket: tuple[Any, str],
) -> None:
    server, name = bucket
    rule = {"ID": "rule 7", "Status": "Enabled", "Filter": {"Prefix": prefix}, **action}
    server.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [rule]})
    warned = [f for f in found(given, name, protocol=protocol) if f.severity is Severity.WARNING]
    assert len(warned) == len(said)
    for finding, words in zip(warned, said, strict=True):
        assert words in finding.what
        assert "rule 7" in finding.what


@pytest.mark.parametrize(
    ("sse", "headers"),
    [
        ({"sse": "AES256"}, {"": "AES256"}),
        (
            {"sse": "aws:kms", "ssekmskeyid": "key-7"},
            {"": "aws:kms", "-aws-kms-key-id": "key-7"},
        ),
        ({}, {}),
    ],
)
def test_encryption_is_asked_for_with_everything_that_is_put(
    sse: Mapping[str, str], headers: Mapping[str, str], given: Mapping[str, str]
) -> None:
    options = S3Options.parse({**given, "path": "s3://bucket/rows", "timeout": "7", **sse})
    wanted = {f"x-amz-server-side-encryption{name}": text for name, text in headers.items()}
    sent: list[dict[str, str]] = []

    class NoBody:
        def stream(self) -> Iterator[bytes]:
            yield b"<a><UploadId>1</UploadId></a>"

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """In place of a server: the one of these tests has no keys to encrypt with."""
        texts = {
            k.lower(): v.decode() if isinstance(v, bytes) else v for k, v in request.headers.items()
        }
        sent.append({k: v for k, v in texts.items() if "server-side-encryption" in k})
        return AWSResponse(request.url, 200, {"ETag": '"x"'}, NoBody())

    for once in (False, True):
        client(options.server, once=once).meta.events.register("before-send.s3", answer)
    Objects(options.bucket).put("a", b"segment")
    Objects(options.bucket).put_if("b", b"register", None)
    Uploads(options).create("c", {})
    assert sent == [wanted] * 3
