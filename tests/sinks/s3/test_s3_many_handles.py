"""Requests that many handles take are sent past boto3; what they prove is the same, whatever fails."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from abs_clients.s3.client import client, close_idle, direct
from abs_clients.s3.direct import Call
from abs_clients.s3.server import Server
from abs_core.contracts import Task
from abs_core.model import Committable, Outcome
from abs_sinks.s3 import S3Options, S3Sink
from abs_sinks.s3.testing import FolderHarness
from abs_sinks.s3.twophase import TwoPhaseCommitter
from abs_sinks.s3.uploads import Uploads, uploads_of
from abs_testing import SCHEMA
from tests.sinks.s3.proxy import Fault, Plan, Proxy, by_proxy

pytestmark = pytest.mark.services

HANDLES = 6
LIST, COMPLETE = "ListParts", "CompleteMultipartUpload"
XML = "<?xml version='1.0'?>"


@pytest.fixture
def protocol() -> str:
    return "2pc"


@pytest.fixture
def committer(harness: FolderHarness, proxy: Proxy) -> Iterator[TwoPhaseCommitter]:
    """Acts through the proxy."""
    yield TwoPhaseCommitter(by_proxy(proxy, harness.options, timeout=5.0))
    proxy.plan = None
    proxy.order.clear()


def prepared(options: S3Options, count: int) -> list[Committable]:
    """So many handles of one epoch, of one file each."""
    sink = S3Sink(options, SCHEMA)
    found = []
    for number in range(count):
        writer = sink.writer(Task("0" * 16, "job", 1, 0, number, secrets.token_hex(8)))
        writer.write(pa.record_batch([[number], ["x"]], schema=SCHEMA))
        committable = writer.pre_commit()
        assert committable is not None
        found.append(committable)
    return found


def outcomes(committer: TwoPhaseCommitter, handles: list[Committable]) -> set[Outcome]:
    return {seen.outcome for seen in committer.inspect(handles).values()}


def parts_of(
    handle: Committable, *, upload_id: str | None = None, truncated: bool = False
) -> bytes:
    """A list of all its parts, as the server writes it."""
    (upload,) = uploads_of(handle)
    parts = (
        f"<Part><PartNumber>1</PartNumber><ETag>{upload.etags[0]}</ETag><Size>{upload.size}</Size>"
    )
    return (
        f"{XML}<ListPartsResult><Key>{upload.key}</Key>"
        f"<UploadId>{upload_id or upload.upload_id}</UploadId>"
        f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{parts}</Part></ListPartsResult>"
    ).encode()


def test_every_handle_is_looked_at_and_completed_by_one_request_each(
    harness: FolderHarness, committer: TwoPhaseCommitter, proxy: Proxy
) -> None:
    handles = prepared(harness.options, HANDLES)
    assert outcomes(committer, handles) == {Outcome.PREPARED}
    assert proxy.order == [LIST] * HANDLES
    proxy.order.clear()
    assert set(committer.commit(handles).values()) == {Outcome.COMMITTED}
    assert proxy.order == [COMPLETE] * HANDLES
    keys = sorted(upload.key for handle in handles for upload in uploads_of(handle))
    assert sorted(harness.keys()) == keys


@pytest.mark.parametrize("fault", [Fault.DROPPED, Fault.UNANSWERED, Fault.DOUBLED])
@pytest.mark.parametrize("call", [LIST, COMPLETE])
@pytest.mark.parametrize("position", [0, HANDLES - 1])
def test_a_request_that_fails_is_sent_by_boto3(
    call: str,
    fault: Fault,
    position: int,
    harness: FolderHarness,
    committer: TwoPhaseCommitter,
    proxy: Proxy,
) -> None:
    handles = prepared(harness.options, HANDLES)
    proxy.plan = Plan(call, fault, skip=position)
    assert outcomes(committer, handles) == {Outcome.PREPARED}
    assert set(committer.commit(handles).values()) == {Outcome.COMMITTED}
    assert proxy.plan.met == 1
    assert len(harness.keys()) == HANDLES


LISTS: Mapping[str, Callable[[Committable], bytes]] = {
    "of another upload": lambda handle: parts_of(handle, upload_id="another"),
    "cut short": lambda handle: parts_of(handle, truncated=True),
    "of nothing": lambda _: f"{XML}<ListPartsResult></ListPartsResult>".encode(),
    "an error": lambda _: f"{XML}<Error><Code>InternalError</Code></Error>".encode(),
    "half an answer": lambda handle: parts_of(handle)[:-30],
    "no XML": lambda _: b"welcome to this network",
}


@pytest.mark.parametrize("lie", LISTS)
def test_a_list_that_is_not_this_uploads_whole_list_proves_nothing(
    lie: str, harness: FolderHarness, committer: TwoPhaseCommitter, proxy: Proxy
) -> None:
    (handle,) = prepared(harness.options, 1)
    body = LISTS[lie](handle)
    proxy.plan = Plan(LIST, Fault.LIED, answer=(200, body))
    assert outcomes(committer, [handle]) == {Outcome.PREPARED}
    (upload,) = uploads_of(handle)
    Uploads(harness.options).abort(upload.key, upload.upload_id)
    proxy.plan = Plan(LIST, Fault.LIED, answer=(200, body))
    assert outcomes(committer, [handle]) == {Outcome.UNKNOWN}
    assert proxy.plan.met == 1


def test_an_answer_without_the_checksum_is_proven_by_the_object(
    harness: FolderHarness, committer: TwoPhaseCommitter, proxy: Proxy
) -> None:
    done, lied = prepared(harness.options, 2)
    body = f"{XML}\n<CompleteMultipartUploadResult></CompleteMultipartUploadResult>".encode()
    proxy.plan = Plan(COMPLETE, Fault.LIED_AFTER, answer=(200, b"  \n" + body))
    assert committer.commit([done]) == {done.handle: Outcome.COMMITTED}
    proxy.plan = Plan(COMPLETE, Fault.LIED, answer=(200, body))
    assert committer.commit([lied]) == {lied.handle: Outcome.UNKNOWN}


@pytest.mark.parametrize("value", ["a b+c&d=e", "für/50 %", "~(x)*'!"])
def test_keys_of_any_characters_are_signed_as_boto3_does(
    value: str, harness: FolderHarness, proxy: Proxy
) -> None:
    options = replace(by_proxy(proxy, harness.options), partitionby=("name",))
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    writer = S3Sink(options, schema).writer(Task("0" * 16, "job", 1, 0, 0, "ab"))
    writer.write(pa.record_batch([[1], [value]], schema=schema))
    handle = writer.pre_commit()
    assert handle is not None
    proxy.order.clear()
    committer = TwoPhaseCommitter(options)
    assert outcomes(committer, [handle]) == {Outcome.PREPARED}
    assert committer.commit([handle]) == {handle.handle: Outcome.COMMITTED}
    assert proxy.order == [LIST, COMPLETE]
    proxy.order.clear()


AMAZON = Server(region="eu-west-1")
CALL = Call(LIST, "GET", "ListPartsResult", "some-bucket", "a/b=1/c", {"uploadId": "u"})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mapping[str, str]]]:
    """URL and signature of what would be sent to Amazon; nothing is."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)  # ``abs up`` prints it
    close_idle(AMAZON)
    found: list[Mapping[str, str]] = []

    def answer(request: object, **_: object) -> object:
        found.append({"url": request.url, "by": request.headers["Authorization"]})  # type: ignore[attr-defined]
        return object()

    client(AMAZON).meta.events.register("before-send.s3", answer)
    yield found
    close_idle(AMAZON)


def test_where_a_bucket_is_and_who_signs_is_as_boto3_says(sent: list[Mapping[str, str]]) -> None:
    assert direct(AMAZON).ask(CALL) is None, "an answer of boto3's hooks is boto3's to read"
    (request,) = sent
    assert request["url"] == ("https://some-bucket.s3.eu-west-1.amazonaws.com/a/b%3D1/c?uploadId=u")
    assert "/eu-west-1/s3/aws4_request" in request["by"]


def test_through_a_proxy_requests_go_by_boto3_alone(
    sent: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert direct(AMAZON).ask(CALL) is None
    assert sent == []


def test_a_directory_bucket_goes_by_boto3_alone(sent: list[Mapping[str, str]]) -> None:
    assert direct(AMAZON).ask(replace(CALL, bucket="x--use1-az4--x-s3")) is None
    assert sent == []
