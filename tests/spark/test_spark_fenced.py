"""A task whose target failed it looks whether a newer run is the reason, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_core.coordinator import Coordinator
from abs_core.errors import FencedError, UnavailableError
from abs_core.patience import Patience
from abs_core.protocol import Identity
from abs_core.testing.fakes import FakeSink, FakeTarget
from abs_spark.run import Run

BROKEN = UnavailableError("The connection broke.")


def _run(sink: FakeSink, run: str) -> tuple[Run, Identity]:
    identity = Identity(job="job", lineage="query", run=run, target=sink.target)
    return Run(identity, sink, Patience(seconds=5.0)), identity


def _start(sink: FakeSink, identity: Identity) -> None:
    Coordinator(identity, sink.register(), sink.committer()).begin(0)


@pytest.fixture
def sink(tmp_path: Path) -> FakeSink:
    return FakeSink(FakeTarget(tmp_path / "target.db"), "2pc", "append")


def test_a_task_that_a_newer_run_cut_off_is_fenced_and_names_what_it_saw(sink: FakeSink) -> None:
    older, identity = _run(sink, "older")
    _start(sink, identity)
    _start(sink, _run(sink, "newer")[1])
    with pytest.raises(FencedError) as fenced:
        older.raise_if_fenced(BROKEN)
    assert fenced.value.__cause__ is BROKEN


def test_a_task_whose_run_still_holds_the_generation_keeps_its_own_error(sink: FakeSink) -> None:
    run, identity = _run(sink, "only")
    _start(sink, identity)
    run.raise_if_fenced(BROKEN)
