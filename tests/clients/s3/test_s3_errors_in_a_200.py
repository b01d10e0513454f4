"""A call of many objects is answered by 200, with errors inside: each is an error of the call."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from urllib3 import HTTPResponse

from abs_clients.s3.client import client, close_idle
from abs_clients.s3.errors import translate_errors
from abs_clients.s3.objects import Objects
from abs_clients.s3.server import Bucket, Server
from abs_core.errors import AbsError, RefusedError, UnavailableError
from tests.planted import planted

SERVER = Server("http://127.0.0.1:11", "us-east-1", pathstyle=True)
KEYS = ["a", "b", "c"]
INSIDE = {
    "AccessDenied": RefusedError,
    "InternalError": UnavailableError,
    "SlowDown": UnavailableError,
}


def result(*codes: str) -> str:
    inside = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>m</Message></Error>"
        for key, code in zip(KEYS, codes, strict=False)
    )
    return f"<DeleteResult>{inside}</DeleteResult>"


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Has every request answered by 200 and this body."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    close_idle(SERVER)

    def answer_with(body: str) -> None:
        def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
            raw = HTTPResponse(io.BytesIO(body.encode()), preload_content=False)
            return AWSResponse(request.url, 200, {}, raw)

        client(SERVER).meta.events.register("before-send.s3", answer)

    yield answer_with
    close_idle(SERVER)


def deleted() -> AbsError | None:
    try:
        Objects(Bucket(SERVER, "bucket")).delete(KEYS)
    except AbsError as error:
        return error
    return None


@pytest.mark.parametrize("code", INSIDE)
@pytest.mark.parametrize("before", range(3))
def test_one_object_that_is_not_deleted_is_an_error(
    code: str, before: int, answered: Callable[[str], None]
) -> None:
    answered(result(code).replace("<Key>a<", f"<Key>{KEYS[before]}<"))
    error = deleted()
    assert type(error) is INSIDE[code]
    assert code in error.what
    assert "3 objects of bucket bucket" in error.what


def test_all_deleted_is_no_error(answered: Callable[[str], None]) -> None:
    answered(result())
    assert deleted() is None


@pytest.mark.parametrize("code", INSIDE)
def test_a_completion_that_fails_after_its_answer_has_begun_is_an_error(
    code: str, answered: Callable[[str], None]
) -> None:
    answered(f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>")
    with pytest.raises(AbsError, match=code) as met, translate_errors("completing"):
        client(SERVER).complete_multipart_upload(
            Bucket="bucket", Key="k", UploadId="u", MultipartUpload={"Parts": []}
        )
    assert type(met.value) is INSIDE[code]


def _unread(self: Objects, keys: Sequence[str]) -> None:
    wanted = {"Objects": [{"Key": key} for key in keys]}
    client(self._server).delete_objects(Bucket=self._bucket, Delete=wanted)


def test_errors_inside_that_nobody_reads_are_found(
    answered: Callable[[str], None],
) -> None:
    answered(result("AccessDenied"))
    with planted((Objects, "_delete", _unread)):
        assert deleted() is not None
