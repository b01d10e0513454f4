"""Injects each kind of fault into each single call of a job; the target must be exact and clean.

A job of three epochs and two runs is run once without a fault, to record its calls. Then, for each
call, it is run on a new target, and this call is dropped, loses its reply, is delayed or doubled.
Finally a new run replays the last epoch, another one starts and sweeps, and no row may be missing or
duplicated, and nothing left behind.

Each call is tried, not each kind of call: this finds a defect of the third conditional put only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from abs_core.errors import AbsError
from abs_core.patience import Patience
from abs_core.testing.calls import Calls, Loss, PositionOpener
from abs_core.testing.case import Case
from abs_core.testing.engine import QUICK
from abs_core.testing.job import EPOCHS, LIVES, Job, without_a_fault
from abs_core.testing.trials import Choose, enough_met, try_each

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
        number: of the call, from 1.
        name: its kind and its number within the kind: ``PutIf #3``.
        late: a delayed call takes effect after the end of the job, not before its restart.
    """

    number: int
    name: str
    loss: Loss
    late: bool = False

    def __str__(self) -> str:
        what = "delayed beyond the end of the job" if self.late else _WHAT[self.loss]
        return f"{self.name} {what}"


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of ``check_positions``.

    Args:
        calls: of the job without a fault, in order.
        missed: positions whose call was not made, as a job's calls vary a little between runs.
        waited: positions where the job could not continue before the delayed call took effect.
    """

    calls: tuple[str, ...]
    tried: tuple[Position, ...]
    missed: tuple[Position, ...]
    waited: tuple[Position, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.calls)} calls; {len(self.tried)} positions tried, {len(self.missed)} not "
            f"met, {len(self.waited)} waited for what was delayed"
        )


def check_positions(
    opener: PositionOpener,
    *,
    choose: Choose[Position] = tuple,
    may_wait: Callable[[Position], bool] = lambda position: False,
    at_once: int = 1,
) -> Tried:
    """Inject every fault into every call of the job, each in a job of its own.

    Args:
        opener: opens a harness on an empty target and the carrier of its calls; ``by_calls`` makes one
            from any harness.
        choose: selects the positions to try; default: all.
        may_wait: whether a job may block until the delayed call takes effect, as the call holds a lock
            in the target until the server ends it.
        at_once: number of jobs that run at the same time, each in a thread.

    Raises:
        AssertionError: a row is missing or duplicated, something is left behind, or the job does not
            reach its end; one line for each position. Or too many positions were missed.
    """
    calls = without_a_fault(opener)
    chosen = tuple(choose(positions(opener, calls)))
    ends = try_each(chosen, partial(_try, opener, may_wait), at_once, "positions")
    together = list(zip(chosen, ends, strict=True))
    missed = tuple(position for position, end in together if not end.met)
    enough_met(len(chosen), len(missed), "positions")
    return Tried(calls, chosen, missed, tuple(p for p, end in together if end.waited))


def positions(opener: PositionOpener, calls: Sequence[str]) -> list[Position]:
    """Every position of a job with these calls, by number."""
    found = []
    kinds: Counter[str] = Counter()
    with opener() as (_, carrier):
        for number, name in enumerate(calls, 1):
            kinds[name] += 1
            for loss in carrier.losses(name):
                numbered = f"{name} #{kinds[name]}"
                found.append(Position(number, numbered, loss))
                if loss is Loss.DELAY:
                    found.append(Position(number, numbered, loss, late=True))
    return found


@dataclass(frozen=True, slots=True)
class _End:
    met: bool
    waited: bool


def _try(opener: PositionOpener, may_wait: Callable[[Position], bool], position: Position) -> _End:
    with opener() as (harness, calls), closing(Case(harness)) as case:
        return _lose(case, calls, position, may_wait=may_wait(position))


def _lose(case: Case, calls: Calls, position: Position, *, may_wait: bool) -> _End:
    """Run the job with the fault; then apply a delayed call, replay, and start again to sweep."""
    held = position.loss is Loss.DELAY
    waited = False
    # A call that arrives between two runs must fail its run, not be retried within it.
    early = held and not position.late
    job = Job(case, NO_PATIENCE if early else QUICK)
    calls.arm(position.number, position.loss)
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
    met = calls.fired
    if held and met:
        calls.release()
        case.holds(case.expected(EPOCHS), when="after the delayed call took effect")
    last = len(EPOCHS) - 1
    case.run().epoch(last, *EPOCHS[last])
    case.holds(case.expected(EPOCHS), when="after a replay of the last epoch")
    case.run().begin(last + 1)  # a start sweeps
    case.finished(case.expected(EPOCHS), when="after one more start")
    return _End(met=met, waited=waited)
