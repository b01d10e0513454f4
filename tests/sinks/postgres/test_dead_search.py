"""The search for dead rows finds what a search through all sets of rows finds.

A small table stands for the server here: rows with keys, values that a CHECK refuses, unique values,
and references to other keys. ``test_pg_dead_rows`` does the same with PostgreSQL.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import pytest

from abs_sinks.postgres.letters import dead_search
from abs_sinks.postgres.letters.dead_search import (
    Kind,
    Refusal,
    TooManyDead,
    find_dead,
)
from tests import sample
from tests.planted import planted


@dataclass(frozen=True)
class Row:
    """A change; of a key the last one counts. ``value`` None: a delete; ``of``: a key it refers to."""

    key: int
    value: str | None
    of: int | None = None


class Model:
    """A table, as ``dead_search.Trials``.

    Args:
        there: what it holds before the epoch, by key.
    """

    def __init__(self, rows: Sequence[Row], there: Sequence[Row] = ()) -> None:
        self.rows, self.there = rows, there
        self.count, self.waits = len(rows), True
        self.starts = 0
        self._applied: tuple[int, ...] = ()

    def start(self, out: Collection[int]) -> Refusal | None:
        self.starts += 1
        kept = tuple(row for row in range(self.count) if row not in out)
        refusal = self.refusal(kept)
        self._applied = () if refusal else kept
        return refusal

    def begin(self) -> None:
        self._applied = ()

    def add(self, rows: Sequence[int]) -> Refusal | None:
        refusal = self.probe(rows)
        if refusal is None:
            self._applied += tuple(rows)
        return refusal

    def probe(self, rows: Sequence[int]) -> Refusal | None:
        keys = {self.rows[row].key: row for row in self._applied}
        # A change of an odd key is refused if a newer one was applied, as one with unchanged columns.
        late = [n for n in rows if (key := self.rows[n].key) % 2 and keys.get(key, -1) > n]
        if late:
            return Refusal("older", "", None, Kind.LATE)
        return self.refusal((*self._applied, *rows))

    def refusal(self, rows: Sequence[int]) -> Refusal | None:
        """Why the table does not take these rows together; None if it does."""
        last = {row.key: row for row in self.there}
        last |= {self.rows[n].key: self.rows[n] for n in sorted(rows)}
        lives = [row for row in last.values() if row.value is not None]
        values = [row.value for row in lives if row.value != "free"]
        if "bad" in values:
            return Refusal("check", "", None, Kind.OWN)
        if len(values) != len(set(values)):
            return Refusal("unique", "", None)
        keys = {row.key for row in lives}
        if any(row.of is not None and row.of not in keys for row in lives):
            return Refusal("foreign", "", None)
        return None

    def linked(self, rows: Collection[int], among: Collection[int] | None, most: int) -> set[int]:
        others = set(range(self.count) if among is None else among)
        found = {n for n in others for row in rows if n != row and self._tied(row, n)}
        return set(sorted(found)[:most])

    def shares_key(self, rows: Collection[int]) -> set[int]:
        keys = [row.key for row in self.rows]
        return {row for row in rows if keys.count(keys[row]) > 1}

    def _tied(self, one: int, other: int) -> bool:
        (keys, values, of), (keys2, values2, of2) = self._facts(one), self._facts(other)
        return bool(keys & keys2 or values & values2 or of & keys2 or of2 & keys)

    def _facts(self, n: int) -> tuple[set[int], set[str], set[int]]:
        row = self.rows[n]
        all_rows = [row, *(old for old in self.there if old.key == row.key)]
        values = {each.value for each in all_rows} - {None, "free"}
        return {row.key}, {str(v) for v in values}, {r.of for r in all_rows if r.of is not None}


def by_all_sets(model: Model) -> list[int]:
    """The definition: of all sets that are accepted the one whose rows live first."""
    for lives in product((True, False), repeat=model.count):
        rows = [n for n, there in enumerate(lives) if there]
        if model.refusal(rows) is None:
            return [n for n, there in enumerate(lives) if not there]
    raise AssertionError("an epoch without rows is refused")


def drawn(seed: int) -> Model:
    draw = random.Random(seed)
    values = ["a", "b", "c", "free", "free", "free", "bad", None]

    def row() -> Row:
        return Row(draw.randrange(5), draw.choice(values), draw.choice([None, None, *range(5)]))

    there = Model([Row(n, v) for n, v in enumerate(draw.sample(["a", "b", "free"], 3))]).rows
    return Model([row() for _ in range(draw.randint(1, 8))], there[: draw.randint(0, 3)])


def differing(seeds: range) -> list[int]:
    """The seeds for which the search finds other rows than the definition."""
    wrong = []
    for seed in seeds:
        model = drawn(seed)
        if sorted(find_dead(model, 99)) != by_all_sets(model):
            wrong.append(seed)
    return wrong


def test_the_dead_are_those_of_the_definition() -> None:
    assert differing(range(sample.seed(), sample.seed() + 300)) == []


@pytest.mark.campaign
def test_the_dead_are_those_of_the_definition_in_many_epochs() -> None:
    assert differing(range(20_000)) == []


def alone(search: dead_search._Search, out: set[int]) -> dict[int, Refusal]:
    """The guess is taken for the answer."""
    return {row: search._why[row] for row in out}


def in_one_pass(search: dead_search._Search) -> set[int]:
    search.trials.begin()
    return set(search._grow(range(search.trials.count)))


PLANTED: dict[str, dict[str, object]] = {
    "parts are tried, and not the rest": {"guess": in_one_pass, "improved": alone},
    "no group comes back": {"_groups": lambda self, out, own: out},
    "a group comes back in part": {"_chosen": dead_search._Search._added},
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    defects = [(dead_search._Search, name, defect) for name, defect in PLANTED[bug].items()]
    with planted(*defects):
        assert not differing(range(300))


def test_an_epoch_without_bad_rows_is_applied_once() -> None:
    model = Model([Row(n, f"v{n}", n - 1 if n % 3 else None) for n in range(1000)])
    assert (find_dead(model, 10), model.starts) == ({}, 1)


def test_independent_bad_rows_cost_one_application_of_all() -> None:
    tried: list[Sequence[int]] = []

    class Counting(Model):
        def add(self, rows: Sequence[int]) -> Refusal | None:
            tried.append(rows)
            return super().add(rows)

    rows = [Row(n, "bad" if n % 100 == 50 else f"v{n}") for n in range(1000)]
    model = Counting(rows)
    assert sorted(find_dead(model, 10)) == list(range(50, 1000, 100))
    assert model.starts == 1
    assert len(tried) < 10 * 2 * 11


def test_rows_that_refer_to_a_later_one_live_with_it() -> None:
    rows = [Row(n, f"v{n}", n + 1 if n % 10 else None) for n in range(1, 201)]
    assert sorted(find_dead(Model([*rows, Row(999, "bad")]), 5)) == [200]


def test_bad_rows_that_a_later_one_of_their_key_replaces_are_not_counted() -> None:
    model = Model([*(Row(2, "bad") for _ in range(300)), Row(2, "good"), Row(4, "bad")])
    model.waits = False
    assert sorted(find_dead(model, 10)) == [301]


def test_past_the_limit_the_search_stops() -> None:
    model = Model([Row(n, "bad") for n in range(1000)])
    model.waits = False
    with pytest.raises(TooManyDead):
        find_dead(model, 10)


@pytest.mark.parametrize("seed", range(20))
def test_of_large_epochs_no_row_and_no_linked_rows_can_come_back(seed: int) -> None:
    draw = random.Random(seed)
    values = [*(f"v{n}" for n in range(40)), *["bad"] * 3, None]
    rows = [
        Row(draw.randrange(40), draw.choice(values), draw.choice([None, draw.randrange(40)]))
        for _ in range(60)
    ]
    model = Model(rows)
    dead = set(find_dead(model, 60))
    rest = [n for n in range(60) if n not in dead]
    assert model.refusal(rest) is None
    for row in dead:
        together, edge = {row}, {row}
        while edge := model.linked(edge, dead, 60) - together:
            together |= edge
        for some in ({row}, together):
            assert model.refusal([*rest, *some]) is not None
