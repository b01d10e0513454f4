"""Loses each call of a job, by its position, in each way; the target must end up exact and clean.

A job of three epochs and two runs is written once without a fault, which tells its calls. Then it is
written again for each of them, on a target of its own, and that call is dropped, or its reply is, or it
is delayed or doubled. The engine goes on as Spark does: a task is tried again, an epoch that failed is
given up and the job started anew. At last a new run replays the last epoch, another one starts and
sweeps, and the target is looked at: no row missing, none twice, nothing left behind.

Calls are counted one by one, not by their kind: what is wrong with the third put on a condition, and
right with the first, is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from abs_core.errors import AbsError
from abs_core.model import Drained, Share
from abs_core.patience import Patience
from abs_core.testing.calls import Calls, Loss, PositionOpener
from abs_core.testing.case import Case, rows
from abs_core.testing.engine import QUICK, Run
from abs_core.testing.harness import Row

EPOCHS: tuple[tuple[Sequence[Row], ...], ...] = (
    (rows(0, 4), rows(10, 3)),
    # Two old keys again: append has both values, upsert the new one.
    ([*rows(20, 3), *rows(0, 2, "new")],),
    (rows(30, 3),),
)
RESTART = 2
"""Epochs of the first run; the others are a second one's."""

LIVES = 4
"""How often the engine starts a run again that has failed."""

OF_MISSED = 20
"""One of so many positions may not be met: a job's calls differ a little from time to time."""

FEW_MISSED = 2
"""So many may, where few are tried; never all."""

NO_PATIENCE = Patience(seconds=0.0)
"""Of a run that fails at the first call that does."""

_WHAT = {
    Loss.REQUEST: "dropped",
    Loss.REPLY: "whose reply is dropped",
    Loss.DELAY: "delayed until the engine starts again",
    Loss.DOUBLE: "doubled",
}


@dataclass(frozen=True, slots=True)
class Position:
    """One call of the job, and what becomes of it.

    Args:
        number: of the call, from 1.
        name: its kind, and which of its kind it is: ``PutIf #3``.
        late: of one that is delayed: it takes effect after the end of the job, not before the engine
            starts it again.
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
    """What ``check_positions`` did.

    Args:
        calls: of the job without a fault, in order.
        tried: every position that was tried.
        missed: those whose call did not come: a job's calls may differ a little from time to time.
        waited: those where the job could not go on before the delayed call had taken effect.
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
    choose: Callable[[Sequence[Position]], Iterable[Position]] = tuple,
    may_wait: Callable[[Position], bool] = lambda position: False,
    at_once: int = 1,
) -> Tried:
    """Lose every call of the job in every way, each in a job of its own.

    Args:
        opener: opens a harness on an empty target and what carries its calls; ``by_calls`` makes one
            of any harness.
        choose: which of all positions are tried; all of them where not given.
        may_wait: whether a job may stand still until the call that was delayed takes effect: where it
            holds a lock in the target, which the server ends in time.
        at_once: how many jobs run at the same time, each in a thread.

    Raises:
        AssertionError: a row is missing, there twice, something is left behind, or the job does not get
            to its end; one line for each position. Or too many positions were not met.
    """
    calls = without_a_fault(opener)
    chosen = tuple(choose(positions(opener, calls)))
    with ThreadPoolExecutor(at_once) as pool:
        ends = list(pool.map(partial(_try, opener, may_wait), chosen))
    together = list(zip(chosen, ends, strict=True))
    failures = [f"{position}: {end.failure}" for position, end in together if end.failure]
    assert not failures, f"{len(failures)} of {len(chosen)} positions:\n" + "\n".join(failures)
    missed = tuple(position for position, end in together if not end.met)
    enough_met(len(chosen), len(missed), "positions")
    return Tried(
        calls,
        chosen,
        missed,
        tuple(position for position, end in together if end.waited),
    )


