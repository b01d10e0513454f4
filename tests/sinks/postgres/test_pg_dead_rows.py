"""A row is dead only if the epoch without it would live, and no part of the dead ones can come back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from psycopg import sql

from abs_core.errors import AbsError, DataError
from abs_sinks.postgres import applying, judgestaged, trials
from abs_sinks.postgres.dead_search import Refusal
from tests import sample
from tests.sinks.postgres.dead_rows import WORLDS, Numbered, Played, drawn, played

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
    return sql.SQL(right.replace('order by s."at"', 'order by s."abs:c" desc, s."at"')).format()


RANKED = trials._ordered

PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "halves are tried alone": (judgestaged, "find_dead", by_halves, "tree"),
    "ties go by arrival": (trials, "_ordered", by_arrival, "unique"),
    "deferred errors are not asked for": (trials, "CHECKED", applying.DEFERRED, "tree-deferrable"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    shared_database: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, name, planted, world = PLANTED[bug]
    monkeypatch.setattr(home, name, planted)
    with suppress(AbsError):  # rows that the search calls good are refused by the transaction
        assert any(differences(shared_database, world, range(n, n + 1), 5) for n in range(20))
