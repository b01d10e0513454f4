"""Every call of a job, lost in every way, by its position: the contract's calls, and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, Variant, open_table
from abs_testing import (
    SCHEMA,
    Calls,
    Harness,
    Position,
    Repeat,
    by_calls,
    check_positions,
    check_reads,
    check_repeats,
)
from abs_testing.calls import PositionOpener
from abs_testing.check_reads import STARTS
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.sample import cut, hand

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

SAMPLED = {"calls": 4, "messages": 2}
"""Positions of a cell in the sample, one way for each cell."""

CELLS = ["2pc-append", "wal-append", "wal-upsert", "idempotent-upsert"]
HOLDS_A_LOCK = (
    "CREATE SCHEMA",
    "CREATE TABLE",
    "COMMIT",
    "select pg advisory",
    "select to regnamespace",
)
"""Statements of a transaction that holds a lock which every task waits for: while one is delayed nobody
gets past it. The server ends such a transaction after ``IDLE_IN_TRANSACTION_SECONDS``."""


def by_messages(url: str, variant: Variant) -> PositionOpener:
    """Loses messages to the server, on the wire."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        with open_table(url, variant) as harness, LossyProxy(url) as proxy:
            options = replace(harness.options, address=Address.parse(proxy.url))
            harness.new_sink = partial(
                PostgresSink, options, SCHEMA, co_commit=variant.own_register
            )
            yield harness, proxy

    return opened


def may_wait(position: Position) -> bool:
    return position.name.upper().startswith(tuple(name.upper() for name in HOLDS_A_LOCK))


OPENERS: dict[str, Callable[[str, Variant], PositionOpener]] = {
    "calls": lambda url, variant: by_calls(partial(open_table, url, variant)),
    "messages": by_messages,
}


# Two of the four are in the sample, each way.
@pytest.mark.parametrize(
    ("cell", "way"),
    [
        (cell, way)
        for number, way in enumerate(OPENERS)
        for cell in hand(CELLS, number, len(OPENERS), "PostgreSQL, by position")
    ],
)
def test_a_call_that_is_lost_at_any_position_loses_and_doubles_nothing(
    shared_database: str, cell: str, way: str
) -> None:
    def sampled(found: Sequence[Position]) -> list[Position]:
        return cut(found, SAMPLED[way], f"PostgreSQL {cell} {way}, by position")

    opener = OPENERS[way](shared_database, VARIANTS[cell])
    print(cell, way, check_positions(opener, choose=sampled, may_wait=may_wait), sep=": ")


@sample.cases(2)
@pytest.mark.parametrize("cell", CELLS)
def test_no_read_that_fails_is_taken_for_absence(shared_database: str, cell: str) -> None:
    for start in cut(STARTS, 1, f"PostgreSQL {cell}, reads"):
        opener = by_calls(partial(open_table, shared_database, VARIANTS[cell]))
        print(cell, start, check_reads(opener, start), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("cell", CELLS)
def test_no_read_of_any_start_is_taken_for_absence(
    shared_database: str, cell: str, start: str
) -> None:
    check_reads(by_calls(partial(open_table, shared_database, VARIANTS[cell])), start)


@sample.cases(2)
@pytest.mark.parametrize("cell", CELLS)
def test_a_call_that_comes_again_late_cuts_nothing(shared_database: str, cell: str) -> None:
    def sampled(found: Sequence[Repeat]) -> list[Repeat]:
        return cut(found, SAMPLED["calls"], f"PostgreSQL {cell}, repeats")

    opener = by_calls(partial(open_table, shared_database, VARIANTS[cell]))
    print(cell, *check_repeats(opener, choose=sampled), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("cell", CELLS)
def test_no_call_that_comes_again_late_cuts_anything(shared_database: str, cell: str) -> None:
    opener = by_calls(partial(open_table, shared_database, VARIANTS[cell]))
    print(cell, len(check_repeats(opener)), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("way", OPENERS)
@pytest.mark.parametrize("cell", CELLS)
def test_no_call_can_be_lost_so_that_a_row_is(shared_database: str, cell: str, way: str) -> None:
    opener = OPENERS[way](shared_database, VARIANTS[cell])
    tried = check_positions(opener, may_wait=may_wait)
    print(cell, way, tried, sep=": ")
    assert not [position for position in tried.waited if not may_wait(position)]
