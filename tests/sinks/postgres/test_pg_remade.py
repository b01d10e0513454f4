"""A table that is dropped, or renamed, and made again by its name loses no row in silence.

The register is beside it, and does not go back with it. Whatever the moment: a job that goes on has all
rows in the table, or a start says which epochs are gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import repeat

import pytest

from abs_core.errors import (
    AbsError,
    HandleLostError,
    NotPreparedError,
    SchemaError,
    TargetWentBackError,
)
from abs_sinks.postgres import idempotent, relations
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing.case import Case, consent_in, raises, rows
from abs_testing.fault_injection import Fault, Wire
from tests import sample
from tests.planted import planted

pytestmark = pytest.mark.services

EPOCHS = 3
MOMENTS = 16
"""Calls of tasks and commit process in one epoch, about."""

FIRST, SECOND, LAST = rows(0, 3), rows(10, 2), rows(20, 4)


def renamed(harness: TableHarness) -> Callable[[], None]:
    """Makes the table again without dropping it."""

    def swap() -> None:
        harness.end_prepared()
        harness.db.execute(f"alter table {harness.table} rename to {harness.table}_before")
        harness.make()

    return swap


def told_or_there(url: str, name: str, seed: int) -> None:
    """A history of three epochs; the table is made again before a call of one of them."""
    chance = random.Random(f"{name} {seed}")
    at, moment = chance.choice([0, EPOCHS - 1]), chance.randrange(MOMENTS)
    with open_table(url, VARIANTS[name]) as harness, Case(harness) as case:
        wire = Wire(chance.choice([harness.remake, renamed(harness)]))
        wire.planned.extend([*repeat(Fault.NONE, moment), Fault.OVERTAKEN])
        run = case.run()
        for epoch in range(EPOCHS + 1):
            parts = rows(20 * epoch, 3), rows(20 * epoch + 10, 2)
            for _ in range(3):
                try:
                    (case.run(wire=wire) if epoch == at else run).epoch(epoch, *parts)
                    break
                except (HandleLostError, TargetWentBackError):
                    return
                except AbsError:
                    run = case.run()
            else:
                raise AssertionError(
                    f"epoch {epoch} cannot be written, and no error tells of a loss"
                )
            run = case.run()
        written = [
            part for e in range(EPOCHS + 1) for part in (rows(20 * e, 3), rows(20 * e + 10, 2))
        ]
        case.holds(*written, when=f"the table was made again before call {moment} of epoch {at}")


@pytest.mark.parametrize("seed", sample.members(range(40), 1, "tables made again"))
@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_that_is_made_again_at_any_moment_is_told(
    shared_database: str, name: str, seed: int
) -> None:
    told_or_there(shared_database, name, seed)


def of_the_first_epoch(url: str, name: str, *, decided: bool) -> None:
    """Nothing is noted before it."""
    with open_table(url, VARIANTS[name]) as harness, Case(harness) as case:
        run = case.run()
        shares = run.tasks(0, FIRST, SECOND)
        if decided:
            run.commit(0, shares)
            harness.remake()
            raises(TargetWentBackError, lambda: case.run().begin(1))
            return
        harness.remake()
        raises(NotPreparedError, lambda: run.commit(0, shares))
        case.run().epoch(0, FIRST, SECOND)
        case.finished(FIRST, SECOND, when="after a table was made again before the first decision")


@pytest.mark.parametrize("decided", [False, True])
def test_rows_of_the_first_epoch_are_not_lost(shared_database: str, decided: bool) -> None:
    of_the_first_epoch(shared_database, "idempotent-upsert", decided=decided)


def test_tables_that_nobody_compares_are_found(shared_database: str) -> None:
    for decided in (False, True):
        with planted((relations.Present, "others", lambda *_: [])):
            of_the_first_epoch(shared_database, "idempotent-upsert", decided=decided)


def test_tables_that_are_not_noted_are_found(shared_database: str) -> None:
    with planted((idempotent.IdempotentCoCommitter, "shown", lambda *_: [])):
        of_the_first_epoch(shared_database, "idempotent-upsert", decided=True)


@pytest.mark.parametrize("name", ["2pc-append", "wal-append-foreign-register"])
def test_a_copy_that_takes_the_tables_place_goes_on_by_consent(
    shared_database: str, name: str
) -> None:
    """As people do who change a large table: nothing is lost, and a repair would double it."""
    with open_table(shared_database, VARIANTS[name]) as harness, Case(harness) as case:
        case.run().epoch(0, FIRST)
        renamed(harness)()
        harness.db.execute(f"insert into {harness.table} table {harness.table}_before")
        told = raises(TargetWentBackError, lambda: case.run().begin(1))
        assert "there is another table now" in told.what
        assert "If the new one has these rows, as a copy: set the option adopt" in told.what
        case.run(adopt=consent_in(told)).epoch(1, SECOND)
        case.run().epoch(2, LAST)
        case.finished(FIRST, SECOND, LAST, when="after a copy took the table's place")


def test_who_writes_to_a_table_that_was_made_again_looks_at_it_anew(shared_database: str) -> None:
    """The new one may differ in what a plan rests on."""
    with open_table(shared_database, VARIANTS["wal-append"]) as harness, Case(harness) as case:
        run = case.run()
        run.attempt(0).write(*FIRST).pre_commit()
        renamed(harness)()
        raises(SchemaError, lambda: run.attempt(0).write(*FIRST))
        run.epoch(0, SECOND)
        case.finished(SECOND, when="after a table was made again before it was written to")


def test_a_database_whose_tables_are_all_made_again_is_compared_by_its_markers(
    shared_database: str,
) -> None:
    """As by a dump that is restored."""
    variant = VARIANTS["wal-append-foreign-register"]
    with open_table(shared_database, variant) as harness, Case(harness) as case:
        case.run().epoch(0, FIRST)
        again = f"{harness.schema}_again"
        harness.db.execute(f"create schema {again}")
        for name in (f"{harness.schema}.marker", harness.table):
            short = name.rpartition(".")[2]
            harness.db.execute(f"create table {again}.{short} (like {name} including all)")
            harness.db.execute(f"insert into {again}.{short} table {name}")
            harness.db.execute(f"drop table {name}")
        harness.db.execute(f"alter table {again}.{harness.table} set schema public")
        harness.db.execute(f"drop schema {harness.schema} cascade")
        harness.db.execute(f"alter schema {again} rename to {harness.schema}")
        case.run().epoch(1, SECOND)
        case.finished(FIRST, SECOND, when="after a dump was restored")
