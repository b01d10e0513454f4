"""Messages that come late or are answered by something else, as in no job of ``test_pg_positions``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_core.errors import TargetError, UnavailableError
from abs_core.model import Committable, Decision, Share, Wrote
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing import SCHEMA
from abs_testing.calls import Loss
from abs_testing.case import JOB, Case, rows, within
from tests.fault_proxy.postgres import LossyProxy

pytestmark = pytest.mark.services


EPOCH = (rows(0, 3), rows(10, 3))


@pytest.fixture
def proxy(shared_database: str) -> Iterator[LossyProxy]:
    with LossyProxy(shared_database) as proxy:
        yield proxy


@contextmanager
def _routed(
    database: str, proxy: LossyProxy, variant: Variant
) -> Iterator[tuple[TableHarness, Case]]:
    """A harness whose sinks go through the proxy, and a case on it."""
    with open_table(database, variant) as harness:
        _route(harness, proxy, variant)
        case = Case(harness)
        yield harness, case
        case.close()


def _route(harness: TableHarness, proxy: LossyProxy, variant: Variant) -> None:
    """Let the harness's sinks go through the proxy; its own look at the server does not."""
    options: PostgresOptions = replace(harness.options, address=Address.parse(proxy.url))
    harness.new_sink = partial(PostgresSink, options, SCHEMA, co_commit=variant.own_register)


def test_a_prepare_that_is_answered_by_anything_else_has_not_prepared(shared_database: str) -> None:
    """PREPARE of a transaction that had failed is answered with ROLLBACK, and with no error."""

    def rewrite(answer: bytes) -> bytes:
        prepared, rolled_back = b"PREPARE TRANSACTION\0", b"ROLLBACK\0"
        return answer.replace(_complete(prepared), _complete(rolled_back))

    variant = VARIANTS["2pc-append"]
    with (
        open_table(shared_database, variant) as harness,
        LossyProxy(shared_database, rewrite) as proxy,
    ):
        direct = harness.new_sink
        _route(harness, proxy, variant)
        attempt = Case(harness).run().attempt(0).write(*EPOCH[0])
        with pytest.raises(TargetError, match="answered with ROLLBACK"):
            attempt.pre_commit()
        attempt.writer.abort()
        harness.new_sink = direct
        case = Case(harness)
        case.run().epoch(0, *EPOCH)
        case.finished(*EPOCH, when="after a PREPARE that was answered with ROLLBACK")
        case.close()


def _complete(tag: bytes) -> bytes:
    """The server's message that a statement is done (CommandComplete)."""
    return b"C" + (len(tag) + 4).to_bytes(4) + tag


def test_a_decision_that_arrives_after_the_epoch_was_abandoned_changes_nothing(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["2pc-append"]) as (_, case):
        run = case.run()
        shares = run.tasks(0, *EPOCH)
        stored = run.store.load(JOB)
        assert stored is not None
        proxy.lose(Loss.DELAY, "set version")
        deciding = replace(stored.state, open=(Decision("lineage", 0, 1, _committables(shares)),))
        with pytest.raises(UnavailableError):
            run.store.compare_and_set(JOB, stored.version, deciding)
        run.abort(0)
        proxy.release()
        case.finished(when="after a decision that arrived late")
        assert run.state().abandoned == (0,)
        case.run().epoch(0, *EPOCH)
        case.finished(*EPOCH, when="after the next run")


def test_a_co_commit_whose_last_message_is_held_up_is_waited_for(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["wal-append"]) as (harness, case):
        run = case.run()
        shares = run.tasks(0, *EPOCH)
        proxy.lose(Loss.DELAY, "drop table")
        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(run.commit, 0, shares)
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            assert within(60, lambda: harness.db.execute(waits).fetchone() is not None)
            proxy.release()
            committed.result(timeout=60)
        case.finished(*EPOCH, when="after a co-commit that was held up")


def test_a_zombie_stopped_inside_its_co_commit_is_ended_by_its_successor(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["wal-append"]) as (_, case):
        zombie = case.run()
        shares = zombie.tasks(0, *EPOCH)
        stored = zombie.store.load(JOB)
        assert stored is not None
        finished = replace(stored.state, frontier=0)
        committer = zombie.committer
        assert committer.co_commits
        proxy.lose(Loss.DELAY, "drop table")
        with pytest.raises(UnavailableError):
            committer.co_commit(_committables(shares), stored.version, finished)
        case.run().epoch(0, *EPOCH)
        proxy.release()
        case.finished(*EPOCH, when="after a zombie that was stopped inside its co-commit")


def _committables(shares: list[Share]) -> tuple[Committable, ...]:
    return tuple(s.committable for s in shares if isinstance(s, Wrote) and s.committable)
