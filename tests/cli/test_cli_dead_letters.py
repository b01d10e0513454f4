"""``abs deadletters`` and ``abs audit --deadletters``, on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abs_clients.postgres.metadata import exists
from abs_clients.postgres.pool import close_idle
from abs_core.errors import DataError, OptionError, RefusedError
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres import replay as replay_module
from abs_sinks.postgres.replay import PostgresLetters
from abs_testing import SCHEMA
from abs_testing.case import Case, rows
from tests.kit.command import abs_
from tests.planted import planted
from tests.sinks.postgres.buried import Buried, buried

pytestmark = pytest.mark.services
BAD = [(7, "bad"), (8, "a\0b")]


@pytest.fixture
def harness(shared_database: str) -> Iterator[Buried]:
    """Five rows in the table, two beside it."""
    with buried(shared_database, "wal-append") as harness:
        harness.db.execute(f"alter table {harness.table} add constraint c check (value <> 'bad')")
        case = Case(harness)
        case.run().epoch(0, rows(0, 5), BAD)
        case.close()
        yield harness


def _abs(harness: Buried, *arguments: str) -> tuple[int, str]:
    done = abs_(*arguments, "--url", harness.url)
    return done.exit_code, done.stdout


def test_letters_are_listed_shown_and_replayed(harness: Buried) -> None:
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    code, printed = _abs(harness, "deadletters", "list", *where, "--json")
    listed = json.loads(printed)
    assert (code, [each["code"] for each in listed]) == (1, ["nul-character", "23514"])
    ids = [str(each["id"]) for each in listed]
    shown = json.loads(_abs(harness, "deadletters", "show", *ids, *where)[1])
    assert json.loads(_abs(harness, "deadletters", "show", *ids, *where, "--json")[1]) == shown
    first, second = (json.loads(each["row"]) for each in shown)
    assert (first["id"], first["value"]["text"], second) == (
        8,
        "a\u2400b",
        {"id": 7, "value": "bad"},
    )
    harness.db.execute(f"alter table {harness.table} drop constraint c")
    again = ("deadletters", "replay", ids[1], *where, "--dbtable", harness.table, "--yes")
    assert _abs(harness, *again) == (0, "1 dead letters replayed\n")
    assert _abs(harness, *again) == (0, "0 dead letters replayed\n")
    code, printed = _abs(harness, *again, "--json")
    assert (code, json.loads(printed)) == (0, {"did": "replayed", "rows": 0})
    assert sorted(harness.read()) == [*rows(0, 5), (7, "bad")]
    assert len(json.loads(_abs(harness, "deadletters", "list", *where, "--json")[1])) == 1


def _bury(harness: Buried, epoch: int, *bad: tuple[int, str]) -> None:
    """An epoch of a new run, whose bad rows are letters; their constraint is gone afterwards."""
    harness.db.execute(
        f"alter table {harness.table} drop constraint if exists c;"
        f"alter table {harness.table} add constraint c check (value <> 'bad') not valid"
    )
    case = Case(harness)
    case.run().epoch(epoch, rows(100 * epoch, 2), bad)
    case.close()
    close_idle()
    harness.db.execute(f"alter table {harness.table} drop constraint c")


def replays_new_letters_under_old_ids(harness: Buried) -> None:
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    replay = ("deadletters", "replay", "1", "2", *where, "--dbtable", harness.table, "--yes")
    harness.db.execute(f"truncate {harness.dead} restart identity")
    _bury(harness, 1, (17, "bad"), (18, "bad"))
    assert _abs(harness, *replay) == (0, "2 dead letters replayed\n")
    # All that a job has left goes, its table of letters, too; not what was replayed.
    code, printed = _abs(
        harness, "job", "remove", "job", "--stateschema", harness.schema, "--dead-letters", "--yes"
    )
    assert (code, exists(harness.db, harness.dead)) == (0, False), printed
    _bury(harness, 2, (27, "bad"), (28, "bad"))
    assert _abs(harness, *replay) == (0, "2 dead letters replayed\n")
    there = [row for row in harness.read() if row[1] == "bad"]
    assert sorted(there) == [(key, "bad") for key in (17, 18, 27, 28)]


def test_new_letters_under_the_ids_of_old_ones_are_replayed(harness: Buried) -> None:
    replays_new_letters_under_old_ids(harness)


def test_a_replay_that_takes_new_letters_for_old_ones_is_found(harness: Buried) -> None:
    class OfIds(PostgresLetters):
        def shown(self, ids: Sequence[int | str]) -> list[dict[str, Any]]:
            always = datetime(2026, 1, 1, tzinfo=UTC)
            return [{**letter, "at": always} for letter in super().shown(ids)]

    with planted((replay_module, "PostgresLetters", OfIds), match="1, '.. == .0, '2 dead"):
        replays_new_letters_under_old_ids(harness)


def test_letters_of_a_restored_table_are_replayed_as_the_error_says(harness: Buried) -> None:
    harness.db.execute(f"alter table {harness.table} drop constraint c")
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    (bad,) = [
        letter["id"]
        for letter in json.loads(_abs(harness, "deadletters", "list", *where, "--json")[1])
        if letter["code"] == "23514"
    ]
    replay = ("deadletters", "replay", str(bad), *where, "--dbtable", harness.table, "--yes")
    assert _abs(harness, *replay) == (0, "1 dead letters replayed\n")
    # As if this table alone was restored; then the table of the rows, too.
    harness.db.execute(f"update {harness.dead} set replayed = null")
    refused = abs_(*replay, "--url", harness.url).exception
    assert isinstance(refused, RefusedError)
    assert sorted(harness.read()) == [*rows(0, 5), (7, "bad")]
    harness.db.execute(f"delete from {harness.table} where value = 'bad'")
    (job,) = re.findall(r"`abs register retire (\S+)`", refused.remedy)
    code, printed = _abs(
        harness, "register", "retire", job, "--stateschema", harness.schema, "--yes"
    )
    assert code == 0, printed
    assert _abs(harness, *replay) == (0, "1 dead letters replayed\n")
    assert sorted(harness.read()) == [*rows(0, 5), (7, "bad")]


def _audited(harness: Buried, folder: Path, *more: str) -> tuple[int, str]:
    lines = (json.dumps({"id": key, "value": value}) for key, value in [*rows(0, 5), *BAD])
    (folder / "given.json").write_text("\n".join(lines) + "\n")
    sides = ("--expected", str(folder / "given.json"), "--actual", harness.url)
    arguments = ["audit", *sides, "--table", harness.table, "--state-schema", harness.schema]
    done = abs_(*arguments, "--schema", "id BIGINT, value STRING", *more)
    return done.exit_code, done.stdout


def test_an_audit_finds_each_record_in_the_table_or_among_the_dead(
    harness: Buried, tmp_path: Path
) -> None:
    assert _audited(harness, tmp_path)[0] == 1
    code, printed = _audited(harness, tmp_path, "--deadletters", harness.dead)
    assert code == 0, printed


@pytest.mark.parametrize(
    "planted",
    [
        "delete from {d} where code = '23514'",
        "insert into {t} values (7, 'bae')",
        "update {d} set sink = 'public.of_another_sink' where code = '23514'",
    ],
)
def test_an_audit_finds_what_is_neither_or_too_much(
    harness: Buried, tmp_path: Path, planted: str
) -> None:
    harness.db.execute(planted.format(d=harness.dead, t=harness.table))
    assert _audited(harness, tmp_path, "--deadletters", harness.dead)[0] == 1


def test_a_letter_of_a_table_of_the_same_name_elsewhere_is_not_this_tables(
    harness: Buried, tmp_path: Path
) -> None:
    told = "update {d} set sink = 'elsewhere.{t}' where code = '23514'"
    harness.db.execute(told.format(d=harness.dead, t=harness.table))
    assert _audited(harness, tmp_path, "--deadletters", harness.dead)[0] == 1


def _replayed_into_one(harness: Buried) -> None:
    """Letters of two tables with the same columns are named in one call: whose rows are where?"""
    other = f"public.other_{harness.table}"
    harness.db.execute(f"update {harness.dead} set sink = '{other}' where code = '23514'")
    harness.db.execute(
        f'update {harness.dead} set "row" = \'{{"id": 8, "value": "b"}}\' where id = 1'
    )
    harness.db.execute(f"alter table {harness.table} drop constraint c")
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    listed = json.loads(_abs(harness, "deadletters", "list", *where, "--json")[1])
    mine, others = (str(one["id"]) for one in sorted(listed, key=lambda one: one["sink"] == other))
    replay = ("deadletters", "replay", *where, "--dbtable", harness.table, "--yes")
    done = abs_(*replay, mine, others, "--url", harness.url)
    assert sorted(harness.read()) == rows(0, 5), "a row of the other table is in this one"
    assert isinstance(done.exception, OptionError)
    assert f"{other}: {others}" in done.exception.what
    # As the remedy says.
    assert _abs(harness, *replay, mine) == (0, "1 dead letters replayed\n")
    assert len(harness.read()) == 6


def _replayed_into_another(harness: Buried) -> None:
    """Letters of one table are replayed into another one, also after it got the other's name."""
    table, other = harness.table, f"other_{harness.table}"
    harness.db.execute(
        f"alter table {table} drop constraint c; create table {other} (like {table})"
    )
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    listed = json.loads(_abs(harness, "deadletters", "list", *where, "--json")[1])
    (bad,) = (str(one["id"]) for one in listed if one["code"] == "23514")
    replay = ("deadletters", "replay", bad, *where, "--dbtable", other, "--yes")
    refused = abs_(*replay, "--url", harness.url).exception
    written = harness.db.execute(f"select * from {other}").fetchall()
    harness.db.execute(f"drop table {other}; alter table {table} rename to {other}")
    assert not written, "a row of the one table is in the other"
    assert isinstance(refused, OptionError)
    assert f"refused by public.{table} (the first is {bad}), not by public.{other}" in refused.what
    wrong = abs_(*replay, "--refused-by", "public.third", "--url", harness.url).exception
    assert isinstance(wrong, OptionError)
    consent = re.findall(r"--refused-by \S+(?=\.$)", refused.remedy)[0].split()
    assert _abs(harness, *replay, *consent) == (0, "1 dead letters replayed\n")
    harness.db.execute(f"alter table {other} rename to {table}")
    assert sorted(harness.read()) == [*rows(0, 5), (7, "bad")]


