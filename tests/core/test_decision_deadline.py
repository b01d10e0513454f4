"""A decision is made in time for its handles to be committed, or the epoch is written again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from abs_core.contracts import Committer, Conflict, RegisterStore, Stored, Version
from abs_core.coordinator import Coordinator, Report, _decider
from abs_core.coordinator.permission import Permission
from abs_core.errors import HandleLostError, NotPreparedError, UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.patience import Patience
from abs_core.registers import MemoryRegister
from abs_testing.case import JOB, Case, raises, rows
from tests.kit.fake_harness import FakeHarness
from tests.planted import planted

ROWS = rows(0, 3)
PATIENCE = Patience(seconds=100.0, request=10.0, first_pause=1e-6)
"""To be decided, a handle must have 120 s left; a decision must be in place when it has 110 s left."""


@dataclass
class Clock:
    """Time passes in calls, and while the clock is looked at."""

    now: float = 0.0
    tick: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Expiring(Committer):
    """A committer whose target aborts handles on its own, at ``ends``.

    Args:
        takes: seconds that the request of an inspection takes, and so many its answer.
        commits: seconds until a commit takes effect.
    """

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        ends: float,
        takes: float = 0.0,
        commits: float = 0.0,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self.ends = ends
        self._takes, self._commits = takes, commits
        self.looks = 0

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        self.looks += 1
        self._clock.now += self._takes
        self._expire(committables)
        left = max(0.0, self.ends - self._clock.now)
        answer = {
            handle: Inspection(found.outcome, left)
            for handle, found in self._committer.inspect(committables).items()
        }
        self._clock.now += self._takes
        return answer

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        self._clock.now += self._commits
        self._expire(committables)
        return self._committer.commit(committables)

    def abort(self, handles: Sequence[HandleName]) -> None:
        self._committer.abort(handles)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return self._committer.in_doubt(job)

    def forget(self, state: JobState) -> None:
        self._committer.forget(state)

    def _expire(self, committables: Sequence[Committable]) -> None:
        if self._clock.now >= self.ends:
            self._committer.abort([c.handle for c in committables])


@dataclass(frozen=True)
class Fate:
    """What becomes of one compare-and-set.

    Args:
        stall: seconds until the caller knows, or gives up.
        lands: whether it takes effect at once; or just before the next look; or before the next
            change; or after that one; or never. Only the first is told to the caller.
        kills: whether the target's transactions do not outlive it.
    """

    lands: str
    stall: float = 0.0
    kills: bool = False


@dataclass
class Stalling(RegisterStore):
    """A register whose first changes meet these fates; later ones take effect at once."""

    store: RegisterStore
    clock: Clock
    fates: list[Fate]
    kill: Callable[[], None] = lambda: None
    late: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def load(self, job: str) -> Stored | None:
        self._land("before look")
        return self.store.load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self._land("before look", "before change")
        fate = self.fates.pop(0) if self.fates else Fate("now")
        self.clock.now += fate.stall
        if fate.kills:
            self.kill()

        def change() -> Version | Conflict:
            return self.store.compare_and_set(job, expected, state)

        if fate.lands == "now":
            answer = change()
            self._land("after change")
            return answer
        if fate.lands == "unheard":
            change()
        else:
            self.late.append((fate.lands, change))
        raise UnavailableError("No answer.")

    def settle(self) -> None:
        """What is on its way arrives."""
        self._land("before look", "before change", "after change")

    def _land(self, *kinds: str) -> None:
        due = [change for kind, change in self.late if kind in kinds]
        self.late = [one for one in self.late if one[0] not in kinds]
        for change in due:
            change()


class World:
    """An epoch that is written, by a run whose register and target misbehave; then a second run."""

    def __init__(self, left: float, fates: Sequence[Fate], takes: float = 0.0) -> None:
        self.case = Case(FakeHarness("2pc", "append"))
        self.clock = Clock(tick=takes)
        self.register = MemoryRegister()
        self.run = self.case.run(store=self.register)
        self.shares = self.run.tasks(0, ROWS)
        commits = PATIENCE.seconds if takes else 0.0
        self.committer = Expiring(self.run.committer, self.clock, left, takes, commits)
        self.store = Stalling(self.register, self.clock, list(fates), self._kill)

    def commit(self) -> None:
        Coordinator(
            self.run.who,
            self.store,
            self.committer,
            patience=PATIENCE,
            co_commit=False,
            clock=self.clock,
        ).commit(Report(0, self.shares, None))

    def check(self) -> None:
        """The first run commits the epoch, or a second one writes it, long after."""
        try:
            self.commit()
        except NotPreparedError:
            self.store.settle()
            self.clock.now += 1000.0
            second = self.case.run(store=self.register)
            committer = Expiring(second.committer, self.clock, self.committer.ends)
            # What the first has decided is rolled forward, by a target that has timed it out.
            Coordinator(second.who, self.register, committer, co_commit=False).begin(0)
            if self._is_open():
                Coordinator(second.who, self.register, committer, co_commit=False).roll_forward()
            second.epoch(0, ROWS)
        self.case.finished(ROWS, when="at the end")

    def _is_open(self) -> bool:
        stored = self.register.load(JOB)
        return stored is not None and bool(stored.state.open)

    def _kill(self) -> None:
        self.committer.ends = self.clock.now

    def close(self) -> None:
        self.case.close()


LEFT = (125.0, 128.0, 132.0, 150.0, 250.0, 600.0)
TAKES = (0.0, 4.0)
"""Where inspections take time, the commit takes all of its own, and no request takes too long."""
FATES = (
    Fate("now"),
    Fate("now", 9.0),
    Fate("unheard", 9.0),
    Fate("unheard", 90.0),
    Fate("never", 1.0),
    Fate("never", 40.0),
    Fate("never", 90.0),
    Fate("never", 1.0, kills=True),
    Fate("before look", 90.0),
    Fate("before change", 40.0),
    Fate("before change", 90.0),
    Fate("after change", 40.0),
    Fate("after change", 90.0),
)


def worlds() -> Iterator[World]:
    """Left out is what no rule can help: a decision arrives late, and then there is a second outage."""
    for left, first, second, takes in itertools.product(LEFT, FATES, FATES, TAKES):
        if first.lands == "before change" and (second.stall > 10.0 or second.kills):
            continue
        if takes and max(first.stall, second.stall) > PATIENCE.request:
            continue
        world = World(left, [first, second], takes)
        try:
            yield world
        finally:
            world.close()


def check_all() -> None:
    for world in worlds():
        world.check()


def test_whatever_becomes_of_a_decision_the_epoch_is_there_once() -> None:
    check_all()


class _NoDeadline(Permission):
    """As it was: what was inspected once may be decided for as long as patience lasts."""

    def ask(self) -> float | None:
        return None


class _NoSecondLook(Permission):
    """Rests on the time alone: what the target has ended before its time is not seen."""

    def inspect(self) -> None:
        if self.tries < 2:
            super().inspect()


class _NoAbandoning(Permission):
    """Acts as if nothing had been sent when it is refused."""

    def ask(self) -> float | None:
        try:
            return super().ask()
        except NotPreparedError:
            self.tries = 1
            raise


class _CountsFromTheAnswer(Permission):
    """Takes the time that was left at some moment before for the time left now."""

    def inspect(self) -> None:
        before = self._clock()
        super().inspect()
        if self._deadline is not None:
            self._deadline += self._clock() - before


@pytest.mark.parametrize("bug", [_NoDeadline, _NoSecondLook, _NoAbandoning, _CountsFromTheAnswer])
def test_planted_bugs_lose_an_epoch(bug: type[Permission]) -> None:
    with planted((_decider, "Permission", bug), by=HandleLostError):
        check_all()


@pytest.fixture
def stalled() -> Iterator[World]:
    """A register that stands still for 40 s under the decision; 130 s are left before."""
    world = World(130.0, [Fate("never", 40.0)])
    yield world
    world.close()


def test_an_epoch_that_cannot_be_decided_in_time_is_abandoned_and_written_again(
    stalled: World,
) -> None:
    error = raises(NotPreparedError, stalled.commit)
    assert "with 90 s left" in error.what
    assert "written again" in error.remedy
    state = stalled.run.state()
    assert state.open == ()
    assert state.abandoned == (0,), "a decision that comes late would still take effect"


def test_before_a_further_try_the_handles_are_inspected_again() -> None:
    world = World(600.0, [Fate("never", 40.0), Fate("never", 40.0)])
    world.commit()
    assert world.committer.looks == 3
    world.case.finished(ROWS, when="after two tries in vain")
    world.close()


def test_a_decision_that_lands_before_the_epoch_is_abandoned_stands() -> None:
    world = World(130.0, [Fate("before change", 40.0)])
    world.commit()
    world.case.finished(ROWS, when="after a decision that came late")
    world.close()
