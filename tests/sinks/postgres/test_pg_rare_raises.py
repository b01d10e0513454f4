"""Errors of PostgreSQL's committers, writers and register that no ordinary history meets.

No server is asked: what it would answer is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from abs_core.codec import state_to_text
from abs_core.contracts import Stored
from abs_core.deadletters import MAX_REFUSALS
from abs_core.errors import (
    AbsError,
    ConfigError,
    ContentionError,
    DataError,
    FencedError,
    MiscountError,
    RefusedError,
    RegisterLostError,
    SchemaError,
    UnavailableError,
)
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_sinks.postgres import (
    PostgresOptions,
    PostgresRegister,
    epoch_transaction,
    idempotent,
    letter_table,
    prepared,
    register,
    wal,
)
from abs_sinks.postgres.apply import message, rows_sql
from abs_sinks.postgres.epoch_transaction import EpochTransaction
from abs_sinks.postgres.idempotent import DEADLOCK_TRIES, IdempotentWriter
from abs_sinks.postgres.letters.refused_rows import StagedRowsRefused
from abs_sinks.postgres.prepared import PreparedTransactions, check_proof_is_here
from abs_sinks.postgres.register import SWAP_TRIES
from abs_testing.case import raises

OPTIONS = PostgresOptions.parse({"url": "postgresql://u@h/d", "dbtable": "t"})
BURYING = PostgresOptions.parse({"url": "postgresql://u@h/d", "dbtable": "t", "deadletter": "dead"})
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
STATE = JobState("0123456789abcdef", "job", "here", "lineage", 1, "run")
STAGED = Committable(HANDLE, 1, "d")

Patch = pytest.MonkeyPatch


def _raising(error: Exception) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def _connected(patch: Patch, module: Any, connection: Any) -> None:
    @contextmanager
    def leased(*_: object, **__: object) -> Iterator[Any]:
        yield connection

    patch.setattr(module, "leased", leased)


def test_a_prepared_transaction_of_another_role_is_told_with_its_role(monkeypatch: Patch) -> None:
    error = psycopg.errors.InsufficientPrivilege("permission denied (on purpose)")
    monkeypatch.setattr(prepared, "end_prepared", _raising(error))
    monkeypatch.setattr(prepared, "_another_roles", lambda *_: RefusedError("another role's"))
    transactions = PreparedTransactions(OPTIONS)
    connection: Any = SimpleNamespace()
    told = raises(RefusedError, lambda: transactions._end(connection, "COMMIT PREPARED {}", HANDLE))
    assert "another role's" in told.what


@pytest.mark.parametrize(
    ("answer", "said"),
    [(UnavailableError("away (on purpose)"), "does not answer now"), (None, "does not have it")],
)
def test_a_prepare_of_unknown_outcome_is_told_by_what_the_server_says_then(
    answer: AbsError | None, said: str, monkeypatch: Patch
) -> None:
    _connected(monkeypatch, prepared, SimpleNamespace())
    existing = (lambda *_: []) if answer is None else _raising(answer)
    monkeypatch.setattr(PreparedTransactions, "existing", existing)
    common = replace(OPTIONS.common, patience=0.0)
    lost = psycopg.OperationalError("the connection broke (on purpose)")
    looks = lambda: prepared._look_for_it(replace(OPTIONS, common=common), HANDLE, lost)  # noqa: E731
    assert said in raises(UnavailableError, looks).what


def test_rows_that_are_judged_otherwise_each_time_are_not_composed(monkeypatch: Patch) -> None:
    transaction: Any = EpochTransaction.__new__(EpochTransaction)
    tries = list[object]()

    def compose(staged: object) -> None:
        tries.append(staged)
        raise StagedRowsRefused

    monkeypatch.setattr(transaction, "_compose", compose)
    transaction._letters = SimpleNamespace(marked=lambda staged, _: staged)
    raises(ContentionError, lambda: transaction.compose([STAGED], {}))
    assert len(tries) == MAX_REFUSALS


def test_a_decision_of_an_older_version_that_the_server_refuses_is_not_judged_again(
    monkeypatch: Patch,
) -> None:
    @contextmanager
    def leased(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace()

    def refuse(*_: object) -> None:
        raise StagedRowsRefused from RefusedError("a constraint")

    transaction: Any = EpochTransaction.__new__(EpochTransaction)
    transaction._options, transaction._state = OPTIONS, SimpleNamespace(ensure=lambda _: None)
    transaction._staging = SimpleNamespace(existing=lambda _, handles: {*handles})
    transaction._prepared = SimpleNamespace(marking=lambda _: sql.SQL("mark"))
    monkeypatch.setattr(epoch_transaction, "leased", leased)
    monkeypatch.setattr(transaction, "_begin", refuse)
    error = raises(RefusedError, lambda: transaction.apply_with_markers([STAGED]))
    assert error.what == "a constraint"


def test_dead_letters_that_are_missing_are_not_left_out(monkeypatch: Patch) -> None:
    transaction: Any = EpochTransaction.__new__(EpochTransaction)
    said = list[str]()

    def execute(query: object) -> Any:
        said.append(str(query))
        return SimpleNamespace(rowcount=1)

    table = SimpleNamespace(options=OPTIONS, label="t")
    plan = SimpleNamespace(table=table)
    part = SimpleNamespace(dead={HANDLE: 2}, table=table, staged=[STAGED])
    transaction._staging = SimpleNamespace(table=lambda _: "staging")
    monkeypatch.setattr(letter_table, "moving", lambda *_: "move them")
    connection: Any = SimpleNamespace(execute=execute)
    target: Any = SimpleNamespace(plan=plan, table=table)
    error = raises(MiscountError, lambda: transaction._bury(connection, part, target))
    assert "2 dead letters were counted, and the target holds 0 and 1" in error.what
    assert (error.job, error.epoch) == ("job", 0)
    assert said[-1] == "ROLLBACK", "nothing may be changed"


@pytest.fixture
def writer() -> Any:
    writer: Any = IdempotentWriter.__new__(IdempotentWriter)
    writer._options = BURYING
    writer._task = SimpleNamespace(
        job="job", epoch=0, generation=1, register=STATE.register, handle=HANDLE
    )
    writer._register = sql.Identifier("register")
    return writer


BY_DATA = psycopg.errors.NumericValueOutOfRange
OTHERWISE = psycopg.errors.LockNotAvailable


@pytest.mark.parametrize(
    ("options", "refused", "error"),
    [
        (BURYING, BY_DATA, ContentionError),
        (BURYING, OTHERWISE, OTHERWISE),
        (OPTIONS, BY_DATA, BY_DATA),
    ],
)
@pytest.mark.parametrize("picks", [False, True])
def test_only_rows_refused_for_what_they_hold_are_judged_and_so_often_at_most(
    picks: bool,
    options: PostgresOptions,
    refused: type[psycopg.Error],
    error: type[Exception],
    writer: Any,
    monkeypatch: Patch,
) -> None:
    judged = list[object]()
    writer._options = options
    monkeypatch.setattr(writer, "_execute", _raising(refused("on purpose")))
    monkeypatch.setattr(writer, "_mark_refused", lambda *given: judged.append(given))
    with pytest.raises(error):
        writer._apply(SimpleNamespace(), _target(writer, monkeypatch, picks=picks))
    assert len(judged) == (MAX_REFUSALS if error is ContentionError else 0)


def _target(writer: Any, monkeypatch: Patch, *, picks: bool) -> Any:
    """A target whose statements are empty, and whose rows have a problem."""
    nothing = lambda *_: sql.SQL("")  # noqa: E731
    for name in ("union_of", "may_write", "_staged"):
        monkeypatch.setattr(idempotent, name, nothing)
    monkeypatch.setattr(writer, "_keeping", lambda *_: [])
    write = SimpleNamespace(
        picks=picks,
        picking=lambda _: None,
        apply_if=lambda *_: [sql.SQL("")] * 2,
        lock=list,
        error_of=lambda _: DataError("a problem (on purpose)"),
    )
    plan = SimpleNamespace(shape_query=nothing)
    return SimpleNamespace(plan=plan, write=write, key=(), shape="")


@pytest.mark.parametrize("more", [-1, 0])
def test_a_deadlock_is_tried_again_a_bounded_number_of_times(
    more: int, writer: Any, monkeypatch: Patch
) -> None:
    deadlocks = iter([psycopg.errors.DeadlockDetected("on purpose")] * (DEADLOCK_TRIES + more))
    said = list[object]()

    def execute(query: object) -> str:
        said.append(query)
        if query == "upsert" and (error := next(deadlocks, None)) is not None:
            raise error
        return "done"

    monkeypatch.setattr(idempotent, "noticing_changes", lambda *_: nullcontext())
    with pytest.raises(psycopg.errors.DeadlockDetected) if more == 0 else nullcontext():
        assert writer._execute(SimpleNamespace(execute=execute), "upsert", None) == "done"
    back = "rollback to savepoint staged"
    assert said == [*["upsert", back] * (DEADLOCK_TRIES - 1), "upsert"]


@pytest.mark.parametrize(
    ("ended", "tries"), [((1, 1, 1), SWAP_TRIES), ((1, 0), 2), ((0,), 1)], ids=str
)
def test_a_blocked_register_is_tried_again_while_superseded_sessions_are_ended(
    ended: Sequence[int], tries: int, monkeypatch: Patch
) -> None:
    sessions, swaps = iter(ended), list[int]()

    def swap() -> str:
        swaps.append(1)
        raise ContentionError("on purpose", remedy="none.")

    monkeypatch.setattr(register, "terminate_older", lambda *_: next(sessions))
    raises(ContentionError, lambda: register.persistently(OPTIONS, STATE, swap))
    assert len(swaps) == tries


@pytest.mark.parametrize(("dead", "error"), [(False, DataError), (True, ContentionError)])
def test_changes_with_a_problem_are_told_or_judged_as_often_as_may_be(
    dead: bool, error: type[AbsError], writer: Any, monkeypatch: Patch
) -> None:
    results = [SimpleNamespace(affected=0, row=("problem",))] * 5
    monkeypatch.setattr(message, "results_of", lambda _: results)
    judged = list[object]()
    writer._options = BURYING if dead else OPTIONS
    monkeypatch.setattr(writer, "_execute", lambda *_: [])
    monkeypatch.setattr(writer, "_mark_refused", lambda *given: judged.append(given))
    target = _target(writer, monkeypatch, picks=True)
    raises(error, lambda: writer._apply(SimpleNamespace(), target))
    assert len(judged) == (MAX_REFUSALS if dead else 0)


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


@pytest.mark.parametrize("call", ["inspect", "commit"])
def test_a_command_without_the_inputs_columns_applies_nothing(call: str) -> None:
    committer = wal.WalWithoutColumns.__new__(wal.WalWithoutColumns)
    error = raises(ConfigError, lambda: getattr(committer, call)([STAGED]))
    assert "columns" in error.what


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


@pytest.mark.parametrize(
    "error", [psycopg.errors.UntranslatableCharacter, psycopg.errors.FeatureNotSupported]
)
def test_a_path_that_the_databases_encoding_lacks_is_named(
    error: type[psycopg.Error], monkeypatch: Patch
) -> None:
    info = SimpleNamespace(parameter_status=lambda _: "SQL_ASCII")
    broken = SimpleNamespace(execute=_raising(error("on purpose")), info=info)
    _connected(monkeypatch, register, broken)
    store: Any = PostgresRegister(OPTIONS)
    store._schema = SimpleNamespace(ensure=lambda _: None, table=lambda _: sql.Identifier("r"))
    state = replace(STATE, checkpoint="/päth")
    told = raises(RefusedError, lambda: store.compare_and_set("job", None, state))
    assert "encoding (SQL_ASCII)" in told.what
    assert "/päth" in told.what


def test_a_register_that_changes_while_it_is_retired_stays(monkeypatch: Patch) -> None:
    _connected(
        monkeypatch, register, SimpleNamespace(execute=lambda _: SimpleNamespace(rowcount=0))
    )
    monkeypatch.setattr(PostgresRegister, "load", lambda *_: Stored(STATE, "7"))
    error = raises(ContentionError, lambda: PostgresRegister(OPTIONS).retire("job"))
    assert "changed in the meantime" in error.what
