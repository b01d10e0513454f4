"""An endpoint that redirects every request, and never says where to, is refused with the options."""

from __future__ import annotations

import io

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from urllib3 import HTTPResponse

from abs_clients.s3.client import client
from abs_clients.s3.errors import translate_errors
from abs_clients.s3.server import Server
from abs_core.errors import RefusedError


def test_an_endpoint_that_redirects_in_a_circle_is_refused_with_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    made = client(Server("http://127.0.0.1:10", "us-east-1", pathstyle=True))

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        return AWSResponse(
            request.url, 301, {}, HTTPResponse(io.BytesIO(b""), preload_content=False)
        )

    made.meta.events.register("before-send.s3", answer)
    with (
        pytest.raises(RefusedError, match="redirects in a circle while reading s3://b/k") as met,
        translate_errors("reading s3://b/k"),
    ):
        made.head_object(Bucket="b", Key="k")
    assert isinstance(met.value.__cause__, RecursionError)
    assert "endpoint and region" in met.value.remedy