@pytest.mark.parametrize("check", [_replayed_into_one, _replayed_into_another])
def test_letters_are_not_replayed_into_the_table_of_another(
    harness: Buried, check: Callable[[Buried], None]
) -> None:
    check(harness)


@pytest.mark.parametrize("check", [_replayed_into_one, _replayed_into_another])
def test_letters_that_are_replayed_into_the_table_of_another_are_found(
    harness: Buried, check: Callable[[Buried], None]
) -> None:
    bug = replay_module, "of_target", lambda letters, *_: letters
    with planted(bug, match="is in th(is|e other)"):
        check(harness)


@pytest.mark.parametrize(
    "damaged", ["\"row\" = '[]'", "\"row\" = '[1]'", "schema = 'gone'", '"row" = \'{"id": "x"}\'']
)
def test_a_letter_that_cannot_be_read_is_named_and_the_others_are_read(
    harness: Buried, tmp_path: Path, damaged: str
) -> None:
    query = f"update {harness.dead} set {damaged} where code = 'nul-character' returning id"
    ((id_,),) = harness.db.execute(query).fetchall()
    code, printed = _audited(harness, tmp_path, "--deadletters", harness.dead, "--json")
    assert code == 1
    # Of the two, the one that can be read counts.
    assert printed.count('"missing": 1') == 1, printed
    assert f"dead letter {id_}: " in printed
    harness.db.execute(f"alter table {harness.table} drop constraint c")
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    ids = [str(i) for (i,) in harness.db.execute(f"select id from {harness.dead}")]
    more = ("--url", harness.url, "--dbtable", harness.table, "--yes")
    done = abs_("deadletters", "replay", *ids, *where, *more)
    assert isinstance(done.exception, DataError)
    assert f"letter {id_}: " in done.exception.what
    assert "The other 1 were written" in done.exception.what
    assert sorted(harness.read()) == [*rows(0, 5), (7, "bad")]


