"""Under wal with a register elsewhere the epoch's transaction is prepared before the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import psycopg
import pytest

from abs_core.errors import DataError, NotPreparedError, TargetError
from abs_core.registers import MemoryRegister
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing.case import JOB, Case, rows, within
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.fault_injection import Wire
from tests.sinks.postgres.locks import nobody_waits

pytestmark = pytest.mark.services
LEFT, RIGHT = rows(0, 3), rows(10, 3)

T = TypeVar("T")


@pytest.fixture
def unique(shared_database: str) -> Iterator[TableHarness]:
    """A table with a unique id, for append."""
    with open_table(shared_database, VARIANTS["wal-append-foreign-register"]) as harness:
        harness.db.execute(f"create unique index on {harness.table} (id)")
        yield harness


@pytest.fixture
def upserted(shared_database: str) -> Iterator[TableHarness]:
    with open_table(shared_database, VARIANTS["wal-upsert-foreign-register"]) as harness:
        yield harness


class Before(Wire):
    """Does something before the first call of this name."""

    def __init__(self, name: str, what: Callable[[], object]) -> None:
        super().__init__()
        self._name = name
        self._what = what

    def read(self, name: str, call: Callable[[], T]) -> T:
        self._first(name)
        return super().read(name, call)

    def write(self, name: str, call: Callable[[], T]) -> T:
        self._first(name)
        return super().write(name, call)

    def _first(self, name: str) -> None:
        if name == self._name and name not in self.seen:
            self._what()


@pytest.mark.parametrize("call", ["inspect", "compare_and_set", "commit"])
def test_a_conflicting_key_between_compose_and_commit_loses_and_not_the_epoch(
    unique: TableHarness, call: str
) -> None:
    others: list[Future[None]] = []

    def insert() -> None:
        with psycopg.connect(unique.url, autocommit=True) as other:
            other.execute(f"insert into {unique.table} values (1, 'other')")

    def conflict() -> None:
        if unique.prepared():  # the first compare-and-set starts the run
            others.append(threads.submit(insert))
            waiting = (
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
            )
            like = (f"insert into {unique.table} %",)
            assert within(60, lambda: unique.db.execute(waiting, like).fetchone() is not None)

    with ThreadPoolExecutor(1) as threads:
        case = Case(unique)
        run = Run(case.sink(), JOB, store=MemoryRegister(), wire=Before(call, conflict))
        run.epoch(0, LEFT, RIGHT)
        for other in others:
            with pytest.raises(psycopg.errors.UniqueViolation):
                other.result(60)
    assert others or call == "compare_and_set"
    case.finished(LEFT, RIGHT, when="after a conflicting key between compose and commit")
    case.close()


@pytest.mark.parametrize("call", ["inspect", "commit"])
def test_an_alter_between_compose_and_commit_waits_for_the_epoch(
    unique: TableHarness, call: str
) -> None:
    tried: list[str] = []

    def alter() -> None:
        with psycopg.connect(unique.url, autocommit=True) as other:
            other.execute("set lock_timeout = '200ms'")
            tried.append(call)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(f"alter table {unique.table} alter value type int using 1")

    case = Case(unique)
    run = Run(case.sink(), JOB, store=MemoryRegister(), wire=Before(call, alter))
    run.epoch(0, LEFT, RIGHT)
    assert tried == [call]
    case.finished(LEFT, RIGHT, when="after an ALTER between compose and commit")
    case.close()


def test_what_the_table_does_not_take_is_never_decided(unique: TableHarness) -> None:
    unique.db.execute(f"insert into {unique.table} values (1, 'other')")
    case = Case(unique)
    run = case.run()
    with pytest.raises((DataError, TargetError), match="duplicate key"):
        run.epoch(0, LEFT, RIGHT)
    assert run.state().last_decided is None
    unique.db.execute(f"delete from {unique.table}")
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after the other row is gone")
    case.close()


@pytest.mark.parametrize("before", ["compose", "inspect"])
def test_a_crash_before_the_decision_leaves_what_the_next_start_sweeps(
    upserted: TableHarness, before: str
) -> None:
    case = Case(upserted)
    with pytest.raises(Halted):
        case.run(cut=Cut(before)).epoch(0, LEFT, RIGHT)
    assert len(upserted.prepared()) == (before == "inspect")
    case.holds(when="before the decision")
    with nobody_waits(upserted):
        run = case.run()
        run.begin(0)
    assert upserted.leftovers(JOB) == []
    run.epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash before the decision")
    case.close()


def test_a_crash_behind_the_decision_is_rolled_forward_and_its_staging_waited_for_by_nobody(
    upserted: TableHarness,
) -> None:
    case = Case(upserted)
    with pytest.raises(Halted):
        case.run(cut=Cut("commit")).epoch(0, LEFT, RIGHT)
    assert upserted.staged(), "they go with the commit"
    with nobody_waits(upserted):
        run = case.run()
        run.begin(0)
    run.epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash behind the decision")
    case.close()


def test_two_epochs_with_the_same_keys_follow_each_other(upserted: TableHarness) -> None:
    case = Case(upserted)
    run = case.run()
    run.epoch(0, LEFT, RIGHT)
    run.epoch(1, rows(0, 3, "new"))
    with pytest.raises(Halted):
        case.run(cut=Cut("inspect")).epoch(2, rows(0, 3, "newer"))
    case.run().epoch(2, rows(0, 3, "newer"))
    case.finished(rows(0, 3, "newer"), RIGHT, when="after three epochs with the same keys")
    case.close()


def test_composing_again_finds_what_was_prepared(upserted: TableHarness) -> None:
    case = Case(upserted)
    run = case.run()
    given = [s.committable for s in run.tasks(0, LEFT, RIGHT) if s.committable is not None]  # type: ignore[union-attr]
    committer = run.committer
    first, again = committer.compose(given), committer.compose(given)
    assert list(first) == list(again)
    assert upserted.prepared() == [str(first[0].handle)]
    run.sweep()
    assert upserted.prepared(), "of the own generation nothing is swept before its epoch is over"
    case.run().begin(0)
    assert upserted.leftovers(JOB) == []
    with suppress(TargetError), pytest.raises(NotPreparedError):
        committer.compose(given)
    case.close()
