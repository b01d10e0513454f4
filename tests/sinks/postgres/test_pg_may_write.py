"""SQL that decides as the protocol says the same: ``protocol.plan``, and ``protocol.sweepable``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import psycopg
import pytest
from psycopg import sql

from abs_core import protocol
from abs_core.codec import state_to_text
from abs_core.contracts import Task
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Write
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.idempotent import may_write
from abs_sinks.postgres.prepared import PreparedTransactions

pytestmark = pytest.mark.services

EPOCHS = range(4)
STATE = JobState("0123456789abcdef", "job", "postgres:1/db/public.t", "lineage", 2, "run")
TASK = Task(STATE.register, STATE.job, STATE.generation, 0, 0, "c0ffee")


def states() -> Iterator[JobState]:
    """Registers of every shape that the rule looks at, sensible or not."""
    decided = [
        Decision(lineage, epoch, 1, ()) for lineage in ("lineage", "older") for epoch in (1, 2)
    ]
    for register, generation, frontier, open_, abandoned in product(
        (STATE.register, "fedcba9876543210"),
        (1, 2, 3),
        (None, 0, 1, 2),
        ((), *((decision,) for decision in decided), (decided[0], decided[3])),
        ((), (1,), (2,), (1, 3)),
    ):
        yield replace(
            STATE,
            register=register,
            generation=generation,
            frontier=frontier,
            open=open_,
            abandoned=abandoned,
        )


def test_sql_and_plan_agree_on_every_register(database: str) -> None:
    table = sql.Identifier("register")
    seen = set()
    with psycopg.connect(database) as db:
        db.execute("create temporary table register (job text, state jsonb)")
        db.execute("insert into register values ('job', '{}')")
        for state in states():
            db.execute("update register set state = %s", (state_to_text(state),))
            for epoch in EPOCHS:
                query = may_write(table, replace(TASK, epoch=epoch))
                asked = db.execute(sql.SQL("{} for share").format(query)).rowcount == 1
                planned = protocol.plan(state, TASK.generation, epoch, gaps_allowed=True)
                may = state.register == TASK.register and isinstance(planned, Write)
                assert asked == may, f"epoch {epoch}: {planned} of {state}"
                seen.add(may)
        assert db.execute(may_write(table, replace(TASK, job="another"))).rowcount == 0
    assert seen == {True, False}


def test_sql_and_sweepable_agree_on_every_register(database: str) -> None:
    options = PostgresOptions.parse({"url": database, "dbtable": "t"})
    prepared = PreparedTransactions(options)
    marked = [
        Committable(HandleName(register, "job", generation, epoch, 0, "c0ffee"), 1, "d")
        for register, generation, epoch in product(
            (STATE.register, "fedcba9876543210"), (1, 2, 3), EPOCHS
        )
    ]
    marks = sql.SQL("; ").join(map(prepared.marking, marked))
    left = sql.SQL("select register, generation, epoch from {}").format(
        options.state.table("marker")
    )
    seen = set()
    with psycopg.connect(database, autocommit=True) as db:
        options.state.ensure(db)
        for state in states():
            own = tuple(c for c in marked if c.handle.register == state.register)
            shares = own[0:2], own[4:6]  # of generations 1 and 2
            opened = [
                replace(decision, committables=share)
                for decision, share in zip(state.open, shares, strict=False)
            ]
            state = replace(state, open=tuple(opened))
            with db.transaction(force_rollback=True):
                db.execute(marks)
                prepared.forget(db, state)
                kept = set(db.execute(left).fetchall())
            for handle in (committable.handle for committable in marked):
                swept = (handle.register, handle.generation, handle.epoch) not in kept
                assert swept == protocol.sweepable(state, state.generation, handle), (
                    f"{handle} of {state}"
                )
                seen.add(swept)
    assert seen == {True, False}
