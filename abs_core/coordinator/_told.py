"""What an epoch wrote to each sink, for observers."""

from __future__ import annotations

from collections.abc import Mapping

from abs_core.effort import Effort
from abs_core.events import Written
from abs_core.model import Decision, JobState
from abs_core.sinkmap import number_of


def epoch_id(state: JobState, lineage: str, epoch: int) -> str:
    """Names an epoch's commit, the same in every run that tells it."""
    return f"{state.register}:{lineage}:{epoch}"


def written(state: JobState, epoch: int, effort: Effort) -> tuple[Written, ...]:
    """What a finished epoch wrote to each sink; nothing if its tasks said nothing."""
    if not effort.amounts:
        return ()
    record = state.record(epoch)
    dead = {one.sink: one.dead for one in record.dead} if record else {}
    made = []
    for number, (name, target) in _sinks(state, epoch).items():
        given = [(rows, size) for sink, rows, size in effort.amounts if sink == number]
        rows = sum(each for each, _ in given) - dead.get(number, 0)
        made.append(Written(name, rows, sum(size for _, size in given), target))
    return tuple(made)


def decided(state: JobState, decision: Decision) -> tuple[Written, ...]:
    """The same by the decision's handles alone: rows are known only if each sink has handles."""
    rows: dict[int, int] = {}
    for one in decision.committables:
        number = number_of(one.handle)
        rows[number] = rows.get(number, 0) + one.rows
    sinks = _sinks(state, decision.epoch)
    # Sinks that share transactions have handles in common, under the number of the first.
    known = rows.keys() == sinks.keys()
    return tuple(
        Written(name, rows[number] if known else None, None, target)
        for number, (name, target) in sinks.items()
    )


def _sinks(state: JobState, epoch: int) -> Mapping[int, tuple[str, str]]:
    """Name and target of each sink of an epoch, by number."""
    return {
        sink.number: (sink.name, sink.target)
        for sink in state.sinks
        if sink.since <= epoch and (sink.until is None or epoch <= sink.until)
    } or {0: ("", state.target)}
