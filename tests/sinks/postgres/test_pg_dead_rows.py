"""A row is dead only if the epoch without it would live, and no part of the dead ones can come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from abs_core.errors import AbsError, DataError
from abs_sinks.postgres.apply import statements
from abs_sinks.postgres.letters import refused_staged, trials
from abs_sinks.postgres.letters.dead_search import Refusal
from tests import sample
from tests.planted import planted
from tests.sinks.postgres.dead_rows import (
    CHANGES,
    WORLDS,
    Numbered,
    Played,
    Tables,
    TablesJob,
    drawn,
    played,
)

pytestmark = pytest.mark.services

EACH = pytest.mark.parametrize("world", WORLDS)


def differences(url: str, world: str, seeds: range, most: int) -> list[int]:
    """The seeds of epochs whose dead rows, or whose tables, are not those of the definition."""
    wrong = []
    for seed in seeds:
        there, rows = drawn(world, seed, most)
        with played(url, world, there) as tables:
            dead = tables.dead_of(rows)
            lives = tables.holds()
            try:
                tables.apply(rows, buries=True)
            except DataError as error:
                if "takes a value that another row has" not in error.what or not _taken(
                    tables, rows
                ):
                    raise
                continue
            if (tables.letters(), tables.holds()) != (dead, lives):
                wrong.append(seed)
    return wrong


def _taken(tables: Played, rows: Sequence[Numbered]) -> bool:
    """Whether a row takes the value of one that no change touches."""
    touched = {(number, row[0]) for number, row in rows}
    held = {(number, row[2]) for number, row in tables.there if (number, row[0]) not in touched}
    return any((number, row[-1]) in held for number, row in rows)


@EACH
def test_the_dead_rows_are_those_of_the_definition(shared_database: str, world: str) -> None:
    assert differences(shared_database, world, range(2), 5) == []


@pytest.mark.campaign
@EACH
def test_the_dead_rows_of_many_epochs_are_those_of_the_definition(
    shared_database: str, world: str
) -> None:
    seed = sample.seed()
    assert differences(shared_database, world, range(seed, seed + 40), 10) == []


def by_halves(of: trials.ServerTrials, most: int) -> dict[int, Refusal]:
    """What was done before: parts are tried beside what was accepted so far, once."""
    refused: dict[int, Refusal] = {}
    waiting = [range(of.count)]
    of.begin()
    while waiting:
        some = waiting.pop()
        refusal = of.add(some) if some else None
        if refusal is not None and len(some) == 1:
            refused[some[0]] = refusal
        elif refusal is not None:
            waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
    return refused


def by_arrival(shares: Sequence[trials.StagedShare], order: sql.Identifier) -> sql.Composed:
    right = RANKED(shares, order).as_string()
    return sql.SQL(right.replace("order by s0,", "order by c desc, s0,")).format()


RANKED = trials._ordered

PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "halves are tried alone": (refused_staged, "find_dead", by_halves, "tree"),
    "ties go by arrival": (trials, "_ordered", by_arrival, "unique"),
    "deferred errors are not asked for": (
        trials,
        "CHECKED",
        statements.DEFERRED,
        "tree-deferrable",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(shared_database: str, bug: str) -> None:
    *defect, world = PLANTED[bug]
    # By a difference, or by the transaction, which refuses rows that the search calls good.
    with planted(tuple(defect), by=(AssertionError, AbsError)):
        for number in range(20):
            assert not differences(shared_database, world, range(number, number + 1), 5)


MAILS = pa.schema([*list(CHANGES)[:3], ("mail", pa.string())])
ORDERS = pa.schema([*list(CHANGES)[:3], ("customer", pa.int64())])


def test_the_example_of_the_page_ends_as_it_says(shared_database: str) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/dead-letters.md").read_text()
    creating = page.split("```sql\n")[1].split("```")[0]
    lines = page.split("```text\n")[1].split("```")[0].splitlines()[1:]
    changes: dict[str, list[tuple[Any, ...]]] = {"customer": [], "orders": []}
    lives: dict[str, set[int]] = {"customer": {1}, "orders": set()}
    dead: set[tuple[str, int]] = set()
    for line in lines:
        change, _, why = line.partition("dead: ")
        table, id_, at, op, value = change.strip().split(maxsplit=4)
        told = int(value) if table == "orders" else value
        changes[table].append((int(id_), int(at), op, told))
        if why:
            dead.add((why[:5], int(at)))
        else:
            lives[table].add(int(id_))
    given = {"url": shared_database, "protocol": "wal", "write": "changes", "sequenceby": "at"}
    given |= {"stateschema": "abspage", "deadlettermax": "1"}
    options = [given | {"dbtable": table, "deadletter": f"{table}_dead"} for table in changes]
    with psycopg.connect(shared_database, autocommit=True) as db:
        db.execute(creating)
        TablesJob(Tables(options, [MAILS, ORDERS]), "page").apply(0, *changes.values())
        query = "select code, (\"row\" ->> 'at')::int from {}_dead"
        found = [row for table in changes for row in db.execute(query.format(table))]
        there = {
            table: {row[0] for row in db.execute(f"select id from {table}")} for table in changes
        }
        db.execute("drop table customer, customer_dead, orders, orders_dead cascade")
        db.execute("drop schema abspage cascade")
    assert (set(found), len(found), there) == (dead, len(dead), lives)
