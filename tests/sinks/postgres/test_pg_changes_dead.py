"""Changes that cannot be applied become dead letters: the table ends as if they had never come."""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from psycopg import sql

from abs_clients.postgres.metadata import exists
from abs_core.errors import AbsError, DeadLettersError
from abs_sinks.deadletters.letter import why_bad
from abs_sinks.postgres.apply import changes_winner
from abs_sinks.postgres.letters import copy_with_letters
from tests.planted import Defect, planted
from tests.sinks.postgres.changing import BARE, CHANGES, OWN, PARTIAL, Changing
from tests.sinks.postgres.histories import BAD, CHECKED, History, many, play, poisoned

pytestmark = pytest.mark.services

CELLS = {
    "wal": ({"protocol": "wal"}, True),
    "wal-side": ({"protocol": "wal", "positions": "side"}, True),
    "wal-foreign-register": ({"protocol": "wal"}, False),
    "idempotent": ({"protocol": "idempotent"}, True),
}
BIG = ", big text"


class Burying(Changing):
    """A table that keeps dead letters; ``letters``: code, id and position of each, in order."""

    def letters(self) -> list[tuple[Any, ...]]:
        query = (
            "select code, \"row\" ->> 'id', \"row\" ->> 'at' from {0}_dead"
            " order by (\"row\" ->> 'id')::int, (\"row\" ->> 'at')::int, code"
        )
        return self.db.execute(query.format(self.table)).fetchall()

    def close(self) -> None:
        self.db.execute(f"drop table if exists {self.table}_dead")
        super().close()


def burying(url: str, cell: str, schema: pa.Schema = CHANGES, **more: str) -> closing[Burying]:
    given, own = CELLS[cell]
    columns = (BARE if "positions" in given else OWN) + (BIG if schema is PARTIAL else "")
    table = Burying(url, columns, schema, own=own, **given, **more)
    table.given |= {"deadletter": f"{table.table}_dead", "deadlettermax": "1"}
    return closing(table)


ALL = pytest.mark.parametrize("cell", CELLS)


@ALL
def test_changes_without_key_position_or_operation_are_dead(
    shared_database: str, cell: str
) -> None:
    with burying(shared_database, cell) as table:
        table.job().apply(
            0, [(1, 1, "c", "a"), (2, None, "c", "b"), (3, 1, None, "c"), (None, 1, "c", "d")]
        )
        assert table.rows("id, v") == [(1, "a")]
        found = [(code, id_) for code, id_, _ in table.letters()]
        assert found == [("null", "2"), ("null", "3"), ("null", None)]


@ALL
def test_all_changes_that_contradict_each_other_are_dead(shared_database: str, cell: str) -> None:
    with burying(shared_database, cell) as table:
        table.job().apply(
            0,
            [
                *[(1, 1, "c", "a"), (1, 2, "u", "b"), (2, 7, "c", "z")],
                *[(1, 2, "u", "c"), (1, 2, "u", "b"), (2, 7, "c", "z")],
            ],
        )
        assert table.rows("id, v") == [(1, "a"), (2, "z")]
        assert table.letters() == [("contradiction", "1", "2")] * 3


