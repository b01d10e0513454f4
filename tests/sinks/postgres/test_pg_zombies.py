"""Orphans, zombies and neighbours on a real server: who may be waited for, and who may not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.connection import Tag
from abs_clients.postgres.pool import leased
from abs_core.contracts import Conflict
from abs_core.errors import ContentionError, FencedError, ProtocolError, TargetError
from abs_core.model import Outcome, Wrote
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.register import terminate_older
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import JOB, Case, rows, within
from tests.fault_proxy.postgres import LossyProxy
from tests.sinks.postgres.locks import LONG, nobody_waits

pytestmark = pytest.mark.services
LEFT, RIGHT = rows(0, 3), rows(10, 3)


@pytest.fixture
def unique(shared_database: str) -> Iterator[TableHarness]:
    """A table with a unique id, for 2pc: rows of one key block each other until their end."""
    with open_table(shared_database, VARIANTS["2pc-append"]) as harness:
        harness.db.execute(f"create unique index on {harness.table} (id)")
        yield harness


@pytest.fixture
def upserted(shared_database: str) -> Iterator[TableHarness]:
    with open_table(shared_database, VARIANTS["idempotent-upsert"]) as harness:
        yield harness


def test_an_orphan_of_an_earlier_run_is_swept_and_not_waited_on(unique: TableHarness) -> None:
    case = Case(unique)
    case.run().tasks(0, LEFT)
    assert len(unique.prepared()) == 1
    with nobody_waits(unique):
        case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after an orphan that held the locks of its successor")
    case.close()


def test_an_orphan_of_the_same_run_is_an_error_in_bounded_time_and_the_next_run_heals(
    unique: TableHarness,
) -> None:
    case = Case(unique)
    run = case.run()
    run.tasks(0, LEFT)  # its reply is lost: the engine tries the task again
    began = time.monotonic()
    retry = run.attempt(0)
    with pytest.raises(ContentionError, match="lock"):
        retry.write(*LEFT).pre_commit()
    retry.writer.abort()
    assert time.monotonic() - began < LONG
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after an orphan of the same run")
    case.close()


def test_a_client_stopped_inside_copy_does_not_block_its_successor(upserted: TableHarness) -> None:
    case = Case(upserted)
    stopped = case.run().attempt(0).write(*LEFT)
    with nobody_waits(upserted):
        successor = case.run()
        successor.epoch(0, LEFT)
        successor.epoch(1, rows(0, 3, "new"))
    with pytest.raises((FencedError, TargetError)):  # its session may have been ended
        stopped.pre_commit()
    stopped.writer.abort()
    case.finished(rows(0, 3, "new"), when="after a client that was stopped inside COPY")
    case.close()


def test_a_zombie_that_holds_the_registers_row_is_ended_by_the_next_start(
    upserted: TableHarness,
) -> None:
    case = Case(upserted)
    run = case.run()
    run.epoch(0, LEFT)
    state = run.state()
    zombie = psycopg.connect(
        upserted.url, application_name=str(Tag(state.register, state.generation))
    )
    zombie.execute(f"select from {upserted.schema}.register for share")
    case.run().epoch(1, RIGHT)
    with pytest.raises(psycopg.OperationalError):
        zombie.execute("select 1")
    zombie.close()
    case.finished(LEFT, RIGHT, when="after a zombie that held the register's row")
    case.close()


def test_only_sessions_of_lower_generations_of_this_very_register_are_ended(
    upserted: TableHarness,
) -> None:
    case = Case(upserted)
    run = case.run()
    run.begin(0)
    state = replace(run.state(), generation=10)
    register = state.register
    names = {
        f"abs:{register}:9": True,
        f"abs:{register}:10": False,
        f"abs:{register}:11": False,
        f"abs:{register}:9x": False,
        f"abs:{register}:09": False,
        f"abs:{register[:-1]}0:9" if register[-1] != "0" else f"abs:{register[:-1]}1:9": False,
        "someone else": False,
    }
    sessions = {n: psycopg.connect(upserted.url, application_name=n) for n in names}
    idle = psycopg.connect(upserted.url, application_name=f"abs:{register}:9", autocommit=True)
    for session in sessions.values():
        session.execute("select 1")  # leaves a transaction open
    assert terminate_older(upserted.options, state) == 1
    for name, session in sessions.items():
        assert _is_ended(session) is names[name], name
        session.close()
    assert not _is_ended(idle), "an idle session holds nothing and is left alone"
    idle.close()
    case.close()


def test_two_registers_of_one_job_name_never_touch_each_others_handles(
    shared_database: str, harness: TableHarness, case: Case
) -> None:
    # As two installations with different state schemas on one database.
    if not case.hides or not harness.own_register:
        pytest.skip("nothing in doubt to be touched")
    other = replace(harness.options, stateschema=f"{harness.schema}_other")
    theirs = TableHarnessView(harness, partial(PostgresSink, other, SCHEMA))
    try:
        mine = case.run()
        shares = mine.tasks(0, LEFT)
        their_case = Case(theirs)
        their_case.run().tasks(0, rows(20, 1))
        their_case.run().epoch(0, RIGHT)
        their_case.run().begin(1)
        mine.commit(0, shares)
        case.finished(LEFT, RIGHT, when="after two registers of one job name")
        their_case.close()
    finally:
        harness.db.execute(f"drop schema if exists {other.stateschema} cascade")


class TableHarnessView:
    """The same table through other sinks."""

    def __init__(self, harness: TableHarness, new_sink: partial[PostgresSink]) -> None:
        self.own_register = True
        self.new_sink = new_sink
        self.read = harness.read
        self.leftovers = harness.leftovers


def test_what_another_protocol_left_is_committed_and_swept(shared_database: str) -> None:
    """A job may change its protocol between runs."""
    with open_table(shared_database, VARIANTS["2pc-append"]) as harness:
        case = Case(harness)
        case.run().tasks(0, LEFT)
        common = replace(harness.options.common, protocol="wal")
        harness.new_sink = partial(PostgresSink, replace(harness.options, common=common), SCHEMA)
        case = Case(harness)
        case.run().tasks(0, LEFT)
        assert harness.prepared() == []
        assert len(harness.staged()) == 1
        case.run().epoch(0, LEFT, RIGHT)
        case.finished(LEFT, RIGHT, when="after 2pc and then wal")
        case.close()


def test_commit_processes_that_race_for_many_handles_both_know_them_committed(
    unique: TableHarness,
) -> None:
    # Each handle is ended by one of them; the other meets it busy, or gone with its marker there.
    case = Case(unique)
    run = case.run()
    parts = [rows(10 * task, 2) for task in range(20)]
    given = [s.committable for s in run.tasks(0, *parts) if isinstance(s, Wrote) and s.committable]
    committers = [case.sink().committer() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda committer: committer.commit(given), committers))
    for outcomes in found:
        assert set(outcomes.values()) == {Outcome.COMMITTED}
        assert len(outcomes) == len(given)
    case.holds(*parts, when="after commits that raced")
    case.close()


def test_an_abort_after_pre_commit_leaves_handle_and_connections_alone(
    harness: TableHarness,
    case: Case,
) -> None:
    run = case.run()
    attempt = run.attempt(0).write(*LEFT)
    share = attempt.pre_commit()
    with leased(harness.options.server) as next_user:
        attempt.writer.abort()
        assert next_user.execute("select 1").fetchone() == (1,)
    run.commit(0, [share])
    case.finished(LEFT, when="after an abort that came too late")


def test_a_late_task_of_a_superseded_run_changes_nothing(case: Case) -> None:
    late = case.run().attempt(0).write(*LEFT)
    new = case.run()
    new.epoch(0, RIGHT)
    try:
        late.pre_commit()
    except (ProtocolError, TargetError):
        late.writer.abort()
    case.holds(RIGHT, when="after a late task of a superseded run")
    new.epoch(1, rows(20, 1))
    case.finished(RIGHT, rows(20, 1), when="after the epoch that follows")


def _is_ended(session: psycopg.Connection[tuple[object, ...]]) -> bool:
    def ended() -> bool:
        try:
            session.execute("select 1")
        except psycopg.OperationalError:
            return True
        return False

    return ended() or within(0.1, ended)


def test_a_co_commit_of_what_a_successor_has_swept_is_a_conflict(shared_database: str) -> None:
    """By the register: that the staging is gone is no error of the epoch's."""
    with open_table(shared_database, VARIANTS["wal-append"]) as harness:
        case = Case(harness)
        zombie = case.run()
        shares = zombie.tasks(0, rows(0, 3))
        given = [s.committable for s in shares if isinstance(s, Wrote) and s.committable]
        stale = zombie.store.load(JOB)
        assert stale is not None
        case.run().begin(0)  # it sweeps
        assert harness.staged() == []
        finished = replace(stale.state, frontier=0)
        assert zombie.committer.co_commit(given, stale.version, finished) == Conflict()
        case.close()


def test_a_handle_that_is_committed_while_it_is_looked_at_is_not_unknown(
    shared_database: str,
) -> None:
    """The list of prepared transactions is read first: what has left it has its marker by then."""
    with (
        open_table(shared_database, VARIANTS["2pc-append"]) as harness,
        LossyProxy(shared_database) as proxy,
    ):
        case = Case(harness)
        shares = case.run().tasks(0, rows(0, 3))
        (given,) = [s.committable for s in shares if isinstance(s, Wrote) and s.committable]
        commit = f"commit prepared '{given.handle}'"
        for moment in ("pg_prepared_xacts", '"marker"'):
            options = replace(harness.options, address=Address.parse(proxy.url))
            proxy.before(moment, lambda: harness.db.execute(commit) if harness.prepared() else None)
            seen = PostgresSink(options, SCHEMA).committer().inspect([given])
            assert seen[given.handle].outcome is Outcome.COMMITTED
        case.close()
