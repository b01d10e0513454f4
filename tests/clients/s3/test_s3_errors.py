"""S3's errors: one table, row by row, and the sink and the source both go by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import botocore.exceptions as boto
import pytest
import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.parsers import ResponseParserError

from abs_clients.s3 import client as clients
from abs_clients.s3.client import client, close_idle
from abs_clients.s3.errors import BY_CODE, to_abs_error, translate_errors
from abs_clients.s3.server import Bucket, Server
from abs_core.errors import (
    AbsError,
    ContentionError,
    RefusedError,
    TargetError,
    UnavailableError,
)
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Sink
from abs_sources.files.options import FileOptions
from abs_testing.harness import SCHEMA

SERVER = Server("http://127.0.0.1:9", "us-east-1", pathstyle=True)
BUCKET = Bucket(SERVER, "bucket")

ROWS: dict[str, type[AbsError]] = {
    "AccessDenied": RefusedError,
    "AllAccessDisabled": RefusedError,
    "BadDigest": UnavailableError,
    "ConditionalRequestConflict": ContentionError,
    "EntityTooLarge": RefusedError,
    "ExpiredToken": RefusedError,
    "InternalError": UnavailableError,
    "InvalidAccessKeyId": RefusedError,
    "InvalidBucketName": RefusedError,
    "InvalidBucketState": RefusedError,
    "InvalidToken": RefusedError,
    "KeyTooLongError": RefusedError,
    "NoSuchBucket": RefusedError,
    "NotImplemented": RefusedError,
    "OperationAborted": ContentionError,
    "PermanentRedirect": RefusedError,
    "RequestTimeTooSkewed": RefusedError,
    "RequestTimeout": UnavailableError,
    "RequestTimeoutException": UnavailableError,
    "ServiceUnavailable": UnavailableError,
    "SignatureDoesNotMatch": RefusedError,
    "SlowDown": UnavailableError,
    "TooManyRequests": UnavailableError,
    "XAmzContentSHA256Mismatch": UnavailableError,
    "XMinioStorageFull": RefusedError,
}
"""Written a second time, on purpose: what is final and what passes is decided here, not there."""


def _answered(code: str, status: int) -> AbsError:
    response = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return to_abs_error(boto.ClientError(response, "PutObject"), "testing")


def test_the_table_has_no_row_that_is_not_tested() -> None:
    assert set(BY_CODE) == set(ROWS)


@pytest.mark.parametrize("code", ROWS)
@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_code_means_the_same_whatever_its_status(code: str, status: int) -> None:
    found = _answered(code, status)
    assert type(found) is ROWS[code]
    assert found.retryable is (ROWS[code] is not RefusedError)
    assert code in str(found)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, UnavailableError),  # an error in the body of an answer that had begun
        (304, TargetError),
        (400, RefusedError),
        (401, RefusedError),
        (403, RefusedError),
        (404, RefusedError),
        (409, ContentionError),
        (412, RefusedError),
        (429, UnavailableError),
        (500, UnavailableError),
        (502, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
    ],
)
@pytest.mark.parametrize("code", ["", "SomethingNew"])
def test_a_code_that_nobody_knows_goes_by_its_status(
    code: str, status: int, kind: type[AbsError]
) -> None:
    assert type(_answered(code, status)) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.EndpointConnectionError(endpoint_url="http://x"), UnavailableError),
        (boto.ReadTimeoutError(endpoint_url="http://x"), UnavailableError),
        (boto.ConnectionClosedError(endpoint_url="http://x"), UnavailableError),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), UnavailableError),
        (boto.ResponseStreamingError(error="cut off"), UnavailableError),
        (ResponseParserError("half an answer"), UnavailableError),
        (urllib3.exceptions.ProtocolError("cut off"), UnavailableError),
        (ConnectionResetError("by the peer"), UnavailableError),
        (boto.SSLError(endpoint_url="x", error="[SSL: CERTIFICATE_VERIFY_FAILED]"), RefusedError),
        (boto.SSLError(endpoint_url="x", error="[SSL: WRONG_VERSION_NUMBER]"), RefusedError),
        (boto.SSLError(endpoint_url="x", error="EOF occurred in violation"), UnavailableError),
        (boto.NoCredentialsError(), RefusedError),
        (boto.PartialCredentialsError(provider="p", cred_var="v"), RefusedError),
        (boto.ProfileNotFound(profile="p"), RefusedError),
        (boto.NoRegionError(), RefusedError),
        (boto.ParamValidationError(report="r"), TargetError),
    ],
)
def test_every_failure_of_the_client_has_its_error(error: Exception, kind: type[AbsError]) -> None:
    with pytest.raises(AbsError) as raised, translate_errors("testing"):
        raise error
    assert type(raised.value) is kind


def test_an_endpoint_that_boto3_cannot_use_is_refused_with_the_options_name() -> None:
    with pytest.raises(RefusedError) as raised:
        client(Server("no url"))
    assert "endpoint" in str(raised.value.remedy)


class Body:
    """Of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """Has every request of this process to ``SERVER`` answered with a code; lists the requests."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    close_idle(SERVER)

    def answer_with(code: str) -> list[str]:
        sent: list[str] = []

        def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
            if request.method == "HEAD":  # botocore's own, after a redirect
                return AWSResponse(request.url, 404, {}, Body(b""))
            sent.append(request.method)
            text = f"<Error><Code>{code}</Code><Message>m</Message></Error>"
            status = 503 if ROWS[code] is UnavailableError else 400
            return AWSResponse(request.url, status, {}, Body(text.encode()))

        client(SERVER).meta.events.register("before-send.s3", answer)
        return sent

    yield answer_with
    close_idle(SERVER)


def _sink() -> object:
    given = {"path": "s3://bucket/x", "endpoint": str(SERVER.endpoint), "region": "us-east-1"}
    return S3Sink(S3Options.parse(given), SCHEMA).is_empty()


def _source() -> object:
    given = {"path": "s3://bucket/x", "endpoint": str(SERVER.endpoint), "region": "us-east-1"}
    options = FileOptions.parse({**given, "fileformat": "parquet"}, streaming=False)
    return options.store().find()


@pytest.mark.parametrize("code", ROWS)
def test_sink_and_source_take_the_same_answer_for_the_same(
    code: str, answers: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TRIES", 1)
    answers(code)
    found = []
    for use in (_sink, _source):
        with pytest.raises(AbsError) as raised:
            use()
        found.append((type(raised.value), raised.value.remedy, raised.value.retryable))
    assert found[0] == found[1]
    assert found[0][0] is ROWS[code]
    assert code != "RequestTimeTooSkewed" or "clock" in str(found[0][1])


def test_sink_and_source_send_a_request_equally_often(
    answers: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TRIES", 2)  # botocore waits before each further one
    sent = answers("SlowDown")
    for so_far, use in ((2, _sink), (4, _source)):
        with pytest.raises(UnavailableError):
            use()
        assert len(sent) == so_far
