"""Dead letters of PostgreSQL: rows that the table refuses are beside it, under the same decision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.pool import leased
from abs_core import deadletters as core
from abs_core.crash import CrashPoint
from abs_core.errors import (
    AbsError,
    ContentionError,
    DataError,
    DeadLettersError,
    MiscountError,
    OptionError,
    RefusedError,
    SchemaError,
)
from abs_core.model import Dead, Severity
from abs_sinks.deadletters.letter import DeadLetter, why_bad
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.target import ResolvedTable
from abs_sinks.postgres.copyin import CopyWriter
from abs_sinks.postgres.idempotent import IdempotentWriter
from abs_sinks.postgres.letters import copy_with_letters, refused_rows
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.replay import PostgresLetters
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_sinks.postgres.twophase import TwoPhaseWriter
from abs_sinks.postgres.wal import WalWriter
from abs_testing.calls import Loss
from abs_testing.case import Case, raises, rows
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.planted import Bug, Plant, planted
from tests.sinks.dead_letters import *  # noqa: F403 - the suite
from tests.sinks.dead_letters import Opener, Way, check_lost, in_each, is_poison
from tests.sinks.postgres.buried import Buried, buried, poisoned

pytestmark = pytest.mark.services

ONE_STEP = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.INSIDE_CO_COMMIT)
TWO_STEPS = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS)
WAYS = [
    Way("wal-append", ONE_STEP),
    Way("wal-append-foreign-register"),
    Way("wal-upsert"),
    Way("2pc-append", TWO_STEPS),
    Way("2pc-append-foreign-register"),
    Way("idempotent-upsert", ONE_STEP),
]
CELLS = [way.name for way in WAYS]

pytest_generate_tests = in_each(WAYS)


@pytest.fixture
def opener(shared_database: str, name: str) -> Opener:
    return partial(poisoned, shared_database, name, together=False)


@pytest.fixture
def buries_at_once() -> Bug:
    def at_once(
        writer: CopyWriter, _: object, target: ResolvedTable, letters: list[DeadLetter]
    ) -> None:
        with leased(writer.table.options.server) as other:
            handle = writer._task.handle
            letter_table.write(other, writer.table.options, target.plan, handle, letters)
        writer._letters[writer.number].add(dead=-len(letters))

    def bug(plant: Plant) -> None:
        for writer in (WalWriter, TwoPhaseWriter, IdempotentWriter):
            plant(writer, "_bury", at_once)

    return bug


@pytest.fixture  # type: ignore[no-redef]  # in place of the suite's
def ignores_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the epoch, and of the work that judging its rows may take."""
    for place in (core, refused_rows):
        monkeypatch.setattr(place, "MIN_DEAD", 10**9)


@pytest.fixture
def drops_a_bad_row() -> Bug:
    return lambda plant: plant(copy_with_letters, "why_bad", lambda bad: why_bad(bad)[1:])


@sample.cases(1)
@pytest.mark.parametrize("name", ["2pc-append", "wal-append-foreign-register"])
def test_letters_that_go_between_decision_and_finish_are_an_error_that_names_them(
    opener: Opener,
) -> None:
    """Rows and letters are one prepared transaction: nobody can take a part of it."""

    def lose(harness: Buried) -> None:
        query = "select gid from pg_prepared_xacts where database = current_database()"
        (gid,) = [gid for (gid,) in harness.db.execute(query)]
        harness.db.execute(f"ROLLBACK PREPARED '{gid}'")

    check_lost(opener, lose)


def test_rows_that_the_table_refuses_in_their_upsert_alone_are_tried_a_bounded_number_of_times(
    shared_database: str,
) -> None:
    """None of them is found to be dead, as the table takes each where it is tried."""
    with buried(shared_database, "idempotent-upsert") as harness, Case(harness) as case:
        table = harness.table
        harness.db.execute(
            f"""create sequence {table}_tries owned by {table}.id;
            create function {table}_f() returns trigger language plpgsql as $$ begin
                if current_query() like '%for share%' then
                    perform nextval('{table}_tries');
                    raise numeric_value_out_of_range using message = 'not now';
                end if;
                return new;
            end $$;
            create trigger f before insert on {table} for each row execute function {table}_f()"""
        )
        run = case.run()
        error = raises(ContentionError, lambda: run.epoch(0, rows(0, 1)))
        assert f"other rows each of {core.MAX_REFUSALS} times" in error.what
        tries = harness.db.execute(f"select last_value from {table}_tries").fetchone()
        assert tries == (core.MAX_REFUSALS,)
        assert harness.letters() == []
        harness.db.execute(f"drop trigger f on {table}")
        case.run().epoch(0, rows(0, 1))
        case.finished(rows(0, 1), when="after a table that refused rows in their upsert alone")