def test_the_check_finds_contradictions_of_which_one_is_applied(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_sided = 'select j.*, "abs:problem" as "abs:dead" from ({0}) j'
    monkeypatch.setattr(changes_winner, "_EACH", one_sided)
    with pytest.raises(AssertionError):
        test_all_changes_that_contradict_each_other_are_dead(shared_database, "wal")


@ALL
def test_partial_changes_without_their_row_or_older_than_it_are_dead(
    shared_database: str, cell: str
) -> None:
    with burying(shared_database, cell, PARTIAL, unchanged="same") as table:
        job = table.job()
        job.apply(
            0,
            [
                (1, 1, "c", "a", "A", None),
                (1, 3, "u", "b", None, ["big"]),
                *((2, at, "u", f"v{at}", None, ["big"]) for at in range(1, 9)),
                (2, 9, "c", "n", "N", None),
                (2, 10, "u", "m", None, ["big"]),
                (3, 1, "c", "x", "X", None),
                (3, 2, "d", None, None, None),
                (3, 3, "u", "y", None, ["big"]),
                (4, 1, "u", "q", None, ["no such"]),
            ],
        )
        job.apply(1, [(1, 2, "u", "late", None, ["big"])])
        assert table.rows("id, v, big") == [(1, "b", "A"), (2, "m", "N")]
        assert table.letters() == [
            ("older-than-row", "1", "2"),
            *(("row-missing", "2", str(at)) for at in range(1, 9)),
            ("row-missing", "3", "3"),
            ("column-unknown", "4", "1"),
        ]


@ALL
def test_a_change_that_the_server_refuses_leaves_its_key_to_the_one_before(
    shared_database: str, cell: str
) -> None:
    with burying(shared_database, cell) as table:
        table.db.execute(f"alter table {table.table} add check (v <> 'bad'), alter v set not null")
        job = table.job()
        job.apply(
            0,
            [(1, 1, "c", "a"), (1, 2, "u", "bad"), (1, 3, "u", "bad"), (2, 1, "c", "bad")],
            [(3, 1, "c", "c"), (4, 1, "c", None)],
        )
        job.apply(1, [(3, 2, "u", "bad"), (3, 3, "d", None), (1, 4, "u", "b")])
        assert table.rows("id, v") == [(1, "b")]
        assert table.letters() == [
            ("23514", "1", "2"),
            ("23514", "1", "3"),
            ("23514", "2", "1"),
            ("23502", "4", "1"),
        ]


@ALL
def test_a_delete_that_a_foreign_key_refuses_is_dead(shared_database: str, cell: str) -> None:
    with burying(shared_database, cell) as table:
        job = table.job()
        job.apply(0, [(1, 1, "c", "a"), (2, 1, "c", "b")])
        table.db.execute(f"create table {table.table}_of (id bigint references {table.table})")
        try:
            table.db.execute(f"insert into {table.table}_of values (1)")
            job.apply(1, [(1, 2, "d", None), (2, 2, "d", None), (3, 1, "c", "c")])
            assert table.rows("id, v") == [(1, "a"), (3, "c")]
            assert table.letters() == [("23001", "1", "2")] or table.letters() == [
                ("23503", "1", "2")
            ]
        finally:
            table.db.execute(f"drop table {table.table}_of")


def played(table: Burying, examples: int) -> None:
    """Any history with bad rows, in any order, with kills, is a dictionary and its letters."""
    table.db.execute(f"alter table {table.table} add check (v <> '{CHECKED}')")

    @many(examples)
    @given(poisoned())
    def one(history: History) -> None:
        table.empty()
        if exists(table.db, f"{table.table}_dead"):
            table.db.execute(f"truncate {table.table}_dead")
        play(table, history, f"job{secrets.token_hex(4)}")
        check_letters(table, history)

    one()


def check_letters(table: Burying, history: History) -> None:
    """Each arrival of what the client refuses is dead, once; of the server's, those that mattered."""
    arrived = [change for epoch in history.epochs for part in epoch for change in part]
    found = Counter(table.letters()) if exists(table.db, f"{table.table}_dead") else Counter()
    of_client = [
        ("null" if at is None else "nul-character", str(id_), None if at is None else str(at))
        for id_, at, _, value in arrived
        if at is None or value == BAD
    ]
    of_server = Counter(("23514", str(id_), str(at)) for id_, at, _, v in arrived if v == CHECKED)
    checked = Counter({letter: n for letter, n in found.items() if letter[0] == "23514"})
    assert found - checked == Counter(of_client)
    assert checked <= of_server


@ALL
def test_any_history_with_bad_rows_is_the_table_of_a_dictionary_and_its_letters(
    shared_database: str, cell: str
) -> None:
    with burying(shared_database, cell) as table:
        played(table, 8)


@pytest.mark.campaign
@ALL
def test_many_histories_with_bad_rows_end_as_a_dictionary(shared_database: str, cell: str) -> None:
    with burying(shared_database, cell) as table:
        played(table, 200)


PLANTED: dict[str, Defect] = {
    "a letter is dropped": (copy_with_letters, "why_bad", lambda bad: why_bad(bad)[1:]),
    "the position is not compared": (changes_winner, "later", lambda *_: sql.SQL("true")),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_history_finds_a_planted_bug(shared_database: str, bug: str) -> None:
    by = AssertionError, AbsError
    with burying(shared_database, "wal") as table, planted(PLANTED[bug], by=by):
        played(table, 30)


def test_more_than_the_limit_stops_the_query_and_nothing_is_written(
    shared_database: str,
) -> None:
    with burying(shared_database, "wal") as table:
        table.given["deadlettermax"] = "0.1"
        with pytest.raises(DeadLettersError):
            table.job().apply(0, [(n, None, "c", "a") for n in range(200)])
        assert (table.rows(), table.letters()) == ([], [])
