"""Histories of changes, cut into epochs and tasks with kills in between, and what they end in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from abs_testing.cuts import Cut, Halted
from tests.sinks.postgres.changing import Change, Changing

KEYS = 3
KILLS = ("none", "staged", "before the commit", "after the commit")


def many(examples: int) -> settings:
    """So many histories, the same ones in each run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class History:
    """What arrives: epochs of tasks, each with a kill, and the rows that must be there in the end."""

    epochs: tuple[tuple[tuple[Change, ...], ...], ...]
    kills: tuple[str, ...]
    ends: dict[int, tuple[Any, ...]]


@st.composite
def whole(draw: st.DrawFn) -> History:
    """Whole rows, in any order, some of them more than once."""
    made = draw(
        st.lists(
            st.tuples(st.integers(0, KEYS - 1), st.sampled_from("cudd")), min_size=4, max_size=12
        )
    )
    changes: list[Change] = [
        (key, at, op, None if op == "d" else f"v{at}") for at, (key, op) in enumerate(made)
    ]
    ends = {}
    for key, at, op, value in changes:
        ends[key] = None if op == "d" else (at, value)
    arriving = draw(st.permutations(changes + draw(st.lists(st.sampled_from(changes), max_size=3))))
    epochs = _cut(draw, arriving)
    tasks = [_dealt(draw, epoch) for epoch in epochs]
    return _history(draw, tasks, ends)


BAD = "a\0b"
"""A value that no text holds: the client finds it."""
CHECKED = "bad"
"""A value that the table's CHECK refuses: the server finds it, where the change would be applied."""


@st.composite
def poisoned(draw: st.DrawFn) -> History:
    """Whole rows, and changes that must be refused: the table ends as if those had never come."""
    kinds = {"x": BAD, "k": CHECKED}
    made = draw(
        st.lists(
            st.tuples(st.integers(0, KEYS - 1), st.sampled_from("cuddxkn")), min_size=4, max_size=12
        )
    )
    changes: list[Change] = []
    ends: dict[int, tuple[Any, ...] | None] = {}
    for at, (key, op) in enumerate(made):
        if op == "n":
            changes.append((key, None, "u", f"v{at}"))
        elif op in kinds:
            changes.append((key, at, "u", kinds[op]))
        else:
            value = None if op == "d" else f"v{at}"
            changes.append((key, at, op, value))
            ends[key] = None if value is None else (at, value)
    arriving = draw(st.permutations(changes + draw(st.lists(st.sampled_from(changes), max_size=3))))
    return _history(draw, [_dealt(draw, epoch) for epoch in _cut(draw, arriving)], ends)


@st.composite
def partial(draw: st.DrawFn) -> History:
    """Rows with unchanged columns: those of a key in order, and in one task of an epoch."""
    made = draw(
        st.lists(
            st.tuples(st.integers(0, KEYS - 1), st.sampled_from("cuppd")), min_size=1, max_size=12
        )
    )
    rows: dict[int, tuple[int, str | None, str | None] | None] = {}
    of_key: dict[int, list[Change]] = {}
    for at, (key, op) in enumerate(made):
        before = rows.get(key)
        left = draw(st.sampled_from([["big"], ["v"], ["big", "v"]]))
        if op == "d":
            change: Change = (key, at, "d", None, None, None)
            rows[key] = None
        elif op == "p" and before is not None:
            value, big = f"v{at}", f"b{at}"
            change = (key, at, "u", *_holes(value, big, left), left)
            rows[key] = (
                at,
                before[1] if "v" in left else value,
                before[2] if "big" in left else big,
            )
        else:
            change = (key, at, "u", f"v{at}", f"b{at}", None)
            rows[key] = (at, f"v{at}", f"b{at}")
        of_key.setdefault(key, []).append(change)
    arriving = []
    queues = [list(changes) for changes in of_key.values()]
    while queues:
        queue = draw(st.sampled_from(queues))
        arriving.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    tasks = [
        [[c for c in epoch if c[0] % 2 == n] for n in range(2)] for epoch in _cut(draw, arriving)
    ]
    return _history(draw, tasks, rows)


def _holes(value: str, big: str, left: Sequence[str]) -> tuple[str | None, str | None]:
    return None if "v" in left else value, None if "big" in left else big


def _history(draw: st.DrawFn, tasks: Any, ends: dict[int, Any]) -> History:
    kills = draw(st.lists(st.sampled_from(KILLS), min_size=len(tasks), max_size=len(tasks)))
    epochs = tuple(tuple(tuple(task) for task in epoch) for epoch in tasks)
    there = {key: row for key, row in ends.items() if row is not None}
    return History(epochs, tuple(kills), there)


def _cut(draw: st.DrawFn, changes: Sequence[Change]) -> list[list[Change]]:
    cuts = sorted(
        draw(st.sets(st.integers(1, len(changes)), min_size=1, max_size=4)) | {0, len(changes)}
    )
    return [list(changes[a:b]) for a, b in pairwise(cuts)]


def _dealt(draw: st.DrawFn, epoch: Sequence[Change]) -> list[list[Change]]:
    parts: list[list[Change]] = [[], []]
    for change in epoch:
        parts[draw(st.integers(0, 1))].append(change)
    return parts


def play(table: Changing, history: History, name: str) -> None:
    """Apply it, and check that the table then has the rows of a dictionary."""
    for epoch, (parts, kill) in enumerate(zip(history.epochs, history.kills, strict=True)):
        if kill == "staged":
            table.job(name).stage(epoch, 0, parts[0])
        elif kill == "before the commit":
            with suppress(Halted):
                table.job(name, Cut("co_commit" if table.own else "commit")).apply(epoch, *parts)
        elif kill == "after the commit":
            table.job(name).apply(epoch, *parts)
        table.job(name).apply(epoch, *parts)
    columns = table.seen
    found = {row[0]: row[1:] for row in table.rows(columns)}
    wide = columns.count(",")
    wanted = {
        key: (row if "at" in columns else row[1:])[:wide] for key, row in history.ends.items()
    }
    assert found == wanted
