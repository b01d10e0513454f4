"""Every call of a job, lost in every way, by its position: the contract's calls, and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.letters.held import StagedLetters
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing import SCHEMA, Calls, Harness, Opener, Position, by_calls, check_positions
from abs_testing.calls import Loss, PositionOpener
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.planted import planted
from tests.sample import cut, hand
from tests.sinks.positions import *  # noqa: F403 - the suite
from tests.sinks.positions import Lane, in_each
from tests.sinks.postgres.buried import poisoned
from tests.sinks.postgres.growing import growing

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


def without_a_column(url: str, variant: Variant) -> AbstractContextManager[TableHarness]:
    """A table to which the first rows add a column."""
    return growing(url, variant.name)


OPENERS: dict[str, Callable[[str, Variant], PositionOpener]] = {
    "calls": lambda url, variant: by_calls(partial(open_table, url, variant)),
    "messages": partial(by_messages, opener=open_table),
    "growing": partial(by_messages, opener=without_a_column),
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


PREPARES, CO_COMMITS = (
    ("insert into abs", "COMMIT PREPARED abs"),
    ("BEGIN update abs", "drop table abs"),
)
ADDS = ("ALTER TABLE public", "SAVEPOINT added update")
LOST: dict[tuple[str, str], tuple[str, ...]] = {
    ("2pc-append", "messages"): PREPARES,
    ("wal-append", "messages"): CO_COMMITS,
    ("wal-append", "growing"): (*ADDS, "drop table abs"),
    **{(cell, "growing"): ADDS for cell in ("2pc-append", "idempotent-upsert", KEEPING[4])},
    **{(cell, "letters"): ("COMMIT",) for cell in KEEPING if cell.startswith("wal")},
}
"""The messages that decide, commit, add a column, or end the search for rows that the table refuses."""


def lose(url: str, cell: str, way: str, size: int, *losses: Loss) -> None:
    def chosen(found: Sequence[Position]) -> list[Position]:
        named = [p for p in found if p.call in LOST[cell, way] and p.loss in losses]
        return cut(named, size, f"PostgreSQL {cell} {way}")

    print(cell, way, check_positions(OPENERS[way](url, VARIANTS[cell]), choose=chosen))


@pytest.mark.parametrize("size", [2, pytest.param(100, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(("cell", "way"), LOST)
def test_a_loss_at_a_decision_a_new_column_or_a_mark_loses_and_doubles_nothing(
    shared_database: str, cell: str, way: str, size: int
) -> None:
    lose(shared_database, cell, way, size, Loss.REQUEST, Loss.REPLY)


@sample.cases(1)
@pytest.mark.parametrize("cell", [cell for cell, way in LOST if way == "letters"])
def test_marks_of_refused_rows_whose_reply_is_guessed_are_found(
    shared_database: str, cell: str
) -> None:
    """No reply is taken for nothing marked: the rows that are good then are all that is written."""
    with planted((StagedLetters, "check", lambda *_: None)):
        lose(shared_database, cell, "letters", 100, Loss.REPLY)