KINDS = {
    "nul-character": ("", "a\0b"),
    "too-long": ("alter table {t} alter value type varchar(5)", "too long"),
    "23514": ("alter table {t} add check (value <> 'bad')", "bad"),
    "23503": (
        """create table {t}_of (value text primary key);
        insert into {t}_of select 'v' || n from generate_series(0, 999) n;
        alter table {t} add foreign key (value) references {t}_of""",
        "bad",
    ),
    "23505": ("create unique index on {t} (value)", "v0"),
    "23P01": ("alter table {t} add exclude using hash (value with =)", "v0"),
    "22P02": (
        """create domain {t}_d as text check (value::int >= 0);
        alter table {t} alter value type {t}_d using null""",
        "bad",
    ),
    "P0001": (
        """create function {t}_f() returns trigger language plpgsql as
        $$ begin if new.value = 'bad' then raise 'no'; end if; return new; end $$;
        create trigger no before insert on {t} for each row execute function {t}_f()""",
        "bad",
    ),
}


@sample.cases(1, of="name")
@pytest.mark.parametrize("code", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_each_kind_of_refusal_is_a_dead_letter(shared_database: str, name: str, code: str) -> None:
    setup, value = KINDS[code]
    with buried(shared_database, name) as harness, Case(harness) as case:
        if setup:
            harness.db.execute(setup.replace("{t}", harness.table))
        good = rows(0, 10) if code != "22P02" else [(n, str(n)) for n in range(10)]
        more = rows(10, 10) if code != "22P02" else [(n, str(n)) for n in range(10, 20)]
        bad = [(100, value), (101, value)]
        case.run().epoch(0, [*good, bad[0]], more)
        case.run().epoch(1, [bad[1]])
        assert harness.letters() == [(code, bad[0]), (code, bad[1])]
        case.finished(good, more, when="after rows that the table refuses")


def test_a_deferred_constraint_is_judged_too(shared_database: str) -> None:
    with buried(shared_database, "wal-append") as harness, Case(harness) as case:
        harness.db.execute(
            f"alter table {harness.table} add unique (value) deferrable initially deferred"
        )
        case.run().epoch(0, rows(1, 2), [(0, "v0")], [(9, "v0")])
        (letter,) = harness.letters()  # of rows without a position: a digest says which is later
        other = {(0, "v0"): (9, "v0"), (9, "v0"): (0, "v0")}[letter[1]]
        assert letter[0] == "23505"
        case.finished(rows(1, 2), [other], when="after a deferred constraint")


@pytest.mark.parametrize("when", ["initially deferred", "initially immediate"])
@pytest.mark.parametrize("name", ["2pc-append", "wal-append"])
def test_a_constraint_that_is_checked_at_prepare_is_refused_at_the_start(
    shared_database: str, name: str, when: str
) -> None:
    with buried(shared_database, name) as harness:
        harness.db.execute(
            f"alter table {harness.table} add constraint one unique (value) deferrable {when}"
        )
        found = [f for f in harness.new_sink().preflight("job") if f.severity is Severity.ERROR]
        wanted = ["decide on one another (one)"] if name == "2pc-append" else []
        if wanted and when == "initially deferred":
            wanted = ["INITIALLY DEFERRED (one)", *wanted]
        assert len(found) == len(wanted)
        assert all(text in f.what for text, f in zip(wanted, found, strict=True))


def test_the_register_keeps_rows_and_dead_of_each_epoch(shared_database: str) -> None:
    with buried(shared_database, "wal-append") as harness, Case(harness) as case:
        harness.db.execute(f"alter table {harness.table} add check (value <> 'bad')")
        run = case.run()
        run.epoch(0, rows(0, 3), [(7, "a\0b"), (8, "bad")])
        run.epoch(1, rows(10, 3))
        run.epoch(2, [(9, "bad")])
        found = [recent.dead for recent in case.run().state().recent]
        assert found == [(Dead(0, 5, 2),), (Dead(0, 3, 0),), (Dead(0, 1, 1),)]


def test_a_dead_letter_says_where_it_is_from(shared_database: str) -> None:
    with buried(shared_database, "wal-upsert") as harness, Case(harness) as case:
        case.run().epoch(4, [(7, "a\0b"), *rows(0, 3)])
        query = (
            'select job, sink, epoch, code, message, "column", key::text, position, replayed,'
            f" at > now() - interval '1 hour' from {harness.dead}"
        )
        (found,) = harness.db.execute(query).fetchall()
        why = (
            'Column "value": values hold a NUL character (0x00), which text cannot in most targets.'
        )
        sink = f"public.{harness.table}"
        assert found == (
            *("job", sink, 4, "nul-character", why, "value", '{"id":7}', None, None, True),
        )


def hidden_columns(url: str) -> None:
    with buried(url, "wal-append", deadlettercolumns=("VALUE",)) as harness:
        harness.db.execute(f"alter table {harness.table} add check (value <> 'bad')")
        case = Case(harness)
        case.run().epoch(0, [(7, "a\0b"), (8, "bad"), *rows(0, 3)])
        query = f'select "row"::text from {harness.dead} order by id'
        found = [json.loads(text) for (text,) in harness.db.execute(query)]
        assert found == [{"id": 7}, {"id": 8}]
        case.close()
        harness.db.execute(
            f"alter table {harness.table} drop constraint {harness.table}_value_check"
        )
        kept = PostgresLetters(harness.options)
        with pytest.raises(DataError, match="does not show the columns value"):
            kept.replay([letter["id"] for letter in kept.found(code="23514")])
        assert sorted(harness.read()) == rows(0, 3)
        assert len(kept.found()) == 2


def test_columns_left_out_are_not_shown_and_not_replayed_as_null(shared_database: str) -> None:
    hidden_columns(shared_database)


def test_a_replay_that_writes_null_for_what_is_hidden_is_found(shared_database: str) -> None:
    bug = PostgresLetters, "_completed", lambda self, letters, batch, options: batch
    with planted(bug, by=pytest.fail.Exception, match="DID NOT RAISE"):
        hidden_columns(shared_database)


def test_the_limit_counts_the_last_epochs(shared_database: str) -> None:
    with buried(shared_database, "wal-append") as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, [(n, "a\0b") for n in range(99)])
        with pytest.raises(DeadLettersError, match="100 of 100"):
            run.epoch(1, [(100, "a\0b")])
        assert len(harness.letters()) == 99