def enough_met(chosen: int, missed: int, what: str) -> None:
    """A carrier of faults that meets few of the calls that it was to meet proves nothing.

    Raises:
        AssertionError: too many were not met.
    """
    most = max(chosen // OF_MISSED, min(chosen - 1, FEW_MISSED))
    assert missed <= most, (
        f"{missed} of {chosen} {what} were not met: what was to bring the fault brings none"
    )


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


def without_a_fault(opener: PositionOpener) -> tuple[str, ...]:
    """The calls of the job, in order, where none is lost."""
    with opener() as (harness, calls):
        case = Case(harness)
        try:
            calls.arm(1, None)
            Job(case).live()
            seen = tuple(calls.seen)
            case.run().begin(len(EPOCHS))
            case.finished(expected(case), when="without a fault")
        finally:
            case.close()
    assert seen, "no call of the job went through what was to carry them"
    return seen


@dataclass(frozen=True, slots=True)
class _End:
    failure: str = ""
    met: bool = True
    waited: bool = False


def _try(opener: PositionOpener, may_wait: Callable[[Position], bool], position: Position) -> _End:
    with opener() as (harness, calls):
        case = Case(harness)
        try:
            return _lose(case, calls, position, may_wait=may_wait(position))
        except AssertionError as broken:
            return _End(str(broken))
        except Exception as broken:  # noqa: BLE001 - whatever ends the job is this position's failure
            return _End(f"{type(broken).__name__}: {broken}")
        finally:
            case.close()


def _lose(case: Case, calls: Calls, position: Position, *, may_wait: bool) -> _End:
    """A job that meets the fault; then what is delayed arrives, a replay, and a start that sweeps."""
    held = position.loss is Loss.DELAY
    waited = False
    # One that is to arrive between two runs must fail its run, and not be overtaken within it.
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
    case.holds(expected(case), when="after the job")
    met = calls.fired
    if held and met:
        calls.release()
        case.holds(expected(case), when="after the delayed call took effect")
    last = len(EPOCHS) - 1
    case.run().epoch(last, *EPOCHS[last])
    case.holds(expected(case), when="after a replay of the last epoch")
    case.run().begin(last + 1)  # a start sweeps
    case.finished(expected(case), when="after one more start")
    return _End(met=met, waited=waited)


class Job:
    """The engine: it starts the job, tries tasks again, and gives up an epoch that failed.

    Args:
        patience: of its runs.
    """

    def __init__(self, case: Case, patience: Patience = QUICK) -> None:
        self._case = case
        self._patience = patience
        self._next = 0

    @property
    def done(self) -> bool:
        return self._next == len(EPOCHS)

    def live(self) -> None:
        """Work through the epochs that are not done yet; raises what fails one of them."""
        for end in (RESTART, len(EPOCHS)):
            if self._next >= end:
                continue
            run = self._case.run(patience=self._patience)
            while self._next < end:
                self._epoch(run)

    def _epoch(self, run: Run) -> None:
        epoch = self._next
        try:
            shares = [self._task(run, epoch, *given) for given in enumerate(EPOCHS[epoch])]
            run.commit(epoch, shares)
        except AbsError:
            with suppress(AbsError):  # an engine notes it and ends the run all the same
                run.abort(epoch)
            raise
        self._next += 1

    def _task(self, run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
        """A task; it is tried once more in the same run."""
        try:
            return self._attempt(run, epoch, partition, part)
        except AbsError as error:
            if not error.retryable:
                raise
            return self._attempt(run, epoch, partition, part)

    def _attempt(self, run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
        if run.decided(epoch):
            return Drained(len(part))
        attempt = run.attempt(epoch, partition)
        try:
            return attempt.write(*part).pre_commit()
        except BaseException:
            attempt.writer.abort()
            raise


def expected(case: Case) -> list[Row]:
    """What a reader sees of the whole job."""
    written = [row for parts in EPOCHS for part in parts for row in part]
    return list(dict(written).items()) if case.guarantee.write == "upsert" else written
