"""Injects each kind of fault into each single call of a job; the target must be exact and clean.

A job of three epochs and two runs is run without a fault, to count its calls by name. Then, for each
call, it is run on a new target, and this call is dropped, loses its reply, is delayed or doubled.
Finally a new run replays the last epoch, another one starts and sweeps, and no row may be missing or
duplicated, and nothing left behind.

Each call is tried, not each kind of call: this finds a defect of the third conditional put only. A
call is found by its name and its number among the calls of this name: where the count of one name
depends on time, the positions of the others do not move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median_low

from abs_core.errors import AbsError
from abs_core.patience import Patience
from abs_testing.calls import Calls, Loss, PositionOpener
from abs_testing.case import Case
from abs_testing.engine import QUICK
from abs_testing.job import EPOCHS, LIVES, TRIES, Choose, Job, enough_met, try_each, without_a_fault

NO_PATIENCE = Patience(seconds=0.0)
"""The patience of a run that does not retry."""

_WHAT = {
    Loss.REQUEST: "dropped",
    Loss.REPLY: "whose reply is dropped",
    Loss.DELAY: "delayed until the engine starts again",
    Loss.DOUBLE: "doubled",
}


@dataclass(frozen=True, slots=True)
class Position:
    """One call of the job, and its fault.

    Args:
        call: the name of the call.
        number: of the call among those of its name, from 1.
        late: a delayed call takes effect after the end of the job, not before its restart.
    """

    call: str
    number: int
    loss: Loss
    late: bool = False

    @property
    def name(self) -> str:
        """The call's name and number: ``PutIf #3``."""
        return f"{self.call} #{self.number}"

    def __str__(self) -> str:
        fate = "delayed beyond the end of the job" if self.late else _WHAT[self.loss]
        return f"{self.name} {fate}"


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of ``check_positions``.

    Args:
        calls: of the job without a fault, in order.
        missed: positions whose call was made in none of ``TRIES`` runs.
        waited: positions where the job could not continue before the delayed call took effect.
        varied: the fewest and the most calls of each name whose count varies between runs without a
            fault; a run that misses its position is one.
    """

    calls: tuple[str, ...]
    tried: tuple[Position, ...]
    missed: tuple[Position, ...]
    waited: tuple[Position, ...]
    varied: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        past = sum(p.number > self.varied.get(p.call, (p.number, 0))[0] for p in self.tried)
        ranges = [f"{name} {low} to {high}" for name, (low, high) in self.varied.items()]
        return (
            f"{len(self.calls)} calls; {len(self.tried)} positions tried: "
            f"{len(self.tried) - past} of calls that each run makes, all met; {past} of calls that "
            f"not each run makes ({', '.join(ranges) or 'none'}), {len(self.missed)} of them not met"
            f"{''.join(f'; {position}' for position in self.missed)}; "
            f"{len(self.waited)} waited for what was delayed"
        )


def check_positions(
    opener: PositionOpener,
    *,
    choose: Choose[Position] = tuple,
    may_wait: Callable[[Position], bool] = lambda position: False,
    at_once: int = 1,
    rehearsals: int = 1,
    varies: Collection[str] | None = None,
) -> Tried:
    """Inject every fault into every call of the job, each in a job of its own.

    Args:
        opener: opens a harness on an empty target and the carrier of its calls; ``by_calls`` makes one
            from any harness.
        choose: selects the positions to try; default: all.
        may_wait: whether a job may block until the delayed call takes effect, as the call holds a lock
            in the target until the server ends it.
        at_once: number of jobs that run at the same time, each in a thread.
        rehearsals: runs without a fault; a name has as many positions as it has calls in the middle
            one of them.
        varies: names of calls whose count depends on time: positions of other names must be met.
            Default: any may vary.

    Raises:
        AssertionError: a row is missing or duplicated, something is left behind, or the job does not
            reach its end; one line for each position. Or too many positions were missed, one whose
            call was made, or one whose call does not depend on time.
    """
    calls = [without_a_fault(opener) for _ in range(rehearsals)]
    chosen = tuple(choose(positions(opener, calls)))
    ends = try_each(chosen, partial(_try, opener, may_wait), at_once, "positions")
    together = list(zip(chosen, ends, strict=True))
    missed = tuple(position for position, end in together if not end.met)
    wrong = [str(p) for p in missed if varies is not None and p.call not in varies]
    assert not wrong, f"calls that do not depend on time were not made: {wrong}"
    enough_met(len(chosen), len(missed), "positions")
    counts = [*map(Counter, calls), *(counts for end in ends for counts in end.without_a_fault)]
    waited = tuple(position for position, end in together if end.waited)
    return Tried(calls[0], chosen, missed, waited, _varied(counts))


def positions(opener: PositionOpener, calls: Sequence[Sequence[str]]) -> list[Position]:
    """Every position of a job, by name and number.

    Args:
        calls: of each rehearsal.
    """
    all_positions = []
    with opener() as (_, carrier):
        for name in dict.fromkeys(name for run in calls for name in run):
            for number in range(1, median_low(run.count(name) for run in calls) + 1):
                for loss in carrier.losses(name):
                    all_positions.append(Position(name, number, loss))
                    if loss is Loss.DELAY:
                        all_positions.append(Position(name, number, loss, late=True))
    return all_positions


def _varied(counts: Sequence[Counter[str]]) -> dict[str, tuple[int, int]]:
    """The fewest and the most calls of each name whose count varies."""
    names = sorted({name for run in counts for name in run})
    bounds = {name: (min(c[name] for c in counts), max(c[name] for c in counts)) for name in names}
    return {name: (low, high) for name, (low, high) in bounds.items() if low < high}


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a position's jobs.

    Args:
        without_a_fault: the calls, by name, of each run that did not meet its position.
    """

    met: bool
    waited: bool
    without_a_fault: tuple[Counter[str], ...]


