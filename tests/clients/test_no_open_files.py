"""A process that can open no more files says so, whatever client met it; and no other one does."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import kafka.errors
import psycopg
import pytest
from botocore import exceptions as boto

from abs_clients.kafka import errors as of_kafka
from abs_clients.kafka.settings import Settings
from abs_clients.postgres import errors as of_postgres
from abs_clients.s3 import errors as of_s3
from abs_core.errors import AbsError, RefusedError, UnavailableError

NO_FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _raised(mapping: Callable[[], object]) -> AbsError:
    with pytest.raises(AbsError) as met:
        mapping()
    return met.value


def _postgres() -> None:
    with of_postgres.translate_errors("committing"):
        raise NO_FILE


def _kafka() -> None:
    with of_kafka.translate_errors("sending"):
        raise NO_FILE


MET: dict[str, Callable[[], AbsError]] = {
    "postgres": lambda: _raised(_postgres),
    "postgres connecting": lambda: of_postgres.cannot_connect(psycopg.OperationalError("x"), "h"),
    "kafka": lambda: _raised(_kafka),
    "kafka-python": lambda: of_kafka.to_abs_error(kafka.errors.KafkaConnectionError("x"), "asking"),
    "s3": lambda: of_s3.to_abs_error(NO_FILE, "reading"),
    "s3 connecting": lambda: of_s3.to_abs_error(
        boto.EndpointConnectionError(endpoint_url="http://h", error=NO_FILE), "reading"
    ),
}


@contextmanager
def no_file() -> Iterator[None]:
    """Every file that this process may open is open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, hard))
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("client", MET)
def test_no_file_that_can_be_opened_is_named(client: str) -> None:
    with no_file():
        error = MET[client]()
    assert isinstance(error, UnavailableError)
    assert "can open no more files" in error.what
    assert "ulimit -n" in error.remedy


@pytest.mark.parametrize("client", MET)
def test_an_outage_of_another_cause_names_no_files(client: str) -> None:
    error = MET[client]()
    assert "can open no more files" not in error.what
    assert "ulimit" not in error.remedy


def test_what_brokers_advertise_does_not_hide_that_no_file_can_be_opened() -> None:
    class Broker:
        host, port = "elsewhere", 1

    with no_file():
        error = MET["kafka"]()
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
