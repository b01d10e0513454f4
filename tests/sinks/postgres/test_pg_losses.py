"""Requests and replies that are lost between the job and the server lose and double nothing."""

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
from tests.sinks.losses import EPOCHS, task, whole_job
from tests.sinks.postgres.buried import poisoned
from tests.sinks.postgres.growing import growing

pytestmark = pytest.mark.services

REGISTER = [
    ("insert into", 1),
    ('."register"\n   set version', 1),
    ('."register"\n   set version', 2),
]
STATEMENTS = {
    "2pc-append": [
        ("COPY ", 1),
        ("PREPARE TRANSACTION", 1),
        ("PREPARE TRANSACTION", 2),
        ("COMMIT PREPARED", 1),
        ("COMMIT PREPARED", 2),
        ("delete from", 1),
        *REGISTER,
    ],
    "wal-append": [
        ("create unlogged", 1),
        ("COMMIT\0", 1),
        ("BEGIN; \nupdate", 1),
        ("BEGIN; \nupdate", 2),
        ("drop table", 1),
        ("drop table", 2),
    ],
    "wal-append-foreign-register": [
        ("COMMIT\0", 2),
        ("PREPARE TRANSACTION", 1),
        ("PREPARE TRANSACTION", 2),
        ("COMMIT PREPARED", 1),
        ("COMMIT PREPARED", 2),
    ],
    "wal-upsert": [("BEGIN; \nupdate", 1), ("drop table", 1), ("drop table", 2)],
    "idempotent-upsert": [("savepoint staged", 1), ("savepoint staged", 2), *REGISTER],
}
CASES = [
    pytest.param(VARIANTS[name], text, nth, loss, id=f"{name}-{loss}-{nth}-{text.split()[0]}")
    for name, statements in STATEMENTS.items()
    for text, nth in statements
    for loss in (Loss.REQUEST, Loss.REPLY)
]


@pytest.fixture
def proxy(shared_database: str) -> Iterator[LossyProxy]:
    with LossyProxy(shared_database) as proxy:
        yield proxy


@sample.cases(20)
@pytest.mark.parametrize(("variant", "text", "nth", "loss"), CASES)
def test_a_loss_at_any_statement_loses_and_doubles_nothing(
    shared_database: str, proxy: LossyProxy, variant: Variant, text: str, nth: int, loss: Loss
) -> None:
    with _routed(shared_database, proxy, variant) as (_, case):
        proxy.lose(loss, text, nth)
        whole_job(case)
        assert proxy.fired, f"no message had {text!r} in it {nth} times"


POISONED = {
    "wal-append": [
        ("savepoint abs_stretch", 1),
        ("release savepoint abs_stretch", 1),
        ("COPY ", 2),
        ("set constraints all immediate", 1),
        ("savepoint abs_rows", 2),
        ("update only", 1),
        ("_dead", 3),
        ("drop table", 1),
    ],
    "wal-append-foreign-register": [("update only", 1), ("PREPARE TRANSACTION", 1)],
    "2pc-append": [
        ("rollback to savepoint abs_stretch", 1),
        ("savepoint abs_rows", 2),
        ("PREPARE TRANSACTION", 1),
    ],
    "idempotent-upsert": [("update only", 1), ("savepoint staged", 2), ("drop table", 1)],
}
GROWING = {
    "wal-append": [("ALTER TABLE", 1), ("SAVEPOINT added", 1), ("drop table", 1)],
    "wal-append-foreign-register": [("ALTER TABLE", 1)],
    "2pc-append": [("ALTER TABLE", 1)],
    "idempotent-upsert": [("ALTER TABLE", 1)],
}
KEEPING = [
    pytest.param(make, name, text, nth, loss, id=f"{make.__name__}-{name}-{loss}-{nth}-{text}")
    for make, cells in ((poisoned, POISONED), (growing, GROWING))
    for name, statements in cells.items()
    for text, nth in statements
    for loss in (Loss.REQUEST, Loss.REPLY)
]


@sample.cases(8)
@pytest.mark.parametrize(("make", "name", "text", "nth", "loss"), KEEPING)
def test_a_loss_beside_dead_letters_and_new_columns_loses_and_doubles_nothing(
    shared_database: str,
    proxy: LossyProxy,
    make: Callable[[str, str], AbstractContextManager[TableHarness]],
    name: str,
    text: str,
    nth: int,
    loss: Loss,
) -> None:
    with make(shared_database, name) as harness:
        _route(harness, proxy, VARIANTS[name])
        case = Case(harness)
        proxy.lose(loss, text, nth)
        whole_job(case)
        assert proxy.fired, f"no message had {text!r} in it {nth} times"
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


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_prepare_keeps_the_dead_letters_that_were_found(
    shared_database: str, proxy: LossyProxy, times: int
) -> None:
    """The connection breaks at it: the epoch is composed again, by the counts that are held."""
    name = "wal-append-foreign-register"
    with poisoned(shared_database, name) as harness:
        _route(harness, proxy, VARIANTS[name])
        case = Case(harness)
        proxy.lose(Loss.REQUEST, "PREPARE TRANSACTION", times)
        whole_job(case)
        assert proxy.fired
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


def test_a_prepare_that_arrives_late_is_swept(shared_database: str, proxy: LossyProxy) -> None:
    with _routed(shared_database, proxy, VARIANTS["2pc-append"]) as (harness, case):
        run = case.run()
        proxy.lose(Loss.DELAY, "PREPARE TRANSACTION")
        shares = [task(run, 0, p, part) for p, part in enumerate(EPOCHS[0])]
        assert len(harness.prepared()) == 2
        run.commit(0, shares)
        proxy.release()
        assert within(10, lambda: len(harness.prepared()) == 1), "the late PREPARE did not arrive"
        run.epoch(1, *EPOCHS[1])
        case.finished(*EPOCHS[0], *EPOCHS[1], when="after a PREPARE that arrived late")


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


def test_a_commit_that_arrives_late_finds_nothing_to_do(
    shared_database: str, proxy: LossyProxy
) -> None:
    with _routed(shared_database, proxy, VARIANTS["2pc-append"]) as (_, case):
        run = case.run()
        shares = run.tasks(0, *EPOCHS[0])
        proxy.lose(Loss.DELAY, "COMMIT PREPARED")
        run.commit(0, shares)
        assert proxy.fired
        proxy.release()
        run.epoch(1, *EPOCHS[1])
        case.finished(*EPOCHS[0], *EPOCHS[1], when="after a COMMIT PREPARED that arrived late")


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
