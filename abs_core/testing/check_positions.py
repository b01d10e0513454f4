"""Injects each kind of fault into each single call of a job; the target must be exact and clean.

A job of three epochs and two runs is run once without a fault, to record its calls. Then, for each
call, it is run on a new target, and this call is dropped, loses its reply, is delayed or doubled. The
engine acts as Spark does: it retries a task, abandons a failed epoch and restarts the job. Finally a
new run replays the last epoch, another one starts and sweeps, and no row may be missing or
duplicated, and nothing left behind.

Each call is tried, not each kind of call: this finds a defect of the third conditional put only.
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
"""Epochs of the first run; a second run writes the others."""

LIVES = 4
"""How often the engine restarts a failed run."""

OF_MISSED = 20
"""One in this many positions may be missed, as a job's calls vary a little between runs."""

FEW_MISSED = 2
"""This many may be missed if few are tried; never all."""

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
    choose: Callable[[Sequence[Position]], Iterable[Position]] = tuple,
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
    """Check that enough of the chosen faults were injected.

    Raises:
        AssertionError: too many were missed.
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


def without_a_fault(opener: PositionOpener, *, copies: bool = False) -> tuple[str, ...]:
    """The calls of the job in order, without a fault."""
    with opener() as (harness, calls):
        case = Case(harness)
        try:
            calls.arm(1, None)
            Job(case, copies=copies).live()
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
    """An engine that starts the job, retries tasks, and abandons a failed epoch.

    Args:
        copies: whether each task has a speculative copy, which pre-commits, too, and loses.
    """

    def __init__(self, case: Case, patience: Patience = QUICK, *, copies: bool = False) -> None:
        self._case = case
        self._patience = patience
        self._copies = copies
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
            with suppress(AbsError):  # an engine logs it, and ends the run anyway
                run.abort(epoch)
            raise
        self._next += 1

    def _task(self, run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
        """A task, with one retry in the same run."""
        try:
            if self._copies:
                self._attempt(run, epoch, partition, part)
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
    """The rows that a reader must see in the end."""
    written = [row for parts in EPOCHS for part in parts for row in part]
    return list(dict(written).items()) if case.guarantee.write == "upsert" else written