def test_without_the_option_a_bad_row_stops_the_query_and_the_message_names_it(
    shared_database: str,
) -> None:
    with open_table(shared_database, VARIANTS["wal-append"]) as harness, Case(harness) as case:
        harness.db.execute(f"alter table {harness.table} add check (value <> 'bad')")
        for bad in ("a\0b", "bad"):
            with pytest.raises(AbsError) as caught:
                case.run().epoch(0, [(7, bad)])
            assert "deadletter" in caught.value.remedy
        case.hides_all("after bad rows")


def test_a_table_of_another_shape_is_refused_with_the_statement(shared_database: str) -> None:
    with buried(shared_database, "wal-append") as harness:
        harness.db.execute(f"create table {harness.dead} (id bigint, job text)")
        with pytest.raises(SchemaError, match='lacks "sink" text') as caught:
            Case(harness).run()
        assert "create table" in caught.value.remedy


@sample.cases(1)
def test_replayed_letters_are_written_and_marked_once(shared_database: str, name: str) -> None:
    with buried(shared_database, name) as harness, Case(harness) as case:
        harness.db.execute(f"alter table {harness.table} add constraint c check (value <> 'bad')")
        case.run().epoch(0, rows(0, 3), [(7, "bad"), (8, "bad"), (9, "a\0b")])
        kept = PostgresLetters(replaying(harness.options))
        ids = [letter["id"] for letter in kept.found(code="23514")]
        with pytest.raises(AbsError, match="23514"):
            kept.replay(ids)
        assert [letter["replayed"] for letter in kept.shown(ids)] == [None, None]
        harness.db.execute(f"alter table {harness.table} drop constraint c")
        assert kept.replay(ids) == 2
        assert kept.replay(ids) == 0
        assert len(kept.found()) == 1
        case.holds(rows(0, 3), [(7, "bad"), (8, "bad")], when="after a replay")


