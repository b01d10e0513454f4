"""A missing target: created for a job that has committed nothing to it, refused for another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from abs_core.births import rules as births
from abs_core.contracts import Sink, Task
from abs_core.errors import ConfigError, IdentityError
from abs_core.model import JobState, NamedSink
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.postgres import PostgresGroup, PostgresOptions
from abs_testing.case import raises

SCHEMA = pa.schema([("id", pa.int64())])
NEW = JobState("a" * 16, "job", "t0", "lineage", 1, "run1")
DONE = replace(NEW, frontier=4)
SEVERAL = replace(DONE, sinks=(NamedSink(0, "old", "t0", 0), NamedSink(1, "late", "t1", 5)))


@pytest.mark.parametrize(
    ("state", "sink", "refused"),
    [
        (None, "", False),
        (NEW, "", False),
        (DONE, "", True),
        (SEVERAL, "old", True),
        (SEVERAL, "late", False),
        (SEVERAL, "another", False),
    ],
)
def test_a_missing_target_is_created_for_a_job_that_has_committed_nothing_to_it(
    tmp_path: Path, state: JobState | None, sink: str, refused: bool
) -> None:
    path = tmp_path / "table"
    made = DeltaSink(DeltaOptions.parse({"path": str(path), "createtable": "true"}), SCHEMA)
    made.if_missing(checking(state, sink))
    if refused:
        error = raises(IdentityError, lambda: made.target_id)
        assert "has committed up to epoch 4 to t0" in error.what
        raises(IdentityError, lambda: fresh(path, state, sink, "false").preflight("job"))
        assert not path.exists()
    else:
        assert made.target_id.startswith("delta:")
        shutil.rmtree(path)
        raises(ConfigError, lambda: fresh(path, state, sink, "false").target_id)


@pytest.mark.services
def test_a_table_that_vanishes_while_the_job_runs_is_not_created_again_by_a_task(
    shared_database: str,
) -> None:
    given = {"url": shared_database, "dbtable": "vanished", "createtable": "true"}
    options = PostgresOptions.parse({**given, "stateschema": "absvanished"})
    task = Task("a" * 16, "job", 1, 5, 0, "ab", 4)
    with psycopg.connect(shared_database, autocommit=True) as connection:
        writer = PostgresGroup({0: (options, SCHEMA)}).writer(task)
        row = pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA)
        raises(IdentityError, lambda: writer.write(0, row))
        found = connection.execute("select to_regclass('vanished')").fetchone()
    assert found == (None,)


def test_planted_a_sink_that_asks_nobody_creates_a_new_target(tmp_path: Path) -> None:
    path = tmp_path / "table"
    made = DeltaSink(DeltaOptions.parse({"path": str(path), "createtable": "true"}), SCHEMA)
    assert made.target_id.startswith("delta:")
    assert path.exists(), "and what the job has committed is elsewhere"


def checking(state: JobState | None, sink: str) -> Callable[[], None]:
    def check() -> None:
        error = births.missing_target(state, sink)
        if error is not None:
            raise error

    return check


def fresh(path: Path, state: JobState | None, sink: str, create: str) -> Sink:
    found = DeltaSink(DeltaOptions.parse({"path": str(path), "createtable": create}), SCHEMA)
    found.if_missing(checking(state, sink))
    return found
