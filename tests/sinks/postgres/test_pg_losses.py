"""Requests and replies that are lost or late between the job and the server lose and double nothing.

``test_pg_positions`` loses each message of a job, in each way; here are those of each day, and what
that job does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.postgres.address import Address
from abs_core.errors import TargetError, UnavailableError
from abs_core.model import Committable, Decision, Share, Wrote
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.letters.held import StagedLetters
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing import SCHEMA
from abs_testing.calls import Loss
from abs_testing.case import JOB, Case, within
from tests import sample
from tests.fault_proxy.postgres import LossyProxy
from tests.planted import planted
from tests.sinks.losses import EPOCHS, whole_job
from tests.sinks.postgres.buried import poisoned
from tests.sinks.postgres.growing import growing

pytestmark = pytest.mark.services


@pytest.fixture
def proxy(shared_database: str) -> Iterator[LossyProxy]:
    with LossyProxy(shared_database) as proxy:
        yield proxy


def plain(url: str, name: str) -> AbstractContextManager[TableHarness]:
    return open_table(url, VARIANTS[name])


PLAIN = {
    "2pc-append": ["PREPARE TRANSACTION", "COMMIT PREPARED"],
    "wal-append": ["BEGIN; \nupdate", "drop table"],
}
GROWING = {
    "wal-append": ["ALTER TABLE", "SAVEPOINT added", "drop table"],
    "wal-append-foreign-register": ["ALTER TABLE"],
    "2pc-append": ["ALTER TABLE"],
    "idempotent-upsert": ["ALTER TABLE"],
}
CASES = [
    pytest.param(make, name, text, loss, id=f"{make.__name__}-{name}-{loss}-{text.split()[0]}")
    for make, cells in ((plain, PLAIN), (growing, GROWING))
    for name, statements in cells.items()
    for text in statements
    for loss in (Loss.REQUEST, Loss.REPLY)
]


@sample.cases(2, of="text")
@pytest.mark.parametrize(("make", "name", "text", "loss"), CASES)
def test_a_loss_at_a_decision_or_a_new_column_loses_and_doubles_nothing(
    shared_database: str,
    proxy: LossyProxy,
    make: Callable[[str, str], AbstractContextManager[TableHarness]],
    name: str,
    text: str,
    loss: Loss,
) -> None:
    with make(shared_database, name) as harness:
        _route(harness, proxy, VARIANTS[name])
        case = Case(harness)
        proxy.lose(loss, text)
        whole_job(case)
        assert proxy.fired, f"no message had {text!r} in it"
        case.close()


JUDGED = ["wal-append", "wal-upsert", "wal-append-foreign-register", "wal-upsert-foreign-register"]


@sample.cases(4)
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY, Loss.DOUBLE])
@pytest.mark.parametrize("name", JUDGED)
def test_a_loss_of_the_end_of_a_judgement_loses_no_dead_letter(
    shared_database: str, proxy: LossyProxy, name: str, loss: Loss
) -> None:
    _loses_the_end_of_a_judgement(shared_database, proxy, name, loss)


@sample.cases(1)
@pytest.mark.parametrize("name", JUDGED)
def test_a_judgement_whose_reply_is_guessed_is_found(
    shared_database: str, proxy: LossyProxy, name: str
) -> None:
    """No reply is taken for nothing marked: the rows that are good then are all that is written."""
    with planted((StagedLetters, "check", lambda *_: None)):
        _loses_the_end_of_a_judgement(shared_database, proxy, name, Loss.REPLY)


def _loses_the_end_of_a_judgement(database: str, proxy: LossyProxy, name: str, loss: Loss) -> None:
    """Lose the COMMIT behind the statement that marks the rows which the table refuses."""
    marked = list[bytes]()

    def ends_it(message: bytes) -> bool:
        if b"update only" in message:
            marked.append(message)
        return bool(marked) and b"COMMIT" in message

    with poisoned(database, name) as harness:
        _route(harness, proxy, VARIANTS[name])
        case = Case(harness)
        proxy.lose_if(loss, ends_it)
        whole_job(case)
        assert proxy.fired, "no COMMIT followed the marks"
        case.close()


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
        attempt = Case(harness).run().attempt(0).write(*EPOCHS[0][0])
        with pytest.raises(TargetError, match="answered with ROLLBACK"):
            attempt.pre_commit()
        attempt.writer.abort()
        harness.new_sink = direct
        case = Case(harness)
        case.run().epoch(0, *EPOCHS[0])
        case.finished(*EPOCHS[0], when="after a PREPARE that was answered with ROLLBACK")
        case.close()


def _complete(tag: bytes) -> bytes:
    """The server's message that a statement is done (CommandComplete)."""
    return b"C" + (len(tag) + 4).to_bytes(4) + tag


def test_a_decision_that_arrives_after_the_epoch_was_abandoned_changes_nothing(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["2pc-append"]) as (_, case):
        run = case.run()
        shares = run.tasks(0, *EPOCHS[0])
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
        case.run().epoch(0, *EPOCHS[0])
        case.finished(*EPOCHS[0], when="after the next run")


def test_a_co_commit_whose_last_message_is_held_up_is_waited_for(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["wal-append"]) as (harness, case):
        run = case.run()
        shares = run.tasks(0, *EPOCHS[0])
        proxy.lose(Loss.DELAY, "drop table")
        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(run.commit, 0, shares)
            waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            assert within(10, lambda: harness.db.execute(waits).fetchone() is not None)
            proxy.release()
            committed.result(timeout=20)
        case.finished(*EPOCHS[0], when="after a co-commit that was held up")


def test_a_zombie_stopped_inside_its_co_commit_is_ended_by_its_successor(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["wal-append"]) as (_, case):
        zombie = case.run()
        shares = zombie.tasks(0, *EPOCHS[0])
        stored = zombie.store.load(JOB)
        assert stored is not None
        finished = replace(stored.state, frontier=0)
        committer = zombie.committer
        assert committer.co_commits
        proxy.lose(Loss.DELAY, "drop table")
        with pytest.raises(UnavailableError):
            committer.co_commit(_committables(shares), stored.version, finished)
        case.run().epoch(0, *EPOCHS[0])
        proxy.release()
        case.finished(*EPOCHS[0], when="after a zombie that was stopped inside its co-commit")


def _committables(shares: list[Share]) -> tuple[Committable, ...]:
    return tuple(s.committable for s in shares if isinstance(s, Wrote) and s.committable)
