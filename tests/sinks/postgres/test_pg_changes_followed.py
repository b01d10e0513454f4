"""Changes of a table that is altered, whose key is written anew, that is wide, or that hides rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.postgres.pool import close_idle
from abs_core.errors import DataError, PreflightError, SchemaError
from abs_sinks.postgres.apply import changes, changes_winner, positions
from tests.planted import Defect, planted
from tests.sinks.postgres.changing import CHANGES, Changing, changing

pytestmark = pytest.mark.services

SIDES = pytest.mark.parametrize("side", [True, False], ids=["side", "table"])
LARGE = 3_000_000_000
TEXT_KEYS = CHANGES.set(0, pa.field("id", pa.string()))


def _given(key: str, *, side: bool) -> tuple[str, dict[str, str]]:
    """Columns and options."""
    columns = f"id {key} primary key, v text"
    return (columns, {"positions": "side"}) if side else (f"{columns}, at bigint", {})


def _altered(t: Changing, kind: str, schema: pa.Schema) -> None:
    t.db.execute(f"alter table {t.table} alter id type {kind}")
    t.schema = schema
    close_idle()  # as in another process


@SIDES
@pytest.mark.parametrize("kind", ["bigint", "varchar(20)", "numeric(20,0)"])
def test_positions_follow_a_key_of_another_type(
    shared_database: str, kind: str, *, side: bool
) -> None:
    columns, given = _given("int", side=side)
    small = CHANGES.set(0, pa.field("id", pa.int32()))
    with changing(shared_database, columns, small, **given) as t:
        t.apply([(1, 1, "c", "a"), (2, 1, "c", "b")], [(2, 5, "d", None)])
        as_text = kind.startswith("varchar")
        _altered(t, kind, TEXT_KEYS if as_text else CHANGES)
        one, two, large, gone = map(str if as_text else int, (1, 2, LARGE, LARGE + 1))
        t.apply([(large, 2, "c", "new"), (two, 4, "u", "older"), (gone, 7, "d", None)])
        t.apply([(gone, 6, "u", "older"), (one, 2, "u", "newer")])
        found = t.db.execute(f"select id::text, v from {t.table} order by id").fetchall()
        assert sorted(found) == [("1", "newer"), (str(LARGE), "new")]


def test_the_check_finds_positions_that_keep_the_old_type(shared_database: str) -> None:
    with planted((positions, "follow", lambda *_: None), by=Exception, match="out of range"):
        test_positions_follow_a_key_of_another_type(shared_database, "bigint", side=False)


@SIDES
def test_of_keys_that_become_equal_the_newest_position_stays(
    shared_database: str, *, side: bool
) -> None:
    columns, given = _given("text", side=side)
    with changing(shared_database, columns, TEXT_KEYS, **given) as t:
        t.apply([("1", 3, "d", None), ("1.0", 5, "d", None), ("1.00", 4, "d", None)])
        _altered(t, "numeric using id::numeric", TEXT_KEYS)
        t.apply([("1", 4, "u", "older"), ("2", 1, "c", "x")])
        assert t.rows("id::text, v") == [("2", "x")]
        t.apply([("1.0", 6, "u", "newer")])
        assert t.rows("id::text, v") == [("1.0", "newer"), ("2", "x")]


def test_a_position_that_becomes_wider_is_followed(shared_database: str) -> None:
    columns, given = _given("bigint", side=True)
    narrow = CHANGES.set(1, pa.field("at", pa.int32()))
    with changing(shared_database, columns, narrow, **given) as t:
        t.apply([(1, 5, "c", "a")])
        close_idle()
        t.schema = CHANGES
        t.apply([(1, LARGE, "u", "b")])
        close_idle()
        t.schema = narrow
        t.apply([(1, 7, "u", "older"), (2, 1, "c", "c")])
        assert t.rows("id, v") == [(1, "b"), (2, "c")]
        assert t.positions() == [(1, LARGE, False), (2, 1, False)]


def test_positions_that_cannot_be_converted_are_refused_with_the_way_out(
    shared_database: str,
) -> None:
    columns, given = _given("text", side=False)
    with changing(shared_database, columns, TEXT_KEYS, **given) as t:
        t.apply([("1", 1, "c", "a"), ("no number", 1, "d", None)])
        t.db.execute(f"alter table {t.table} alter id type bigint using id::bigint")
        t.schema = CHANGES
        close_idle()
        with pytest.raises(SchemaError, match="cannot be converted") as caught:
            t.apply([(1, 2, "u", "b")])
        way_out = caught.value.remedy.partition(";")[0]
        assert way_out.startswith("DROP TABLE ")
        t.db.execute(way_out)
        t.apply([(1, 2, "u", "b")])
        assert t.rows("id, v") == [(1, "b")]


ANEW = {"numeric": ("1.0", "1.00"), "interval": ("1 day", "24:00:00")}
"""Old and new text of a key; so do citext and collations that ignore case."""
ORDERS = {
    "together": ["cd", "dc"],
    "delete first": ["d", "c", "dc", "d"],
    "create first": ["c", "d", "d", "c"],
}


@SIDES
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", ANEW)
def test_a_key_that_is_written_anew_is_one_change(
    shared_database: str, key: str, order: str, caplog: pytest.LogCaptureFixture, *, side: bool
) -> None:
    """Delete and create have one position, in one epoch or in several, and come again."""
    old, new = ANEW[key]
    changes = {"d": (old, 5, "d", None), "c": (new, 5, "c", "new")}
    with changing(shared_database, "id int primary key, v text", TEXT_KEYS) as t:
        columns, given = _given(key, side=side)
        t.db.execute(f"drop table {t.table}; create table {t.table} ({columns})")
        t.given |= given
        t.apply([(old, 1, "c", "old")], *([changes[of] for of in each] for each in ORDERS[order]))
        t.apply([(new, 4, "u", "older")])
        assert t.rows("id::text, v") == [(new, "new")]
        assert "another change that was applied before" not in caplog.text
        if side:
            assert [gone for *_, gone in t.positions()] == [False]
        t.apply([(new, 6, "d", None)], [changes["c"], changes["d"]])
        assert t.rows("id::text, v") == []


def test_the_check_finds_a_delete_and_a_create_that_are_taken_for_a_contradiction(
    shared_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    bug: Defect = changes, "written_anew", lambda _: set()
    for order in ("together", "delete first"):
        with planted(bug, by=(AssertionError, DataError)):
            test_a_key_that_is_written_anew_is_one_change(
                shared_database, "numeric", order, caplog, side=True
            )


def _wide(names: list[str]) -> pa.Schema:
    own = [pa.field("id", pa.int64()), pa.field("at", pa.int64()), pa.field("op", pa.string())]
    free = [pa.field(name, pa.string()) for name in names]
    return pa.schema([*own, *free, pa.field("same", pa.list_(pa.string()))])


def _check_wide(url: str, count: int, rounds: int) -> None:
    """Partial changes in two epochs, beside what a dictionary says."""
    draw = random.Random(count)
    names = [f"c{number}" for number in range(count)]
    columns = "id bigint primary key, " + ", ".join(f"{name} text" for name in names)
    with changing(url, columns, _wide(names), positions="side", unchanged="same") as t:
        rows: dict[int, list[str]] = {}
        epochs: list[list[tuple[Any, ...]]] = []
        for at in range(1, rounds + 1):
            changes: list[tuple[Any, ...]] = []
            for id_ in (1, 2):
                values = [f"{id_} {at} {n}" for n in range(count)]
                same = draw.sample(range(count), count // 2) if id_ in rows else []
                sent = [None if n in set(same) else value for n, value in enumerate(values)]
                kept = rows.get(id_, values)
                rows[id_] = [kept[n] if v is None else v for n, v in enumerate(sent)]
                changes.append((id_, at, "u", *sent, [names[n] for n in same]))
            epochs.append(changes)
        first, *rest = epochs
        t.apply(first, [change for changes in rest for change in changes])
        assert t.rows(f"id, {', '.join(names)}") == [(id_, *rows[id_]) for id_ in (1, 2)]


@pytest.mark.parametrize("count", [2, 600])
def test_tables_of_many_columns_keep_what_a_change_leaves_as_it_is(
    shared_database: str, count: int
) -> None:
    _check_wide(shared_database, count, 4)


def test_parts_of_a_wide_table_are_filled_alike(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_winner, "AT_ONCE", 2)
    _check_wide(shared_database, 7, 5)


def test_the_check_finds_parts_that_lose_columns(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = changes_winner._FILLED.replace('("abs:old").{column}', "{column}")
    monkeypatch.setattr(changes_winner, "_FILLED", planted)
    with pytest.raises(AssertionError):
        _check_wide(shared_database, 7, 5)


def test_row_security_that_is_switched_on_while_the_query_runs_stops_it(
    shared_database: str,
) -> None:
    columns, given = _given("bigint", side=True)
    with changing(shared_database, columns, **given) as t:
        job = t.job()
        job.apply(0, [(1, 1, "c", "a"), (9, 1, "c", "b")])
        t.db.execute(
            f"alter table {t.table} enable row level security, force row level security;"
            f"create policy hiding on {t.table} using (id > 5)"
        )
        with pytest.raises(SchemaError, match="was altered"):
            job.apply(1, [(1, 2, "d", None), (9, 2, "d", None)])
        with pytest.raises(PreflightError, match="Row-level security"):
            t.apply([(1, 2, "d", None)])
        t.db.execute(f"alter table {t.table} disable row level security")
        assert t.rows("id, v") == [(1, "a"), (9, "b")]
        t.apply([(1, 2, "d", None)])
        assert t.rows("id, v") == [(9, "b")]
