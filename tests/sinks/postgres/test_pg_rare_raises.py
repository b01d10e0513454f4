"""Errors of PostgreSQL's committers, writers and register that no ordinary history meets.

No server is asked: what it would answer is put in its place.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from abs_core.codec import state_to_text
from abs_core.deadletters import MAX_REFUSALS
from abs_core.errors import (
    AbsError,
    ConfigError,
    ContentionError,
    FencedError,
    ProtocolError,
    RefusedError,
    RegisterLostError,
    SchemaError,
)
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_sinks.postgres import (
    PostgresOptions,
    wal,
)
from abs_sinks.postgres.apply import rows_sql
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.idempotent import DEADLOCK_TRIES, IdempotentWriter
from abs_sinks.postgres.letters.refused_rows import StagedRowsRefused
from abs_sinks.postgres.prepared import PreparedTransactions, check_proof_is_here
from abs_testing.case import raises

OPTIONS = PostgresOptions.parse({"url": "postgresql://u@h/d", "dbtable": "t"})
BURYING = PostgresOptions.parse({"url": "postgresql://u@h/d", "dbtable": "t", "deadletter": "dead"})
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
STAGED = Committable(HANDLE, 1, "d")

Patch = pytest.MonkeyPatch


class Refusing:
    """A connection that refuses its first statement, and answers the next one."""

    def __init__(self, error: Exception, answer: tuple[str, ...]) -> None:
        self._errors, self._answer = [error], answer

    def execute(self, *_: object) -> Refusing:
        if self._errors:
            raise self._errors.pop()
        return self

    def fetchone(self) -> tuple[str, ...]:
        return self._answer


def test_a_prepared_transaction_of_another_role_is_told_with_its_role() -> None:
    error = psycopg.errors.InsufficientPrivilege("permission denied (on purpose)")
    transactions = PreparedTransactions(OPTIONS)
    connection: Any = Refusing(error, ("its owner", "somebody"))
    told = raises(RefusedError, lambda: transactions.abort(connection, HANDLE))
    assert "belongs to role its owner; role somebody may not end it" in told.what


def test_rows_that_are_judged_otherwise_each_time_are_not_composed() -> None:
    tries = list[object]()

    class Refused(EpochTransaction):
        def _compose(self, staged: object) -> Committable:
            tries.append(staged)
            raise StagedRowsRefused

    transaction: Any = Refused.__new__(Refused)
    transaction._letters = SimpleNamespace(marked=lambda staged, _: staged)
    raises(ContentionError, lambda: transaction.compose([STAGED], {}))
    assert len(tries) == MAX_REFUSALS


@pytest.fixture
def writer() -> Any:
    writer: Any = IdempotentWriter.__new__(IdempotentWriter)
    writer._options = BURYING
    writer._task = SimpleNamespace(
        job="job", epoch=0, generation=1, register=STATE.register, handle=HANDLE
    )
    writer._register = sql.Identifier("register")
    return writer


@pytest.mark.parametrize("more", [-1, 0])
def test_a_deadlock_is_tried_again_a_bounded_number_of_times(more: int, writer: Any) -> None:
    deadlocks = iter([psycopg.errors.DeadlockDetected("on purpose")] * (DEADLOCK_TRIES + more))
    said = list[object]()

    def execute(query: object) -> str:
        said.append(query)
        if query == "upsert" and (error := next(deadlocks, None)) is not None:
            raise error
        return "done"

    target: Any = SimpleNamespace(plan=SimpleNamespace(added=()))
    with pytest.raises(psycopg.errors.DeadlockDetected) if more == 0 else nullcontext():
        assert writer._execute(SimpleNamespace(execute=execute), "upsert", target) == "done"
    back = "rollback to savepoint staged"
    assert said == [*["upsert", back] * (DEADLOCK_TRIES - 1), "upsert"]


class Answers:
    """A connection that gives these answers, one by one."""

    info = SimpleNamespace(transaction_status=TransactionStatus.IDLE)

    def __init__(self, *rows: tuple[str, ...] | None) -> None:
        self._rows = list(rows)

    def execute(self, _: object) -> Answers:
        return self

    def fetchone(self) -> tuple[str, ...] | None:
        return self._rows.pop(0)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (None, RegisterLostError),
        (replace(STATE, register="0" * 16), RegisterLostError),
        (replace(STATE, register="f" * 16), RegisterLostError),
        (replace(STATE, generation=2), FencedError),
    ],
)
def test_rows_that_were_not_changed_since_the_register_is_not_the_runs_any_more_are_told(
    state: JobState | None, error: type[AbsError], writer: Any
) -> None:
    row = None if state is None else (state_to_text(state),)
    plan = SimpleNamespace(shape_query=lambda: None)
    target: Any = SimpleNamespace(plan=plan, shape="shape")
    right: Any = Answers(("shape",), (state_to_text(STATE),))
    writer._check_may_write(right, target)
    connection: Any = Answers(("shape",), row)
    raises(error, lambda: writer._check_may_write(connection, target))


def test_staged_rows_are_not_committed_by_their_names() -> None:
    raises(ProtocolError, lambda: wal.WalCommitter(OPTIONS).commit([STAGED]))
    assert wal.WalCommitter(OPTIONS).commit([]) == {}


@pytest.mark.parametrize(
    ("wanted", "names", "said"),
    [
        ("c", ("a", "b"), "none such"),
        ("A", ("a", "b"), None),
        ("b", ("a",), "the input does not have"),
    ],
)
def test_a_column_that_an_option_names_must_be_in_table_and_input(
    wanted: str, names: tuple[str, ...], said: str | None
) -> None:
    columns = [SimpleNamespace(name=name) for name in ("a", "b")]
    plan: Any = SimpleNamespace(table=SimpleNamespace(columns=columns, label="t"), names=names)
    if said is None:
        assert rows_sql.resolve_column(plan, wanted, "orderby") == "a"
    else:
        error = raises(SchemaError, lambda: rows_sql.resolve_column(plan, wanted, "orderby"))
        assert said in error.what
        assert ", ".join(names) in (error.remedy or ""), "it names what can be taken"


@pytest.mark.parametrize(
    ("row", "said"), [(("7, x", 3), "(7, x) appears 3 times"), (None, "takes them for the same")]
)
def test_a_key_that_comes_twice_is_told_with_its_value_and_number(
    row: tuple[str, int] | None, said: str
) -> None:
    plan: Any = SimpleNamespace(table=SimpleNamespace(label="t"))
    server: Any = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: row))
    assert said in rows_sql.duplicate_key(server, plan, ("a", "b"), sql.SQL("select 1")).what


def test_a_handle_whose_proof_is_in_another_schema_is_not_taken_for_unknown() -> None:
    elsewhere = replace(STAGED, extra=(("stateschema", "elsewhere"),))
    check_proof_is_here("abs", [elsewhere], {HANDLE: Outcome.PREPARED})
    check = lambda: check_proof_is_here("abs", [elsewhere], {HANDLE: Outcome.UNKNOWN})  # noqa: E731
    assert "the schema elsewhere" in raises(ConfigError, check).what
