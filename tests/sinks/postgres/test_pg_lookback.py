"""A restored database is told at a start; with its own register, as a lost register."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from abs_cli import repair
from abs_clients.postgres.pool import close_idle
from abs_core.certificate import MemoryCertificates
from abs_core.errors import NotPreparedError, RegisterLostError, TargetWentBackError
from abs_core.model import Committable, Shown, job_key
from abs_services import PostgresService
from abs_sinks.postgres import PostgresSink, lookback
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing import SCHEMA, run_check
from abs_testing.case import JOB, Case, consent_in, raises, rows
from abs_testing.checks import CHECKS
from abs_testing.engine import Run, committables_of
from tests.planted import planted

pytestmark = pytest.mark.services
FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


class Restored:
    """A copy of the harness's database as it is now, which takes its place later.

    Prepared transactions are not in the copy, as in no dump.
    """

    def __init__(self, server: PostgresService, harness: TableHarness) -> None:
        self._admin = psycopg.connect(server.admin_url, autocommit=True)
        self._harness = harness
        name = urlsplit(harness.url).path.lstrip("/")
        self._names = sql.Identifier(name), sql.Identifier(f"{name}_kept")
        self._leave()
        self._run("create database {1} template {0}")
        harness.reconnect()

    def take_its_place(self) -> None:
        self._leave()
        self._run("drop database {0} with (force)")
        self._run("alter database {1} rename to {0}")
        self._harness.reconnect()
        self._admin.close()

    def _leave(self) -> None:
        close_idle()
        self._harness.db.close()

    def _run(self, text: str) -> None:
        self._admin.execute(sql.SQL(text).format(*self._names))


@pytest.mark.parametrize("name", ["2pc-append-foreign-register", "wal-upsert-foreign-register"])
def test_a_database_restored_from_a_copy_is_told(
    postgres: PostgresService, database: str, name: str
) -> None:
    with open_table(database, VARIANTS[name]) as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        copy = Restored(postgres, harness)
        run = case.run()
        run.epoch(1, SECOND)
        run.epoch(2, [])  # without rows: its targets show nothing
        run.epoch(3, THIRD[:2], THIRD[2:])
        case.run().begin(4)
        copy.take_its_place()
        error = raises(TargetWentBackError, lambda: case.run().begin(4))
        assert "no longer has the 6 rows of the finished epoch(s) 1, 3." in error.what
        case.run(adopt=consent_in(error)).epoch(4, LAST)
        case.run().begin(5)
        case.finished(FIRST, LAST, when="after a restore that was consented to")


def test_a_database_that_lost_its_newest_commits_prepared_again_is_told_before_a_sweep(
    database: str,
) -> None:
    """As a replica does: its last COMMIT PREPARED was lost, and the transaction is prepared there."""
    variant = VARIANTS["2pc-append-foreign-register"]
    with open_table(database, variant) as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        shares = run.tasks(1, SECOND)
        gids = harness.prepared()
        run.commit(1, shares)
        harness.db.execute("delete from " + harness.table + " where id >= 10")
        harness.db.execute(f"delete from {harness.schema}.marker where epoch = 1")
        for gid in gids:
            harness.db.execute("begin")
            harness.db.execute(f"insert into {harness.table} values (10, 'v10')")
            harness.db.execute(sql.SQL("prepare transaction {}").format(gid))
        raises(TargetWentBackError, lambda: case.run().begin(2))
        assert harness.prepared() == gids, "what can still be committed was rolled back"


def test_a_database_that_goes_back_with_its_register_has_lost_its_register(
    postgres: PostgresService, database: str
) -> None:
    variant: Variant = VARIANTS["wal-append"]
    with open_table(database, variant) as harness, Case(harness) as case:
        checkpoint = MemoryCertificates()
        run = case.run(certificates=checkpoint)
        run.epoch(0, FIRST)
        copy = Restored(postgres, harness)
        case.run(certificates=checkpoint).epoch(1, SECOND)
        copy.take_its_place()
        raises(RegisterLostError, lambda: case.run(certificates=checkpoint).begin(2))


def test_what_is_committed_and_still_marked_is_not_composed_again(database: str) -> None:
    """A zombie that composes once more is told that it is late, and not that a key is taken."""
    variant: Variant = VARIANTS["wal-append-foreign-register"]
    with open_table(database, variant) as harness, Case(harness) as case:
        run = case.run()
        staged = committables_of(run.tasks(0, FIRST))
        committer = case.sink().committer()
        committer.commit(committer.compose(staged))
        raises(NotPreparedError, lambda: committer.compose(staged))


def repaired_and_restored_again(url: str, name: str, *, elsewhere: bool = False) -> None:
    """The job's register is elsewhere; that of the batch writes which repair it is in the database.

    Args:
        elsewhere: that of the batch writes, too: they write to several sinks.
    """
    with open_table(url, VARIANTS[name]) as harness, Case(harness) as case:

        def alone(job: str) -> Run:
            if elsewhere:
                return case.run(job)
            return Run(PostgresSink(harness.options, SCHEMA, co_commit=True), job)

        alone("another").epoch(0, [])
        if not elsewhere:
            harness.tables.append(
                f"{harness.schema}.register"
            )  # which a copy of the database has, too
        run = case.run()
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        run.epoch(2, THIRD)
        written = {1: SECOND, 2: THIRD}
        tokens = set[str]()
        for _ in range(2):
            back()
            told = raises(TargetWentBackError, lambda: case.run().begin(3)).what
            assert "no longer has the 6 rows of the finished epoch(s) 1 to 2." in told
            stored = run.stored()
            tokens_in = run.store if elsewhere else PostgresRegister(harness.options)
            repaired = repair._Repair(stored.state, None, 0, tokens_in)  # type: ignore[arg-type]
            lost = repaired.epochs(list(written), None)
            for one in lost:
                alone(job_key(JOB, one.token)).epoch(0, written[one.recent.epoch])
                assert one.token not in tokens
                tokens.add(one.token)
            again = {
                one.recent.epoch: repair._again(stored.state, one, repaired.there) for one in lost
            }
            repair._record(run.store, stored, again)  # type: ignore[arg-type]
            case.run().begin(3)
            case.holds(FIRST, SECOND, THIRD, when="after a repair run")
        case.run().epoch(3, LAST)
        case.run().begin(4)
        case.holds(FIRST, SECOND, THIRD, LAST, when="after two repair runs")


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", ["2pc-append-foreign-register", "wal-append-foreign-register"])
def test_what_was_repaired_is_compared_and_repaired_again(
    database: str, name: str, elsewhere: bool
) -> None:
    repaired_and_restored_again(database, name, elsewhere=elsewhere)


def test_a_repaired_epoch_that_is_no_longer_compared_is_found(database: str) -> None:
    with planted((lookback.BatchRow, "are_in", lambda *_: True)):
        repaired_and_restored_again(database, "wal-append-foreign-register")


def test_markers_of_a_repair_that_are_looked_for_as_the_jobs_own_are_found(database: str) -> None:
    shown = lookback.shown

    def as_the_jobs(committables: Sequence[Committable], options: PostgresOptions) -> list[Shown]:
        def without(mark: str) -> str:
            return json.dumps({k: v for k, v in json.loads(mark).items() if k != "register"})

        told = shown(committables, options)
        return [replace(one, mark=without(one.mark)) for one in told]

    with planted((lookback, "shown", as_the_jobs), by=(AssertionError, pytest.fail.Exception)):
        repaired_and_restored_again(database, "2pc-append-foreign-register", elsewhere=True)


def of_two(url: str) -> None:
    (check,) = (check for check in CHECKS if check.rule.startswith("of_two_sinks_in_one_target"))
    opener = partial(open_table, url, VARIANTS["2pc-append-foreign-register"])
    assert run_check(opener, check)


def test_of_two_sinks_in_one_database_the_one_that_lost_rows_is_told(database: str) -> None:
    of_two(database)


def test_markers_of_another_sink_that_stand_for_those_that_are_gone_are_found(
    database: str,
) -> None:
    """As every release did: sinks that share no transaction commit one after the other."""
    with planted((lookback, "number_of", lambda handle: 0), (lookback, "STRIDE", 2**31 - 1)):
        of_two(database)
