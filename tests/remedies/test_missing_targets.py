"""A missing target: created for a job that has committed nothing to it, refused for another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.births import rules as births
from abs_core.contracts import Sink
from abs_core.errors import ConfigError, IdentityError
from abs_core.model import JobState, NamedSink
from abs_sinks.delta import DeltaOptions, DeltaSink
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
