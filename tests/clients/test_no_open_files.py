"""A process that can open no more files says so, whatever client met it; and no other one does."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import kafka.errors
import psycopg
import pytest
import requests
from botocore import exceptions as boto
from confluent_kafka import KafkaError

from abs_clients import causes
from abs_clients.avro.registry import Registry
from abs_clients.avro.settings import RegistrySettings
from abs_clients.delta import errors as of_delta
from abs_clients.iceberg import errors as of_iceberg
from abs_clients.kafka import errors as of_kafka
from abs_clients.kafka import oidc
from abs_clients.kafka.settings import Settings
from abs_clients.postgres import errors as of_postgres
from abs_clients.s3 import errors as of_s3
from abs_core.errors import AbsError, RefusedError, UnavailableError
from tests.planted import planted

NO_FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
HIDING = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
"""The system's look-up of a name tells it so, too, if it can open no file."""

Mapping = Callable[[OSError], AbsError]
"""Our error for a client's that was caused by one of the system's."""


def _raised(mapping: Callable[[], object]) -> AbsError:
    with pytest.raises(AbsError) as met:
        mapping()
    return met.value


def _within(
    translate: Callable[[str], AbstractContextManager[None]], error: BaseException
) -> AbsError:
    def mapping() -> None:
        with translate("asking"):
            raise error

    return _raised(mapping)


def _connecting(ask: Callable[[], object], cause: OSError) -> AbsError:
    """What a client raises that meets this error where it connects."""

    def refuse(*_: object, **__: object) -> None:
        raise cause

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", refuse)
        return _raised(ask)


TOKENS = {
    "sasl.oauthbearer.token.endpoint.url": "http://h/token",
    "sasl.oauthbearer.client.id": "a",
    "sasl.oauthbearer.client.secret": "b",
}

REGISTRY = Registry(RegistrySettings(url="http://h"))

BY_NUMBER: dict[str, Mapping] = {
    "postgres": lambda cause: _within(of_postgres.translate_errors, cause),
    "kafka": lambda cause: _within(of_kafka.translate_errors, cause),
    "kafka-python": lambda cause: of_kafka.to_abs_error(
        kafka.errors.KafkaConnectionError(cause), "asking"
    ),
    "token server": partial(_connecting, lambda: oidc.fetch(TOKENS)),
    "schema registry": partial(_connecting, lambda: REGISTRY.node(1)),
    "s3": lambda cause: of_s3.to_abs_error(cause, "reading"),
    "s3 connecting": lambda cause: of_s3.to_abs_error(
        boto.EndpointConnectionError(endpoint_url="http://h", error=cause), "reading"
    ),
    "iceberg": lambda cause: _within(of_iceberg.mapped, requests.ConnectionError(cause)),
}
"""The client's error carries the system's."""

BY_WORDS: dict[str, Mapping] = {
    "postgres connecting": lambda cause: of_postgres.cannot_connect(
        psycopg.OperationalError(f"could not create socket: {cause.strerror}"), "h"
    ),
    "librdkafka": lambda cause: of_kafka.to_abs_error(
        KafkaError(KafkaError._TRANSPORT, f"Failed to create socket: {cause.strerror}"), "asking"
    ),
    "delta": lambda cause: _within(
        of_delta.mapped, OSError(f"error sending request: {cause.strerror}")
    ),
}
"""It has no more than its text."""


@contextmanager
def no_file() -> Iterator[None]:
    """This process can open no file, whatever other threads close: the first three stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_named(error: AbsError) -> bool:
    assert isinstance(error, UnavailableError)
    named = "can open no more files" in error.what
    assert ("ulimit -n" in error.remedy) is named
    return named


@pytest.mark.parametrize("client", [*BY_NUMBER, *BY_WORDS])
def test_no_file_that_could_be_opened_is_named_though_one_can_be_opened_now(client: str) -> None:
    """Another thread has closed one since."""
    assert _is_named((BY_NUMBER | BY_WORDS)[client](NO_FILE))


@pytest.mark.parametrize("client", BY_NUMBER)
def test_an_outage_of_another_cause_names_no_files_though_none_can_be_opened_now(
    client: str,
) -> None:
    """Another thread has opened the last one since."""
    BY_NUMBER[client](REFUSED)  # all that it needs is loaded
    with no_file():
        error = BY_NUMBER[client](REFUSED)
    assert not _is_named(error)


@pytest.mark.parametrize("client", [*BY_NUMBER, *BY_WORDS])
def test_a_library_that_hides_the_cause_is_not_relied_on(client: str) -> None:
    mapping = (BY_NUMBER | BY_WORDS)[client]
    assert not _is_named(mapping(HIDING))
    with no_file():
        error = mapping(HIDING)
    assert _is_named(error)


def test_what_a_server_answers_is_no_lack_of_files_here() -> None:
    status = {"Error": {"Code": "SlowDown", "Message": NO_FILE.strerror}}
    with no_file():
        errors = [
            of_postgres.to_abs_error(psycopg.errors.AdminShutdown("it stops"), "asking"),
            of_kafka.to_abs_error(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE), "asking"),
            of_s3.to_abs_error(boto.ClientError(status, "PutObject"), "writing"),
        ]
    assert not any(map(_is_named, errors))


@pytest.mark.parametrize(
    "check",
    [
        lambda: test_no_file_that_could_be_opened_is_named_though_one_can_be_opened_now("s3"),
        lambda: test_an_outage_of_another_cause_names_no_files_though_none_can_be_opened_now("s3"),
    ],
)
def test_a_look_after_the_error_is_found(check: Callable[[], None]) -> None:
    """Planted: what it was before. The number that the system gave is not asked for."""
    with planted((causes, "_number", lambda cause: None), (causes, "_WORDS", ())):
        check()


def test_what_brokers_advertise_does_not_hide_that_no_file_can_be_opened() -> None:
    class Broker:
        host, port = "elsewhere", 1

    error = BY_NUMBER["kafka"](NO_FILE)
    of_kafka.naming(error, Settings((("bootstrap.servers", "a:1"),)), [Broker()])
    assert "ulimit -n" in error.remedy


def test_no_room_for_locks_is_final_and_names_the_setting() -> None:
    class Hinted(psycopg.errors.OutOfMemory):
        class diag:  # noqa: N801
            message_primary = "out of shared memory"
            message_hint = 'You might need to increase "max_locks_per_transaction".'
            message_detail = context = None

    error = of_postgres.to_abs_error(Hinted(), "applying staged rows")
    assert isinstance(error, RefusedError)
    assert error.remedy.startswith("raise max_locks_per_transaction, or let an epoch have fewer")
    Hinted.diag.message_hint = ""
    assert isinstance(of_postgres.to_abs_error(Hinted(), "applying"), UnavailableError)
