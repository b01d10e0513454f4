"""What each library can raise, by name: only a network's error is told as "does not answer"."""

from __future__ import annotations

import errno
import inspect
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
import sqlalchemy.exc as sql
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from deltalake import exceptions as delta
from pyiceberg import exceptions as iceberg

from abs_clients.delta.errors import mapped as of_delta
from abs_clients.delta.log import DeltaLog
from abs_clients.iceberg.errors import mapped as of_iceberg
from abs_clients.s3.server import Server
from abs_core.errors import RefusedError, TargetError, UnavailableError

SILENT, REFUSED, DEFECT = UnavailableError, RefusedError, TargetError

PYICEBERG: dict[str, type[TargetError]] = {
    **dict.fromkeys(
        (
            *("AuthorizationExpiredError", "CommitStateUnknownException", "ServerError"),
            *("ServiceUnavailableError", "TooManyRequestsError", "WaitingForLockException"),
        ),
        SILENT,
    ),
    **dict.fromkeys(
        (
            *("BadRequestError", "ForbiddenError", "NoSuchIcebergTableError", "NoSuchTableError"),
            *("NoSuchNamespaceError", "OAuthError", "RESTError", "SignError", "UnauthorizedError"),
        ),
        REFUSED,
    ),
    # Each is of something that the sink does not do, or that its caller handles.
    **dict.fromkeys(
        (
            *("CommitFailedException", "ConditionalCheckFailedException", "DynamoDbError"),
            *("GenericDynamoDbError", "NamespaceAlreadyExistsError", "NamespaceNotEmptyError"),
            *("NoSuchIdentifierError", "NoSuchPlanTaskError", "NoSuchPropertyException"),
            *("NoSuchViewError", "NotInstalledError", "ResolveError", "TableAlreadyExistsError"),
            *("ValidationError", "ValidationException", "ViewAlreadyExistsError"),
        ),
        DEFECT,
    ),
}

OTHERS: list[tuple[Exception, type[TargetError]]] = [
    (requests.exceptions.ConnectTimeout("t"), SILENT),
    (requests.exceptions.ConnectionError("c"), SILENT),
    (sql.OperationalError("SELECT", {}, Exception("down")), SILENT),
    (sql.TimeoutError("no connection of the pool"), SILENT),
    (sql.ProgrammingError("SELECT", {}, Exception("permission denied")), REFUSED),
    (ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetTable"), DEFECT),
    (ClientError({"Error": {"Code": "SlowDown"}}, "GetTable"), SILENT),
    (EndpointConnectionError(endpoint_url="http://x"), SILENT),
    (NoCredentialsError(), REFUSED),
    (OSError("When reading: AWS Error NETWORK_CONNECTION during HeadObject"), SILENT),
    (OSError("When reading: AWS Error UNKNOWN (HTTP status 503) during GetObject"), SILENT),
    (OSError("When reading: AWS Error ACCESS_DENIED during GetObject: no"), REFUSED),
    (OSError("When reading: AWS Error NO_SUCH_BUCKET during HeadBucket"), REFUSED),
    (FileNotFoundError(errno.ENOENT, "No such file"), REFUSED),
    (PermissionError(errno.EACCES, "Permission denied"), REFUSED),
    (OSError(errno.ENOSPC, "No space left"), REFUSED),
    (OSError(errno.EIO, "I/O error"), SILENT),
    (ValueError("Parquet magic bytes not found"), DEFECT),
    (OverflowError("date value out of range"), DEFECT),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), DEFECT),
    (IndexError("list index out of range"), DEFECT),
]


def test_every_exception_of_pyiceberg_is_in_the_list() -> None:
    found = {name for name, kind in inspect.getmembers(iceberg, inspect.isclass)}
    assert found == set(PYICEBERG)


@pytest.mark.parametrize(
    ("error", "kind"),
    [*((getattr(iceberg, name)("why"), kind) for name, kind in PYICEBERG.items()), *OTHERS],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_below_a_catalog_are_told_by_what_they_are(
    error: Exception, kind: type[TargetError]
) -> None:
    with pytest.raises(TargetError) as told, of_iceberg("loading"):
        raise error
    assert type(told.value) is kind
    assert ("does not answer" in told.value.what) is (kind is SILENT)
    assert told.value.retryable is (kind is SILENT)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (delta.TableNotFoundError("no"), REFUSED),
        (delta.DeltaProtocolError("no"), REFUSED),
        (delta.SchemaMismatchError("no"), REFUSED),
        (delta.DeltaError("Kernel error: Json error: unexpected 'g'"), DEFECT),
        (delta.DeltaError("the table is catalog-managed"), REFUSED),
        (OSError("Kernel error: File not found: t/_delta_log/0.json"), REFUSED),
        (OSError("Generic error: Permission denied (os error 13)"), REFUSED),
        (OSError("Generic error: No space left on device (os error 28)"), REFUSED),
        (OSError("Generic error: Input/output error (os error 5)"), SILENT),
        (OverflowError("date value out of range"), DEFECT),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_of_deltalake_are_told_by_what_they_are(
    error: Exception, kind: type[TargetError]
) -> None:
    with pytest.raises(TargetError) as told, of_delta("loading"):
        raise error
    assert type(told.value) is kind


def test_a_commit_that_lost_a_race_is_left_to_who_commits() -> None:
    with pytest.raises(delta.CommitFailedError), of_delta("committing"):
        raise delta.CommitFailedError("version exists")


@pytest.fixture
def answering() -> Iterator[ThreadingHTTPServer]:
    """A store that answers every request by one status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.status)  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(b"<Error><Code>X</Code></Error>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "kind"), [(503, SILENT), (429, SILENT), (403, REFUSED), (400, REFUSED)]
)
def test_what_a_store_answers_to_deltalake_is_told_by_its_status(
    status: int,
    kind: type[TargetError],
    answering: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library tells it by a text alone, which a new release may word otherwise."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    answering.status = status  # type: ignore[attr-defined]
    endpoint = f"http://127.0.0.1:{answering.server_port}"
    log = DeltaLog("s3://bucket/t", Server(endpoint=endpoint, region="us-east-1", timeout=1.0))
    with pytest.raises(TargetError, match=str(status)) as told:
        log.load()
    assert type(told.value) is kind


def test_a_store_that_is_not_there_is_told_so_for_deltalake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    server = Server(endpoint="http://127.0.0.1:9", region="us-east-1", timeout=1.0)
    with pytest.raises(UnavailableError, match="does not answer"):
        DeltaLog("s3://bucket/t", server).load()
