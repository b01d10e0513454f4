"""Rules and crashes of the contract on one broker: several at a time, for they mostly wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TypeVar

from abs_core.crash import CrashPoint
from abs_core.errors import AbsError
from abs_testing import (
    ForkServer,
    Killed,
    Opener,
    applicable,
    check_crash_pairs,
    check_crashes,
    run_check,
)
from abs_testing.checks import CHECKS
from abs_testing.engine import Run
from abs_testing.harness import Row
from tests import sample

AT_ONCE = 6

WAYS = (
    "2pc",
    "2pc-foreign-register",
    "2pc-foreign-register-librdkafka",
    "wal",
    "wal-librdkafka",
    "idempotent",
    "idempotent-librdkafka",
)

ALONE = {"in_doubt_is_exactly_the_jobs_own"}
"""Looks at all that the broker has of a job's name, and the rules' jobs share their names."""


T = TypeVar("T")


def keeps_every_rule(opener: Opener) -> int:
    """How many rules the sink is under; it keeps them all.

    Raises:
        AssertionError: a rule is broken; the first line names it.
    """
    checks = applicable(opener)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        together = [check for check in checks if check.rule not in ALONE]
        list(pool.map(lambda check: run_check(opener, check), together))
    for check in checks:
        if check.rule in ALONE:
            run_check(opener, check)
    return len(checks)


def keeps_sampled_rules(opener: Opener, way: str) -> int:
    """How many rules the sink was put to: of ``WAYS`` each rule is dealt to one.

    Where a rule does not apply it waits for another day.

    Raises:
        AssertionError: as ``keeps_every_rule``.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        dealt = sample.hand(CHECKS, WAYS.index(way), len(WAYS), "kafka")
        together = [check for check in dealt if check.rule not in ALONE]
        under = list(pool.map(lambda check: run_check(opener, check), together))
    under += [run_check(opener, check) for check in dealt if check.rule in ALONE]
    return sum(under)


def survives(opener: Opener, points: Iterable[CrashPoint], passages: int = 1000) -> Killed:
    """``check_crashes``, for these points."""
    return _all(lambda point, n: check_crashes(opener, n, passages, [point]), list(points))


def survives_pairs(opener: Opener, pairs: Iterable[tuple[CrashPoint, CrashPoint]]) -> Killed:
    """``check_crash_pairs``."""
    return _all(lambda pair, n: check_crash_pairs(opener, n, [pair]), list(pairs))


def through(start: Callable[[], Run], run: Run, epoch: int, parts: Sequence[Sequence[Row]]) -> Run:
    """Bring the epoch to its end, as an engine does that starts its query again; the last run."""
    for _restart in range(10):
        try:
            run.commit(epoch, run.tasks(epoch, *parts))
        except AbsError as error:
            print(f"epoch {epoch}: {error}")
            run = start()
        else:
            return run
    raise AssertionError(f"ten restarts did not bring epoch {epoch} to its end")


def _all(work: Callable[[T, ForkServer], Killed], items: Sequence[T]) -> Killed:
    free: SimpleQueue[ForkServer] = SimpleQueue()

    def one(item: T) -> Killed:
        fork_server = free.get()
        try:
            return work(item, fork_server)
        finally:
            free.put(fork_server)

    at_once = min(AT_ONCE, len(items))
    with ExitStack() as stack, ThreadPoolExecutor(at_once) as pool:
        for _ in range(at_once):
            free.put(stack.enter_context(ForkServer()))
        killed = sum(pool.map(one, items), Killed(Counter(), 0))
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
    return killed