def _try(opener: PositionOpener, may_wait: Callable[[Position], bool], position: Position) -> _End:
    missed: list[Counter[str]] = []
    while len(missed) < TRIES:
        with opener() as (harness, calls), closing(Case(harness)) as case:
            made, waited = _lose(case, calls, position, may_wait=may_wait(position))
        if made is None:
            return _End(True, waited, tuple(missed))
        missed.append(made)
    return _End(False, False, tuple(missed))


def _lose(
    case: Case, calls: Calls, position: Position, *, may_wait: bool
) -> tuple[Counter[str] | None, bool]:
    """Run the job with the fault; then apply a delayed call, replay, and start again to sweep.

    Returns:
        the job's calls, if it did not meet the fault; and whether it waited.
    """
    held = position.loss is Loss.DELAY
    waited = False
    # A call that arrives between two runs must fail its run, not be retried within it.
    early = held and not position.late
    job = Job(case, NO_PATIENCE if early else QUICK)
    calls.arm(position.number, position.loss, position.call)
    lives = LIVES
    while not job.done:
        try:
            job.live()
        except AbsError as error:
            lives -= 1
            if not error.retryable or (not lives and not (held and may_wait)):
                raise
            if held and calls.fired and (early or not lives):
                calls.release()
                held, waited, lives = False, not lives, LIVES
    case.holds(case.expected(EPOCHS), when="after the job")
    made = Counter(calls.seen)
    if not calls.fired:
        assert made[position.call] < position.number, "the call was made, and met no fault"
        calls.arm(1, None)
        return made, False
    if held:
        calls.release()
        case.holds(case.expected(EPOCHS), when="after the delayed call took effect")
    last = len(EPOCHS) - 1
    case.run().epoch(last, *EPOCHS[last])
    case.holds(case.expected(EPOCHS), when="after a replay of the last epoch")
    case.run().begin(last + 1)  # a start sweeps
    case.finished(case.expected(EPOCHS), when="after one more start")
    return None, waited
