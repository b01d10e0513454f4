"""Every call of a job, lost in every way, by its position: the contract's calls, and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing import SCHEMA, Calls, Harness, Opener, Position, by_calls
from abs_testing.calls import PositionOpener
from tests.fault_proxy.postgres import LossyProxy
from tests.sample import cut, hand
from tests.sinks.positions import *  # noqa: F403 - the suite
from tests.sinks.positions import Lane, in_each
from tests.sinks.postgres.buried import poisoned

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

CELLS = ["2pc-append", "wal-append", "wal-upsert", "idempotent-upsert"]
HOLDS_A_LOCK = (
    "CREATE SCHEMA",
    "CREATE TABLE",
    "COMMIT",
    "select pg advisory",
    "select from pg",
    "select to regnamespace",
)
"""Statements of a transaction that holds a lock which every task waits for: while one is delayed nobody
gets past it. The server ends such a transaction after ``IDLE_IN_TRANSACTION_SECONDS``."""


TableOpener = Callable[[str, Variant], AbstractContextManager[TableHarness]]


def by_messages(url: str, variant: Variant, opener: TableOpener) -> PositionOpener:
    """Loses messages to the server, on the wire."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        with opener(url, variant) as harness, LossyProxy(url) as proxy:
            options = replace(harness.options, address=Address.parse(proxy.url))
            harness.new_sink = partial(
                PostgresSink, options, SCHEMA, co_commit=variant.own_register
            )
            yield harness, proxy

    return opened


def with_letters(url: str, variant: Variant) -> AbstractContextManager[TableHarness]:
    """A table that refuses rows; a reader sees it and its dead letters together."""
    return poisoned(url, variant.name)


def may_wait(position: Position) -> bool:
    return position.name.upper().startswith(tuple(name.upper() for name in HOLDS_A_LOCK))


OPENERS: dict[str, Callable[[str, Variant], PositionOpener]] = {
    "calls": lambda url, variant: by_calls(partial(open_table, url, variant)),
    "messages": partial(by_messages, opener=open_table),
    "letters": partial(by_messages, opener=with_letters),
    "letters-calls": lambda url, variant: by_calls(partial(with_letters, url, variant)),
}


# Two of the four are in the sample, each way; the calls of two of them fail and come again there.
BY_CALLS, BY_MESSAGES = (hand(CELLS, n, 2, "PostgreSQL, by position") for n in range(2))
READ = cut(CELLS, 2, "PostgreSQL, reads")
KEEPING = [*CELLS, "wal-append-foreign-register", "wal-upsert-foreign-register"]
"""The cells that keep dead letters, each with a table that refuses rows."""

LETTERS = [("wal-append", "letters"), ("wal-append-foreign-register", "letters-calls")]
"""In the sample."""


LANES = [
    lane
    for cell in CELLS
    for lane in (
        Lane(
            f"PostgreSQL {cell} calls",
            lost=4 * (cell in BY_CALLS),
            reads=int(cell in READ),
            repeats=4 * (cell in READ),
            may_wait=may_wait,
        ),
        Lane(f"PostgreSQL {cell} messages", lost=2 * (cell in BY_MESSAGES), may_wait=may_wait),
    )
]
LANES += [
    Lane(f"PostgreSQL {cell} {way}", lost=int((cell, way) in LETTERS), may_wait=may_wait)
    for cell in KEEPING
    for way in ("letters", "letters-calls")
]
pytest_generate_tests = in_each(LANES)


@pytest.fixture
def opener(shared_database: str, lane: Lane) -> Opener:
    return partial(open_table, shared_database, VARIANTS[lane.name.split()[1]])


@pytest.fixture
def through(shared_database: str, lane: Lane) -> PositionOpener:
    _, cell, way = lane.name.split()
    return OPENERS[way](shared_database, VARIANTS[cell])
