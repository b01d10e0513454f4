"""Makes the same call to several systems, in turn or in parallel.

Either way, every call is made and has ended on return, and results and errors are in the order of the
systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Protocol, TypeVar

from abs_core.errors import AbsError

T = TypeVar("T")


class CallRunner(Protocol):
    """A way to make several calls, each to another system."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
        """The result or exception of each call, in order."""
        ...


def in_turn(calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
    """Call one after another, in this thread; an exception other than ``AbsError`` ends it at once."""
    return [_outcome(call, AbsError) for call in calls]


def side_by_side(calls: Sequence[Callable[[], T]], /) -> list[T | Exception]:
    """Call all in parallel: the first in this thread, each other in a thread of its own.

    An interrupt (Ctrl-C) is raised once the running calls have ended, within their own time limits.
    """
    if len(calls) < 2:
        return in_turn(calls)
    with ThreadPoolExecutor(len(calls) - 1, thread_name_prefix="abs-system") as pool:
        others = [_begun(pool, call) for call in calls[1:]]
        first = _outcome(calls[0], Exception)
    return [first, *(other() for other in others)]


def answers(outcomes: Iterable[T | Exception]) -> list[T]:
    """All results.

    Raises:
        Exception: the first error, by the order of the calls; its notes hold the others.
    """
    every = list(outcomes)
    failed = [outcome for outcome in every if isinstance(outcome, Exception)]
    if failed:
        raise noted(failed[0], failed[1:])
    return [outcome for outcome in every if not isinstance(outcome, Exception)]


def noted(error: Exception, others: Iterable[Exception]) -> Exception:
    """The error, with the others added as notes."""
    for other in others:
        error.add_note(f"Beside it: {type(other).__name__}: {other}")
    return error


def _begun(pool: Executor, call: Callable[[], T]) -> Callable[[], T | Exception]:
    """Start a call in a new thread; the result waits for it and returns its outcome."""
    # A copy, because only one thread at a time can enter a context.
    outcome = partial(copy_context().run, _outcome, call, Exception)
    try:
        return pool.submit(outcome).result
    except RuntimeError:  # at interpreter shutdown no pool takes work: call it in this thread
        return outcome


def _outcome(call: Callable[[], T], kind: type[Exception]) -> T | Exception:
    """The result, or the exception of this kind, to be raised once the other calls have ended."""
    try:
        return call()
    except kind as error:
        return error
