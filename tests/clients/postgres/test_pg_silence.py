"""A server that vanishes without a word is noticed, wherever that happens; one that works is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address, Server
from abs_clients.postgres.connection import SILENCE_MS, connect
from abs_core.errors import UnavailableError
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows
from abs_testing.engine import Attempt
from tests import sample
from tests.fault_proxy.postgres import LossyProxy

pytestmark = pytest.mark.services

SHORT_MS = 2_000
"""A silence that tests can wait for; the default one is tried in the campaign."""

MINUTE, DEADLINE = 60.0, 180.0


def _options(url: str, silence_ms: int | None) -> PostgresOptions:
    given = {"url": url, "dbtable": "t", "connecttimeout": "2"}
    if silence_ms is not None:
        given["url"] = f"{url}{'&' if '?' in url else '?'}tcp_user_timeout={silence_ms}"
    return PostgresOptions.parse(given)


def _attempt(harness: TableHarness, proxy: LossyProxy, silence_ms: int | None) -> Attempt:
    """One that has written its first rows, through the proxy."""
    address = _options(proxy.url, silence_ms).address
    options = replace(harness.options, address=address)
    harness.new_sink = partial(PostgresSink, options, SCHEMA)
    return Case(harness).run().attempt(0).write(*rows(0, 3))


def _flood(attempt: Attempt) -> None:
    """More than what the buffers on the way can take."""
    while True:
        attempt.write(*rows(0, 50_000, "v" * 100))


MOMENTS: dict[str, Callable[[Attempt], object]] = {
    "sending rows": _flood,
    "waiting for an answer": lambda attempt: attempt.pre_commit(),
}


def _noticed_after(database: str, silence_ms: int | None, moment: str, *, new_ones: bool) -> float:
    """Seconds until the error is there."""
    # The proxy ends first: until then the server's session holds its locks.
    with open_table(database, VARIANTS["2pc-append"]) as harness, LossyProxy(database) as proxy:
        attempt = _attempt(harness, proxy, silence_ms)
        proxy.stand_still(new_ones=new_ones)
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            MOMENTS[moment](attempt)
        attempt.writer.abort()
        return time.monotonic() - began


@sample.cases(1, of="moment")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("new_ones", [True, False], ids=["server gone", "connection gone"])
def test_a_server_that_vanishes_inside_copy_is_noticed(
    shared_database: str, moment: str, new_ones: bool
) -> None:
    assert _noticed_after(shared_database, SHORT_MS, moment, new_ones=new_ones) < DEADLINE


@pytest.mark.campaign
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("new_ones", [True, False], ids=["server gone", "connection gone"])
def test_by_default_it_is_noticed_within_a_minute(
    shared_database: str, moment: str, new_ones: bool
) -> None:
    seconds = _noticed_after(shared_database, None, moment, new_ones=new_ones)
    assert seconds < MINUTE


def test_a_statement_that_takes_long_is_waited_for(shared_database: str) -> None:
    # Long enough that a machine under load can ask in time what the session is doing.
    with connect(_options(shared_database, 8_000).server) as connection:
        connection.execute("select pg_sleep(10)")
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_url_may_ask_for_another_time_and_for_none(shared_database: str) -> None:
    for chosen, expected in ((None, SILENCE_MS), (7_000, 7_000), (0, 0)):
        with connect(_options(shared_database, chosen).server) as connection:
            parameters = connection.info.get_parameters()
        assert int(parameters.get("tcp_user_timeout", "0")) == expected


def test_keepalives_of_the_url_go_before_the_defaults(shared_database: str) -> None:
    url = f"{shared_database}?keepalives_idle=77"
    with connect(Server.at(url)) as connection:
        parameters = connection.info.get_parameters()
    assert parameters["keepalives_idle"] == "77"
    assert parameters["keepalives_count"] == "3"
    assert Address.parse(url).label == Address.parse(shared_database).label
