"""An error that is none of a network's is never told as a server that does not answer."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from botocore import exceptions as boto
from botocore.config import Config
from botocore.session import Session
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from abs_clients.kafka.errors import translate_errors as of_kafka
from abs_clients.postgres.errors import translate_errors as of_postgres
from abs_clients.s3.errors import translate_errors as of_s3
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError

MISSING = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/ca.pem")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """Of a server that closes each connection: it is reached, so the client's files are read."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def close_each() -> None:
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                pass  # the test has ended

        threading.Thread(target=close_each, daemon=True).start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def no_pem(tmp_path: Path) -> str:
    path = tmp_path / "no.pem"
    path.write_text("nothing")
    return str(path)


def asked(endpoint: str, **settings: str | tuple[str, str]) -> AbsError:
    """What a request of botocore's ends with, to a server that closes connections."""
    verify = settings.pop("verify", None)
    config = Config(retries={"total_max_attempts": 1}, **settings)
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = Session().create_client(
        "s3", "us-east-1", endpoint_url=endpoint, verify=verify, config=config, **keys
    )
    with pytest.raises(AbsError) as raised, of_s3("reading s3://b/k"):
        client.head_object(Bucket="b", Key="k")
    return raised.value


def test_a_server_that_closes_the_connection_is_away(endpoint: str) -> None:
    assert type(asked(endpoint)) is UnavailableError
    assert type(asked(endpoint.replace("https", "http"))) is UnavailableError


def test_files_of_certificates_that_cannot_be_read_are_refused_at_once(
    endpoint: str, no_pem: str
) -> None:
    for error in (
        asked(endpoint, verify="/no/such/file.pem"),
        asked(endpoint, verify=no_pem),
        asked(endpoint, client_cert="/no/such/file.pem"),
        asked(endpoint, client_cert=no_pem),
    ):
        assert type(error) is RefusedError, error
        assert "certificate" in error.remedy


def test_a_value_that_the_client_cannot_send_is_told_as_a_defect(endpoint: str) -> None:
    error = asked(endpoint.replace("https", "http"), user_agent_extra="a\nb")
    assert type(error) is TargetError
    assert "not an outage" in error.remedy


def _wrapped(error: Exception) -> boto.BotoCoreError:
    return boto.ConnectionClosedError(endpoint_url="http://x", error=ProtocolError("cut", error))


def _deeper(error: Exception) -> boto.BotoCoreError:
    wrapped = MaxRetryError(None, "http://x", error)  # type: ignore[arg-type]
    return boto.EndpointConnectionError(endpoint_url="http://x", error=wrapped)


@pytest.mark.parametrize(
    "mapping",
    [of_s3, of_kafka, of_postgres],
    ids=["s3", "kafka", "postgres"],
)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MISSING, RefusedError),
        (PermissionError(errno.EACCES, "Permission denied"), RefusedError),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RefusedError),
        (OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)), UnavailableError),
        (ConnectionResetError(errno.ECONNRESET, "by the peer"), UnavailableError),
        (socket.gaierror(socket.EAI_AGAIN, "later"), UnavailableError),
        (TimeoutError("no answer"), UnavailableError),
    ],
    ids=repr,
)
def test_what_the_system_says_of_a_file_is_no_outage(
    mapping: Callable[..., object], error: OSError, kind: type[AbsError]
) -> None:
    with pytest.raises(AbsError) as raised, mapping("testing"):  # type: ignore[attr-defined]
        raise error
    assert type(raised.value) is kind


@pytest.mark.parametrize("wrap", [_wrapped, _deeper])
@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (MISSING, RefusedError),
        (ValueError("year 10000 is out of range"), TargetError),
        (TypeError("an integer is required"), TargetError),
        (KeyError("partition"), TargetError),
        (NewConnectionError(None, "refused"), UnavailableError),  # type: ignore[arg-type]
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), UnavailableError),
    ],
    ids=repr,
)
def test_the_cause_counts_however_deep_a_client_wraps_it(
    wrap: Callable[[Exception], Exception], cause: Exception, kind: type[AbsError]
) -> None:
    with pytest.raises(AbsError) as raised, of_s3("testing"):
        raise wrap(cause)
    assert type(raised.value) is kind


def test_what_was_handled_before_an_outage_is_not_its_cause() -> None:
    """``__context__``: a client retries inside of an ``except``."""
    reset = ConnectionResetError(errno.ECONNRESET, "by the peer")
    reset.__context__ = KeyError("cache")
    with pytest.raises(UnavailableError), of_s3("testing"):
        raise reset
