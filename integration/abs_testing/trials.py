"""Tries many faults, each in a job of its own on a target of its own, and tells of all that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E")
Choose = Callable[[Sequence[T]], Iterable[T]]
"""Selects those to try."""

TRIES = 3
"""How often a job is run for a fault: until the call is made, as some calls depend on time."""

OF_MISSED = 20
"""One in this many faults may be missed, as a job's calls vary a little between runs."""

FEW_MISSED = 2
"""This many may be missed if few are tried; never all."""


def try_each(chosen: Sequence[T], attempt: Callable[[T], E], at_once: int, what: str) -> list[E]:
    """What each attempt returns; so many run at the same time, each in a thread.

    Raises:
        AssertionError: attempts failed; one line for each.
    """

    def tried(one: T) -> tuple[str, list[E]]:
        try:
            return "", [attempt(one)]
        except AssertionError as broken:
            return f"{one}: {broken}", []
        except Exception as broken:  # noqa: BLE001 - whatever ends the job is this one's failure
            return f"{one}: {type(broken).__name__}: {broken}", []

    with ThreadPoolExecutor(at_once) as pool:
        ends = list(pool.map(tried, chosen))
    failures = [failure for failure, _ in ends if failure]
    assert not failures, f"{len(failures)} of {len(chosen)} {what}:\n" + "\n".join(failures)
    return [end for _, found in ends for end in found]


def enough_met(chosen: int, missed: int, what: str) -> None:
    """Check that enough of the chosen faults were injected.

    Raises:
        AssertionError: too many were missed.
    """
    most = max(chosen // OF_MISSED, min(chosen - 1, FEW_MISSED))
    assert missed <= most, (
        f"{missed} of {chosen} {what} were not met: what was to bring the fault brings none"
    )
