"""Numbers the sinks of a multi-sink job. Pure rules, without I/O.

The partition in a handle's name contains its sink's number, so the name alone identifies the sink, also
after the job's sinks have changed. A number is never reused. The name identifies a sink; its target
cannot change under that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from abs_core.errors import IdentityError, OptionError
from abs_core.model import HandleName, JobState, NamedSink

STRIDE = 1 << 24
"""Handles of sink number n have partitions from n * STRIDE on. The embedded runtime's own sinks have
theirs below it, see ``abs_embedded.sinks``."""

MAX_SINKS = 64
"""The largest number of sinks, present and past, of a job: the register lists all of them."""

Named = Sequence[tuple[str, str]]
"""Name and target of each sink, in the order in which the user gives them."""


def number_of(handle: HandleName) -> int:
    """The number of the handle's sink."""
    return handle.partition // STRIDE


def check_names(names: Sequence[str]) -> None:
    """Check the names of a job's sinks.

    Raises:
        OptionError: a name is missing or not unique, or there is no sink.
    """
    if not names:
        raise OptionError("The epoch has no sinks.", remedy="pass at least one sink.")
    if len(names) > 1 and not all(names):
        raise OptionError(
            "A sink has no name, and the epoch has more than one sink.",
            remedy="give each sink its own (name='payments'); the register records it.",
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise OptionError(
            f"Two sinks of one epoch have the name {twice[0]!r}.", remedy="give each its own."
        )


def first(wanted: Named) -> tuple[NamedSink, ...]:
    """The map of a job that has no register yet."""
    return tuple(NamedSink(n, name, target, 0) for n, (name, target) in enumerate(wanted))


def assign(state: JobState, wanted: Named) -> tuple[NamedSink, ...] | IdentityError:
    """The map in which exactly the wanted sinks are present; existing numbers stay.

    A sink that is no longer wanted ends with the last decided epoch; a later sink of the same name
    gets a new number.

    Returns:
        the error, if a sink's target changed, or a removed sink has an open decision.
    """
    since = 0 if state.last_decided is None else state.last_decided + 1
    targets = dict(wanted)
    sinks = list(state.sinks) or _only(state, wanted)
    if not sinks:
        return _others(state)
    for place, sink in enumerate(sinks):
        if sink.until is not None:
            continue
        if sink.name not in targets:
            if _names(state, sink.number):
                return _has_to_commit(state, sink)
            sinks[place] = replace(sink, until=max(since - 1, 0))
        elif targets[sink.name] != sink.target:
            return _moved(state, sink, targets[sink.name])
    present = {sink.name for sink in sinks if sink.until is None}
    for name, target in wanted:
        if name not in present:
            sinks.append(NamedSink(len(sinks), name, target, since))
    if len(sinks) > MAX_SINKS:
        return _too_many(state)
    return tuple(sinks)


def numbers(state: JobState) -> dict[str, int]:
    """The present sinks' numbers, by name."""
    return {sink.name: sink.number for sink in state.sinks if sink.until is None}


def _only(state: JobState, wanted: Named) -> list[NamedSink]:
    """The map for a job that had one unnamed sink: it becomes the wanted sink with the same target."""
    same = [name for name, target in wanted if target == state.target]
    return [NamedSink(0, same[0], state.target, 0)] if same else []


def _names(state: JobState, number: int) -> bool:
    return any(number_of(h) == number for decision in state.open for h in decision.handles)


def _has_to_commit(state: JobState, sink: NamedSink) -> IdentityError:
    return IdentityError(
        f"The sink {sink.name!r} was removed before it had committed all decided epochs.",
        job=state.job,
        epoch=state.open[0].epoch,
        remedy=f"run the query with that sink ({sink.target}) once more; then remove it.",
    )


def _moved(state: JobState, sink: NamedSink, target: str) -> IdentityError:
    return IdentityError(
        f"The sink {sink.name!r} wrote to {sink.target} before, and would write to {target} now.",
        job=state.job,
        remedy="give it its old target; or give the new target to a sink of another name, which begins "
        "with the next epoch.",
    )


def _others(state: JobState) -> IdentityError:
    return IdentityError(
        f"The job wrote to {state.target} before, and none of this run's sinks does.",
        job=state.job,
        remedy="keep that sink beside new ones; or, for other targets, set another `job` name and a "
        "new checkpoint.",
    )


def _too_many(state: JobState) -> IdentityError:
    return IdentityError(
        f"The job has used {MAX_SINKS} sinks since it began, which is the limit.",
        job=state.job,
        remedy=f"stop the query, run `abs job reset {state.job} --checkpoint LOCATION`, which keeps "
        "the checkpoint, and start it: it goes on with the next epoch, and counts sinks anew.",
    )
