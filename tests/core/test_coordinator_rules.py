"""What the coordinator does where a sink, a register or an engine misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    FencedError,
    HandleLostError,
    NotPreparedError,
    ProtocolError,
    RegisterLostError,
    ReplayMismatchError,
    UnavailableError,
)
from abs_core.events import (
    Abandoned,
    Committed,
    Decided,
    Event,
    RolledForward,
    Skipped,
    Started,
    Swept,
)
from abs_core.model import (
    Committable,
    Drained,
    HandleName,
    Inspection,
    JobState,
    Outcome,
    Share,
)
from abs_core.patience import Patience
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import QUICK, Run, digest_of
from abs_testing.fakes.sink import HandleCommitter
from tests.kit.fake_harness import FakeHarness

LEFT, RIGHT = rows(0, 2), rows(10, 2)


@pytest.fixture
def case() -> Iterator[Case]:
    case = Case(FakeHarness("2pc", "append"))
    yield case
    case.close()


def observed(run: Run) -> list[Event]:
    """What the run reports from now on."""
    events: list[Event] = []
    run._tasks = run.coordinator = Coordinator(
        run.who, run.store, run.committer, patience=QUICK, observe=events.append
    )
    return events


def test_a_handle_that_commit_does_not_answer_for_is_lost(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = HandleCommitter.commit

    def forgetful(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Outcome]:
        return dict(list(right(self, committables).items())[1:])

    monkeypatch.setattr(HandleCommitter, "commit", forgetful)
    run = case.run()
    error = raises(HandleLostError, lambda: run.epoch(0, LEFT, RIGHT))
    assert "1 of 2 handles" in error.what
    assert run.state().open, "a decision was dropped that is not proven committed"


def test_a_handle_that_inspect_does_not_answer_for_decides_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        return {}

    monkeypatch.setattr(HandleCommitter, "inspect", blind)
    run = case.run()
    raises(NotPreparedError, lambda: run.epoch(0, LEFT))
    assert run.state().last_decided is None


def test_a_handle_with_too_little_time_left_is_not_decided(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Inspection]:
        return {c.handle: Inspection(Outcome.PREPARED, 29.0) for c in committables}

    monkeypatch.setattr(HandleCommitter, "inspect", late)
    error = raises(NotPreparedError, lambda: case.run().epoch(0, LEFT))
    assert "29 s left" in error.what


def test_a_handle_that_stays_prepared_is_committed_again_not_called_lost(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = HandleCommitter.commit, []

    def lazy(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Outcome]:
        calls.append(committables)
        if len(calls) == 1:
            return {c.handle: Outcome.PREPARED for c in committables}
        return right(self, committables)

    monkeypatch.setattr(HandleCommitter, "commit", lazy)
    case.run().epoch(0, LEFT)
    assert len(calls) == 2
    case.finished(LEFT, when="after a commit that did nothing at first")


def test_a_trusted_replay_is_taken_for_the_same_epoch(case: Case) -> None:
    case.run(digests=True).epoch(0, LEFT)
    again = case.run(digests=True)
    shares = again.tasks(0, RIGHT)
    raises(ReplayMismatchError, lambda: again.coordinator.commit(Report(0, shares, None)))
    again.coordinator.commit(Report(0, shares, None, trusted=True))
    case.finished(LEFT, when="after a replay that was trusted")


def test_a_digest_that_one_task_did_not_make_is_none(case: Case) -> None:
    run = case.run(digests=True)
    shares = [run.task(0, 0, LEFT), run.task(0, 1, RIGHT)]
    assert Report(0, shares, None).digest == digest_of([*LEFT, *RIGHT])
    assert Report(0, [*shares, Drained(1)], None).digest is None


def test_a_refused_replay_still_rolls_forward_what_is_decided(case: Case) -> None:
    halted = case.run(cut=Cut("commit", handles=1))
    raises(Halted, lambda: halted.epoch(0, LEFT, RIGHT))
    raises(ReplayMismatchError, lambda: case.run().epoch(0, LEFT))
    case.holds(LEFT, RIGHT, when="after a replay that was refused")


def test_a_coordinator_that_is_fenced_after_its_decision_does_not_sweep(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = case.run(), case.run()
    shares = old.tasks(0, LEFT)
    written: list[Share] = []

    def overtaken(self: HandleCommitter, state: JobState) -> None:
        monkeypatch.undo()
        # A loser and a winner of the next epoch, by the run that has just taken over.
        new.task(1, 0, RIGHT)
        written.append(new.task(1, 0, RIGHT))

    monkeypatch.setattr(HandleCommitter, "forget", overtaken)
    events = observed(old)
    old.commit(0, shares)
    assert [type(event) for event in events] == [Decided, Committed]
    new.commit(1, written)
    case.finished(LEFT, RIGHT, when="after a coordinator was overtaken while it tidied")


def test_a_run_that_never_started_aborts_nothing(case: Case) -> None:
    case.run().abort(0)
    case.run().epoch(0, LEFT)
    case.run().abort(1)
    case.finished(LEFT, when="after aborts by runs that never started")


def test_a_register_that_vanished_is_an_error(case: Case) -> None:
    run = case.run(store=(store := _Vanishing(case.sink().register())))
    shares = run.tasks(0, LEFT)
    store.gone = True
    error = raises(RegisterLostError, lambda: run.commit(0, shares))
    assert "is missing while the job is running" in error.what
    assert "looked for at" in error.what


def test_an_epoch_after_one_that_this_process_has_committed_takes_no_look(case: Case) -> None:
    run = case.run(store=(store := _Vanishing(case.sink().register())))
    run.epoch(0, LEFT)
    shares = run.tasks(1, RIGHT)
    before = store.loads
    run.commit(1, shares)
    assert store.loads == before
    case.finished(LEFT, RIGHT, when="after an epoch that was decided on what was seen last")


def test_what_was_seen_last_decides_nothing_after_another_run_has_started(case: Case) -> None:
    old = case.run()
    old.epoch(0, LEFT)
    shares = old.tasks(1, RIGHT)
    new = case.run()
    new.begin(1)
    raises(FencedError, lambda: old.commit(1, shares))
    assert new.state().last_decided == 0
    new.epoch(1, RIGHT)
    case.finished(LEFT, RIGHT, when="after a zombie went by what it had seen last")


def test_a_share_that_was_drained_for_an_undecided_epoch_is_an_error(case: Case) -> None:
    run = case.run()
    run.begin(0)
    error = raises(ProtocolError, lambda: run.commit(0, [Drained(3)]))
    assert "does not hold it as committed" in error.what
    case.finished(when="after a share that must not have been drained")


def test_a_target_that_stays_away_is_given_up_in_time(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT)
    coordinator = Coordinator(
        run.who, _Away(), run.committer, patience=Patience(seconds=0.05, first_pause=0.01)
    )
    raises(UnavailableError, lambda: coordinator.commit(Report(0, shares, None)))
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after the register came back")


def test_a_commit_may_leave_out_epochs_where_the_engine_says_so(case: Case) -> None:
    run = case.run(gaps=True)
    run.epoch(0, LEFT)
    run.epoch(5, [])
    assert run.state().frontier == 5


def test_progress_is_told(case: Case) -> None:
    first = case.run()
    events = observed(first)
    first.epoch(0, LEFT, RIGHT)
    assert events[0] == Started(JOB, 1, minted=True)
    decided, committed = events[1:3]
    assert isinstance(decided, Decided)
    assert (decided.epoch, decided.generation, len(decided.handles)) == (0, 1, 2)
    assert isinstance(committed, Committed)
    assert (committed.epoch, committed.rows, committed.handles) == (0, 4, 2)
    halted = case.run(cut=Cut("commit"))
    raises(Halted, lambda: halted.epoch(1, rows(20, 1)))
    last = case.run()
    events = observed(last)
    last.epoch(1, rows(20, 1))
    last.tasks(2, rows(30, 1))
    last.abort(2)
    last.abort(2)
    kinds = [type(event) for event in events]
    assert kinds == [Started, RolledForward, Skipped, Abandoned, Swept, Abandoned]
    assert events[0] == Started(JOB, 3, minted=False)


@pytest.mark.parametrize("earlier", [0, 1])
def test_of_two_tasks_that_start_a_run_only_the_first_tells(case: Case, earlier: int) -> None:
    for _ in range(earlier):
        case.run().epoch(0, LEFT)
    first = case.run()
    events = observed(first)
    late: list[Event] = []
    store = _Overtaken(first.store, overtake=lambda: first.begin(0))
    second = Coordinator(first.who, store, first.committer, patience=QUICK, observe=late.append)
    state, _ = second.begin(0)
    assert events == [Started(JOB, 1 + earlier, minted=not earlier)]
    assert late == []
    assert state == first.state()


class _Overtaken(RegisterStore):
    """Another task of the run starts the job after the first look, before the compare-and-set."""

    def __init__(self, store: RegisterStore, overtake: Callable[[], object]) -> None:
        self._store = store
        self._overtake: Callable[[], object] | None = overtake

    def load(self, job: str) -> Stored | None:
        seen = self._store.load(job)
        if self._overtake is not None:
            overtake, self._overtake = self._overtake, None
            overtake()
        return seen

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        return self._store.compare_and_set(job, expected, state, deadline)


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_zombie_is_told_that_it_is_fenced_and_not_that_its_rows_are_gone(protocol: str) -> None:
    case = Case(FakeHarness(protocol, "append"))
    old = case.run()
    shares = old.tasks(0, LEFT)
    case.run().begin(0)
    raises(FencedError, lambda: old.commit(0, shares))


class _Vanishing(RegisterStore):
    """A register that somebody deletes; it counts the looks at it."""

    def __init__(self, store: RegisterStore) -> None:
        self.store = store
        self.gone = False
        self.loads = 0

    def load(self, job: str) -> Stored | None:
        self.loads += 1
        return None if self.gone else self.store.load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        if self.gone and expected is not None:
            return Conflict()
        return self.store.compare_and_set(job, expected, state, deadline)


class _Away(RegisterStore):
    """A register that never answers."""

    def load(self, job: str) -> Stored | None:
        raise UnavailableError("no answer")

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        raise UnavailableError("no answer")
