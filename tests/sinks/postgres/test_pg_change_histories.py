"""Any history of changes, in any order and epochs, with kills, ends in the rows of a dictionary."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from abs_sinks.postgres.apply import changes, changes_sql, changes_winner
from abs_sinks.postgres.apply.changes import GONE, Changes
from tests.planted import planted
from tests.sinks.postgres.changing import BARE, OWN, PARTIAL, Changing, changing
from tests.sinks.postgres.histories import History, many, partial, play, whole

pytestmark = pytest.mark.services
WAYS: dict[str, dict[str, Any]] = {
    "wal": {},
    "wal-side": {"positions": "side"},
    "wal-foreign-register": {"own": False},
    "idempotent": {"protocol": "idempotent"},
    "idempotent-side": {"protocol": "idempotent", "positions": "side"},
}
EXAMPLES = 8


def search(
    table: Changing, histories: st.SearchStrategy[History], examples: int = EXAMPLES
) -> None:
    """Play this many histories; raises at the first that does not end as it must."""

    @many(examples)
    @given(histories)
    def one(history: History) -> None:
        table.empty()
        play(table, history, f"job{secrets.token_hex(4)}")

    one()


@pytest.mark.parametrize("way", WAYS)
def test_whole_rows_in_any_order_end_as_a_dictionary(shared_database: str, way: str) -> None:
    columns = BARE if "side" in way else OWN
    with changing(shared_database, columns, **WAYS[way]) as table:
        search(table, whole())


@pytest.mark.parametrize("way", WAYS)
def test_unchanged_columns_keep_their_value(shared_database: str, way: str) -> None:
    columns = f"{BARE if 'side' in way else OWN}, big text"
    with changing(shared_database, columns, PARTIAL, unchanged="same", **WAYS[way]) as table:
        search(table, partial())


@pytest.mark.campaign
@pytest.mark.parametrize("way", WAYS)
def test_many_histories_end_as_a_dictionary(shared_database: str, way: str) -> None:
    columns = BARE if "side" in way else OWN
    with changing(shared_database, columns, **WAYS[way]) as table:
        search(table, whole(), 300)
    columns += ", big text"
    with changing(shared_database, columns, PARTIAL, unchanged="same", **WAYS[way]) as table:
        search(table, partial(), 300)


def always_later(*_: object) -> sql.Composable:
    return sql.SQL("true")


def forgets_at_once(changes: Changes) -> sql.Composed:
    return sql.SQL("delete from {} where {} is not null").format(
        changes.positions, sql.Identifier(GONE)
    )


def only_where_a_row_was(
    changes: Changes, winners: sql.Identifier, *, checked: bool = False
) -> changes_sql.Applying:
    done = APPLYING(changes, winners, checked=checked)
    text = done.keep.as_string().replace(
        " j where ",
        f" j where exists (select from {changes.plan.table.label} t where t.id = j.id) and ",
    )
    return done._replace(releases=[sql.SQL(text).format(), *done.releases], keep=done.expire)


APPLYING = changes_sql.applying
BY_ARRIVAL = changes_winner._WINNERS.replace("order by {order}", "order by {key}")
assert BY_ARRIVAL != changes_winner._WINNERS
PLANTED: dict[str, tuple[str, object, Callable[[], st.SearchStrategy[History]]]] = {
    "the position is not compared": ("later", always_later, whole),
    "a tombstone is dropped too early": ("_expiring", forgets_at_once, whole),
    "a key is reduced by arrival": ("_WINNERS", BY_ARRIVAL, whole),
    "a tombstone only where a row was": ("applying", only_where_a_row_was, whole),
    "unchanged is taken for NULL": ("_FILLED", "{column}", partial),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(shared_database: str, bug: str) -> None:
    name, defect, histories = PLANTED[bug]
    home = next(home for home in (changes, changes_sql, changes_winner) if hasattr(home, name))
    columns, more = (OWN, {}) if histories is whole else (f"{OWN}, big text", {"unchanged": "same"})
    schema = {} if histories is whole else {"schema": PARTIAL}
    with (
        changing(shared_database, columns, **schema, **more) as table,
        planted((home, name, defect)),
    ):
        search(table, histories(), 60)
