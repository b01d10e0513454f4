"""A process's clients of one S3 server."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from abs_clients.s3.client import client, close_idle
from abs_clients.s3.server import Server

SERVER = Server("http://127.0.0.1:8", "us-east-1", pathstyle=True)


def _signer() -> str:
    url: str = client(SERVER).generate_presigned_url("head_bucket", Params={"Bucket": "b"})
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]


def test_credentials_are_looked_for_once_and_again_after_a_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    close_idle(SERVER)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    assert _signer() == "first"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert _signer() == "first"
    close_idle(SERVER)
    assert _signer() == "second"
    close_idle(SERVER)