def replaying(options: PostgresOptions) -> PostgresOptions:
    """The options by which the command replays letters of a job with these."""
    return replace(options, common=replace(options.common, protocol="wal"))


@contextmanager
def two_letters(url: str) -> Iterator[tuple[Buried, Case, LossyProxy, PostgresLetters]]:
    """Two letters, 7 and 8, whose rows the table takes by now, and a replay through a proxy."""
    with buried(url, "wal-append") as harness, Case(harness) as case, LossyProxy(url) as proxy:
        harness.db.execute(f"alter table {harness.table} add constraint c check (value <> 'bad')")
        case.run().epoch(0, [(7, "bad"), (8, "bad")])
        harness.db.execute(f"alter table {harness.table} drop constraint c")
        through = replace(harness.options, address=Address.parse(proxy.url))
        yield harness, case, proxy, PostgresLetters(through)


def test_of_two_replays_at_once_of_one_letter_one_writes_it(shared_database: str) -> None:
    with two_letters(shared_database) as (harness, case, proxy, kept):
        ids = [letter["id"] for letter in kept.found()]
        proxy.before("BEGIN", lambda: PostgresLetters(harness.options).replay(ids[:1]))
        with pytest.raises(RefusedError, match="replayed or deleted in the meantime"):
            kept.replay(ids)
        assert not proxy.waits
        case.holds([(7, "bad")], when="after two replays at once")
        assert kept.replay(ids) == 1
        case.holds([(7, "bad"), (8, "bad")], when="after the rest was replayed")
        with pytest.raises(OptionError, match="'x' is no id"):
            kept.shown(["x"])


def test_of_two_replays_of_the_same_letters_one_says_that_it_wrote_them(
    shared_database: str,
) -> None:
    with two_letters(shared_database) as (harness, case, proxy, kept):
        ids, other = [letter["id"] for letter in kept.found()], list[int]()
        here = PostgresLetters(harness.options)
        proxy.before(f'"{harness.schema}"."register"', lambda: other.append(here.replay(ids)))
        assert (kept.replay(ids), other) == (0, [2])
        case.holds([(7, "bad"), (8, "bad")], when="after two replays at once")


def test_a_replay_that_dies_in_its_transaction_changes_nothing(shared_database: str) -> None:
    with two_letters(shared_database) as (_, case, proxy, kept):
        ids = [letter["id"] for letter in kept.found()]
        proxy.lose(Loss.REQUEST, "COMMIT\0")
        with pytest.raises(AbsError):
            kept.replay(ids)
        assert proxy.fired
        case.holds(when="after a replay that died")
        assert kept.replay(ids) == 2
        case.holds([(7, "bad"), (8, "bad")], when="after a second replay")


@sample.cases(3)
def test_a_trigger_that_drops_dead_letters_leaves_the_epoch_undecided(opener: Opener) -> None:
    """Rows that pass = rows written + rows dead, by what the table of the letters has kept."""
    with opener() as harness, Case(harness) as case:
        case.run().epoch(0, rows(0, 10))
        body = "returns trigger language plpgsql as 'begin return null; end'"
        harness.db.execute(f"create function {harness.table}_f() {body}")
        harness.db.execute(
            f"create trigger drops before insert on {harness.dead} for each row "
            f"execute function {harness.table}_f()"
        )
        run = case.run()
        error = raises(MiscountError, lambda: run.epoch(1, rows(10, 10)))
        assert "2 dead letters were counted, and the target holds 0 and 0" in error.what
        assert (error.epoch, run.state().last_decided) == (1, 0)
        harness.db.execute(f"drop trigger drops on {harness.dead}")
        case.run().epoch(1, rows(10, 10))
        good = [row for row in rows(0, 20) if not is_poison(row[0])]
        case.finished(good, when="after a trigger that dropped dead letters")
        assert len(harness.letters()) == 4
