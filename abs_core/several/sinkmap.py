"""The sinks of an epoch that goes to several: which number each has. Pure rules, without I/O.

A handle's name carries its sink's number, in its partition: whose handle it is can be told from the
name alone, also after the job was given other sinks. So a number is never used again. A sink is known
by its name; its target cannot be changed under that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from abs_core.errors import IdentityError, OptionError
from abs_core.model import HandleName, JobState, NamedSink

STRIDE = 1 << 24
"""Handles of sink number n have partitions from n * STRIDE on. The embedded runtime's own sinks have
theirs below it, see ``abs_core.runtime.sinks``."""

SINKS_MAX = 64
"""How many sinks a job may have had: the register names all of them."""

Named = Sequence[tuple[str, str]]
"""Name and target of each sink, in the order in which the user gives them."""


def number_of(handle: HandleName) -> int:
    """Of the sink whose handle it is."""
    return handle.partition // STRIDE


def check_names(names: Sequence[str]) -> None:
    """Refuse names that do not tell the sinks apart.

    Raises:
        OptionError: one is missing or there twice, or there is no sink at all.
    """
    if not names:
        raise OptionError("An epoch without a sink.", remedy="give it one or more.")
    if len(names) > 1 and not all(names):
        raise OptionError(
            "A sink of several has no name.",
            remedy="give each its own (name='payments'); the register keeps it.",
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
    """The map with exactly the wanted sinks present; numbers once given stay.

    A sink that is not wanted any more ends with the last decided epoch. One whose name was there before
    and ended gets a new number.

    Returns:
        the error where a sink's target is another, or a sink that is gone has yet to commit.
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
    if len(sinks) > SINKS_MAX:
        return _too_many(state)
    return tuple(sinks)


def numbers(state: JobState) -> dict[str, int]:
    """The present sinks' numbers, by name."""
    return {sink.name: sink.number for sink in state.sinks if sink.until is None}


def _only(state: JobState, wanted: Named) -> list[NamedSink]:
    """Of a job that had one sink without a name: it is the wanted one with the same target."""
    same = [name for name, target in wanted if target == state.target]
    return [NamedSink(0, same[0], state.target, 0)] if same else []


def _names(state: JobState, number: int) -> bool:
    return any(number_of(h) == number for decision in state.open for h in decision.handles)


def _has_to_commit(state: JobState, sink: NamedSink) -> IdentityError:
    return IdentityError(
        f"The sink {sink.name!r} was taken out, and has yet to commit what is decided.",
        job=state.job,
        epoch=state.open[0].epoch,
        remedy=f"run the query with that sink ({sink.target}) once more; then take it out.",
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
        remedy="keep that sink beside new ones; or choose another `job` name for other targets.",
    )


def _too_many(state: JobState) -> IdentityError:
    return IdentityError(
        f"The job would have had more than {SINKS_MAX} sinks in its life.",
        job=state.job,
        remedy="go on under another job name, which begins with a map of its own.",
    )
