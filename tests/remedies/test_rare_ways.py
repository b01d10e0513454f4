"""Rare ways out, each applied as its error says; then the target is audited."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from abs_clients.postgres.pool import close_idle
from abs_clients.s3.objects import Objects
from abs_core.errors import (
    ProtocolError,
    RefusedError,
    RegisterLostError,
)
from abs_core.lookback import EPOCHS
from abs_services import PostgresService, S3Service
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_sinks.s3.testing import FolderHarness, open_folder
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut
from tests.kit.command import abs_
from tests.kit.fake_harness import FakeHarness
from tests.sinks.delta.harness import TableHarness as DeltaHarness

ROWS, MORE, LATER = rows(0, 3), rows(10, 3), rows(20, 2)
SECRET = "a_second_role"


def folder(store: S3Service, prefix: str) -> FolderHarness:
    given = {"endpoint": store.endpoint, "region": store.region, "protocol": "idempotent"}
    harness = open_folder(f"s3://{store.bucket}/{prefix}", given).__enter__()
    assert isinstance(harness, FolderHarness)
    return harness


@pytest.mark.services
def test_a_register_that_was_deleted_is_put_back_for_readers(store: S3Service, prefix: str) -> None:
    """``_unknown``: a reader without the register stops; with it, it sees every row."""
    harness = folder(store, prefix)
    with Case(harness) as case:
        case.run().epoch(0, ROWS, MORE)
        back = harness.saved(JOB)
        key = next(iter(harness._of_registers()))
        Objects(harness.options.bucket).delete([key])
        error = raises(RegisterLostError, harness.committed)
        assert "if its register was deleted, restore the object" in error.remedy
        back()
        case.run().epoch(1, LATER)
        case.finished(ROWS, MORE, LATER, when="after the register was restored")
    harness.close()


@pytest.mark.services
def test_what_another_role_has_prepared_is_ended_by_that_role(
    postgres: PostgresService, database: str
) -> None:
    name = urlsplit(database).path.lstrip("/")
    other = urlsplit(database)._replace(
        netloc=f"second:{SECRET}@{urlsplit(database).netloc.rpartition('@')[2]}"
    )
    with (
        open_table(database, VARIANTS["2pc-append"]) as harness,
        Case(harness) as case,
        psycopg.connect(postgres.admin_url, autocommit=True) as admin,
    ):
        owner = harness.db.execute("select current_user").fetchone()
        assert owner is not None
        admin.execute("drop role if exists second")
        admin.execute(f"create role second login password '{SECRET}'")
        admin.execute(sql.SQL("grant {} to second").format(sql.Identifier(owner[0])))
        try:
            run = case.halted(Cut("commit"), ROWS)
            run.committer.commit(run.state().open[0].committables)
            case.run().epoch(1, MORE)
            left = case.run()
            left.tasks(2, LATER)  # prepared by the job's own role, and undecided
            [gid] = harness.prepared()
            schema = harness.options.stateschema
            words = ["in-doubt", "abort", JOB, "--fence", "--stateschema", schema, "--url"]
            refused = abs_(*words, other.geturl())
            assert refused.exit_code != 0, refused.output
            assert "belongs to role" in str(refused.exception)
            assert harness.prepared() == [gid], "another role has ended it"
            done = abs_(*words, database)
            assert done.exit_code == 0, done.output
            assert harness.prepared() == []
            case.run().epoch(2, LATER)
            case.finished(ROWS, MORE, LATER, when="after its own role has aborted it")
        finally:
            close_idle()
            admin.execute(sql.SQL("revoke {} from second").format(sql.Identifier(owner[0])))
            with psycopg.connect(
                urlsplit(postgres.admin_url)._replace(path=f"/{name}").geturl()
            ) as db:
                db.execute("drop owned by second cascade")
            admin.execute("drop role second")


def test_a_job_with_too_many_epochs_goes_on_under_another_name(tmp_path: Path) -> None:
    with Case(DeltaHarness(str(tmp_path), {})) as case:
        run = case.run()
        run.epoch(EPOCHS - 1, ROWS)
        error = raises(RefusedError, lambda: run.epoch(EPOCHS, MORE))
        assert "another job name" in error.remedy
        assert run.state().last_decided == EPOCHS - 1, "an epoch that can never commit was decided"
        again = case.run("again", lineage="a new checkpoint")
        again.epoch(0, MORE)
        case.run("again", lineage="a new checkpoint").epoch(1, LATER)
        case.holds(ROWS, MORE, LATER, when="after another job went on where this one ends")


def test_a_register_that_goes_back_between_two_steps_of_an_epoch_is_put_back() -> None:
    """``is_known``: tasks have skipped a finished epoch, and the register is restored before."""
    with (
        closing(FakeHarness("2pc", "append", own_register=True)) as harness,
        Case(harness) as case,
    ):
        case.run().epoch(0, ROWS)
        older = case.run().state()
        case.run().epoch(1, MORE)
        newer = case.run().state()
        run = case.run()
        shares = run.tasks(1, MORE)
        commits = case.run(run=run.who.run)
        stored = commits.stored()
        back = replace(older, generation=stored.state.generation, run=run.who.run)
        version = commits.store.compare_and_set(JOB, stored.version, back)
        error = raises(ProtocolError, lambda: commits.commit(1, shares))
        assert "restore the target and the checkpoint" in error.remedy
        assert commits.stored().state == back, "the register was changed"
        assert isinstance(version, str)
        commits.store.compare_and_set(JOB, version, newer)
        case.run().epoch(1, MORE)
        case.run().epoch(2, LATER)
        case.finished(ROWS, MORE, LATER, when="after the newest register was put back")
