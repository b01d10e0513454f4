"""A sink that composes: what tasks pre-commit becomes few handles, and those are decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.errors import FencedError, ProtocolError
from abs_core.model import Wrote
from abs_testing import check_sink
from abs_testing.case import JOB, Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import digest_of
from abs_testing.fakes.target import FakeTarget
from tests.core.composing_sink import ComposingCommitter, ComposingSink
from tests.kit.fake_harness import FakeHarness, open_fake

LEFT, RIGHT = rows(0, 3), rows(10, 3)


@contextmanager
def composing(lose: int = 0) -> Iterator[FakeHarness]:
    with open_fake("wal", "append") as harness:
        harness.new_sink = partial(ComposingSink, harness._target, lose)
        yield harness


@pytest.fixture
def case() -> Iterator[Case]:
    with composing() as harness:
        yield Case(harness)


def test_a_composing_sink_keeps_every_rule() -> None:
    assert ComposingCommitter(FakeTarget()).composes
    assert len(check_sink(composing)) > 30


def test_a_decision_names_what_was_composed_and_the_rest_is_swept(case: Case) -> None:
    run = case.run(cut=Cut("commit"))
    shares = run.tasks(0, LEFT, RIGHT)
    with pytest.raises(Halted):
        run.commit(0, shares)
    (decision,) = run.state().open
    (composed,) = decision.committables
    assert composed.rows == 6
    written = [s.committable for s in shares if isinstance(s, Wrote) and s.committable]
    assert composed.handle not in [committable.handle for committable in written]
    assert len(run.committer.in_doubt(JOB)) == 3
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after an epoch that was composed")


def test_what_is_composed_and_not_decided_is_composed_anew_and_swept(case: Case) -> None:
    for cut in (Cut("compose"), Cut("inspect"), Cut("compare_and_set")):
        with pytest.raises(Halted):
            case.run(cut=cut).epoch(0, LEFT, RIGHT)
        case.hides_all(f"after a process that died before {cut.before}")
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after three processes that died before the decision")


def test_what_is_composed_keeps_the_digest_of_its_rows(case: Case) -> None:
    run = case.run(digests=True)
    run.epoch(0, LEFT, RIGHT)
    run.epoch(1, [], [])
    recorded = [recent.fingerprint for recent in run.state().recent]
    assert recorded == [
        digest_of([*LEFT, *RIGHT]).brief.to_text(),
        digest_of([]).to_text(),
    ]


def test_an_epoch_without_rows_composes_nothing(case: Case) -> None:
    run = case.run()
    run.epoch(0, [], [])
    run.epoch(1, LEFT)
    case.finished(LEFT, when="after an epoch without rows")


def test_rows_that_are_lost_in_composing_are_never_decided() -> None:
    with composing(lose=1) as harness:
        case = Case(harness)
        run = case.run()
        with pytest.raises(ProtocolError, match="5 rows, but 6"):
            run.epoch(0, LEFT, RIGHT)
        assert run.state().last_decided is None


def test_a_superseded_run_that_finds_its_segments_swept_is_told_that_it_is_fenced(
    case: Case,
) -> None:
    old = case.run()
    shares = old.tasks(0, LEFT)
    case.run().epoch(0, RIGHT)
    with pytest.raises(FencedError):
        old.commit(0, shares)
