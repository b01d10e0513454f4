"""Asking several systems for the same thing: in turn, or side by side.

Whichever way, all are asked, all have answered when it returns, and answers and errors come in the
order of the systems: what happens next does not depend on which of them was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Protocol, TypeVar

from abs_core.errors import AbsError

T = TypeVar("T")


class Asking(Protocol):
    """How several systems are asked; each call goes to one of them."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
        """What each call has returned or raised, in their order."""
        ...


def in_turn(calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
    """One after another, in this thread. What is no ``AbsError`` ends it at once."""
    return [_outcome(call) for call in calls]


def side_by_side(calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
    """All at once: the first one in this thread, each further one in a thread of its own.

    An interrupt (Ctrl-C) comes up when those that are under way have ended: what they use is not
    closed under them. Each ends within the limits of its own system's requests.
    """
    if len(calls) < 2:
        return in_turn(calls)
    with ThreadPoolExecutor(len(calls) - 1, thread_name_prefix="abs-system") as pool:
        others = [_begun(pool, call) for call in calls[1:]]
        first = _any_outcome(calls[0])
    return [first, *(other() for other in others)]


def answers(outcomes: Iterable[T | Exception]) -> list[T]:
    """What all have answered.

    Raises:
        Exception: the first error, by the order of the calls; its notes tell of the others.
    """
    found: list[T] = []
    failed: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            failed.append(outcome)
        else:
            found.append(outcome)
    if failed:
        raise noted(failed[0], failed[1:])
    return found


def noted(error: Exception, others: Iterable[Exception]) -> Exception:
    """The error, which tells of others that came up beside it."""
    for other in others:
        error.add_note(f"Beside it: {type(other).__name__}: {other}")
    return error


def _begun(pool: Executor, call: Callable[[], T]) -> Callable[[], T | Exception]:
    """Begin a call in a thread of its own; what gives its outcome."""
    # In a copy: a context can be entered by one thread at a time.
    outcome = partial(copy_context().run, _any_outcome, call)
    try:
        return pool.submit(outcome).result
    except RuntimeError:  # the program is ending, and no pool takes work any more: then in this one
        return outcome


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except AbsError as error:
        return error


def _any_outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - a defect, too, must wait for the other systems
        return error
