"""Aborts many handles, and runs many calls, in spite of single failures; makes a loss final."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from abs_core.crash import CrashPoint, reached
from abs_core.errors import ContentionError, RefusedError, TargetError, UnavailableError
from abs_core.model import HandleName
from abs_core.parallel import CallRunner, in_turn, noted

MAX_SHOWN = 5
"""How many of the handles that stay are named in the error."""


def abort_each(handles: Iterable[HandleName], abort: Callable[[HandleName], object]) -> None:
    """Try to abort every handle, then raise if some are left.

    Stops after two ``UnavailableError`` in a row: the system is down, and each further handle would
    wait for it.

    Args:
        abort: aborts one handle; must raise ``TargetError`` only.

    Raises:
        UnavailableError, ContentionError, RefusedError: some handles stay; the message names each with
            its reason. A retryable kind takes precedence.
    """
    todo = list(handles)
    left: list[tuple[HandleName, TargetError | None]] = []
    unanswered = 0
    for number, handle in enumerate(todo):
        if number:
            reached(CrashPoint.BETWEEN_ABORTS)
        if unanswered == 2:
            left.append((handle, None))
            continue
        try:
            abort(handle)
            unanswered = 0
        except TargetError as error:
            left.append((handle, error))
            unanswered = unanswered + 1 if isinstance(error, UnavailableError) else 0
    if left:
        raise _left_behind(left, len(todo))


def attempt_all(parts: Iterable[Callable[[], object]], run_calls: CallRunner = in_turn) -> None:
    """Make every call, then raise one error for all failures.

    Raises:
        TargetError: combines all errors where each is a ``TargetError``.
        Exception: the first error that is no ``TargetError``, with the others as notes.
    """
    raise_all(outcome for outcome in run_calls(list(parts)) if isinstance(outcome, Exception))


def raise_all(errors: Iterable[Exception]) -> None:
    """Raise one error for all of these, as ``attempt_all`` does; do nothing if there are none."""
    every = list(errors)
    failed = [error for error in every if isinstance(error, TargetError)]
    if len(failed) < len(every):
        first_ = next(error for error in every if not isinstance(error, TargetError))
        raise noted(first_, (error for error in every if error is not first_))
    if len(failed) == 1:
        raise failed[0]
    if failed:
        sentences = " ".join(error.what for error in failed)
        first = failed[0]
        summary = _kind_of(failed)(
            sentences, remedy=first.remedy, job=first.job, handle=first.handle
        )
        if len({error.system for error in failed}) == 1:
            summary.of(first.system)
        raise summary from first


def _left_behind(left: list[tuple[HandleName, TargetError | None]], tried: int) -> TargetError:
    errors = [error for _, error in left if error is not None]
    first = errors[0]
    if tried == 1:
        return first
    named = "; ".join(
        f"{handle} ({'not tried' if error is None else error.what.rstrip('.')})"
        for handle, error in left[:MAX_SHOWN]
    )
    more = f"; and {len(left) - MAX_SHOWN} more" if len(left) > MAX_SHOWN else ""
    summary = _kind_of(errors)(
        f"{len(left)} of {tried} handles cannot be aborted now, and stay: {named}{more}.",
        remedy=first.remedy or "each sweep tries again; `abs in-doubt list` shows what is left.",
        job=left[0][0].job,
    )
    summary.__cause__ = first
    return summary.of(first.system)


def _kind_of(errors: list[TargetError]) -> type[TargetError]:
    """The kind of a retryable error, if there is one: then a retry of the whole may succeed."""
    for kind in (UnavailableError, ContentionError):
        if any(isinstance(error, kind) for error in errors):
            return kind
    return RefusedError