def test_markup_in_a_letter_is_shown_as_it_is(harness: Buried) -> None:
    harness.db.execute(f'update {harness.dead} set key = \'{{"id": "[/red]"}}\'')
    where = ("--deadletter", harness.dead, "--stateschema", harness.schema)
    code, printed = _abs(harness, "deadletters", "list", *where)
    assert code == 1
    assert "[/red]" in printed


def test_a_letters_message_shows_no_value_of_a_row(shared_database: str) -> None:
    with buried(shared_database, "wal-append") as harness:
        harness.db.execute(f"create unique index on {harness.table} (value)")
        harness.db.execute(f"insert into {harness.table} values (1, 'anna')")
        case = Case(harness)
        case.run().epoch(0, [(2, "anna"), (3, "b")])
        case.close()
        ((code, message),) = harness.db.execute(f"select code, message from {harness.dead}")
        assert code == "23505"
        assert "anna" not in message


def test_what_another_tables_job_has_staged_is_no_doubt_of_this_one(
    harness: Buried, tmp_path: Path, shared_database: str
) -> None:
    """Its register, in the same state schema, says which table it writes to."""
    with buried(shared_database, "wal-append") as other:
        options = replace(other.options, stateschema=harness.schema)
        other.new_sink = partial(PostgresSink, options, SCHEMA)
        case = Case(other)
        case.run(job="another").tasks(0, rows(0, 3))
        code, printed = _audited(harness, tmp_path, "--deadletters", harness.dead)
        assert code == 0, printed
        # Of the table itself it is.
        mine = Case(harness)
        mine.run().tasks(1, rows(0, 3))
        code, printed = _audited(harness, tmp_path, "--deadletters", harness.dead)
        assert (code, "1 staging table(s) with rows" in printed) == (1, True)
        mine.run().begin(1)
        for each in (case, mine):
            each.close()
