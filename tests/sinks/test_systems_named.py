"""A client's errors say which system they are of, as the sink's patience names it to people."""

from __future__ import annotations

from dataclasses import replace

import kafka.errors
import psycopg
import pytest
from botocore.exceptions import ConnectTimeoutError
from confluent_kafka import KafkaError

from abs_clients.kafka.errors import to_abs_error as of_kafka
from abs_clients.kafka.errors import translate_errors as in_kafka
from abs_clients.postgres.errors import cannot_connect
from abs_clients.postgres.errors import to_abs_error as of_postgres
from abs_clients.s3.errors import to_abs_error as of_s3
from abs_core.errors import AbsError, UnavailableError
from abs_core.patience import several
from abs_sinks.door import format_named
from abs_testing.case import raises

GIVEN = {
    "abs-postgres": {"url": "postgresql://u@127.0.0.1:1/d", "dbtable": "t"},
    "abs-kafka": {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"},
    "abs-s3": {"path": "s3://bucket/prefix", "endpoint": "http://127.0.0.1:1"},
}
PATIENCES = {name: format_named(name).parse(given).patience for name, given in GIVEN.items()}


def _timed_out() -> None:
    with in_kafka("asking"):
        raise TimeoutError


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("abs-postgres", of_postgres(psycopg.OperationalError("gone"), "asking")),
        ("abs-postgres", cannot_connect(psycopg.OperationalError("refused"), "h")),
        ("abs-kafka", of_kafka(KafkaError(KafkaError._TRANSPORT), "asking")),
        ("abs-kafka", of_kafka(kafka.errors.KafkaConnectionError("gone"), "asking")),
        ("abs-kafka", raises(UnavailableError, _timed_out)),
        ("abs-s3", of_s3(ConnectTimeoutError(endpoint_url="h"), "asking")),
        ("abs-s3", of_s3(ConnectionResetError("gone"), "asking")),
    ],
)
def test_a_wait_for_three_systems_in_vain_names_the_one_whose_client_has_failed(
    name: str, error: AbsError
) -> None:
    def call() -> None:
        raise error

    together = several(PATIENCES.values())
    raises(UnavailableError, lambda: replace(together, seconds=0.0).retry(call))
    assert f"Waited for {PATIENCES[name].system} for " in error.what
