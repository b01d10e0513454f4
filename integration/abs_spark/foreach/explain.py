"""Shows the guarantees and the progress of a sink and of a query of ``abs_spark.epoch`` (I9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abs_core.certificate import place_of
from abs_core.errors import AbsError, ConfigError
from abs_core.model import NO_EPOCH, JobState
from abs_core.protocol import fate
from abs_core.sinkmap import number_of
from abs_spark.end_watcher import end_watcher
from abs_spark.foreach.guarded import BatchFunction
from abs_spark.sink_spec import promised

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from abs_spark.foreach.run import EpochRun


def explain(query: StreamingQuery | BatchFunction) -> None:
    """Print a query's guarantees and progress, as ``DataFrame.explain`` prints a plan.

    Targets, guarantees, the register, what is finished and what is in doubt; no secret. It asks the
    register and each target, and changes nothing.

    Args:
        query: started with ``abs_spark.epoch`` or ``once`` in this process; or the function itself.

    Raises:
        ConfigError: the query is not such a one, or has had no batch.
    """
    function = (
        query if isinstance(query, BatchFunction) else end_watcher.functions.get(str(query.id))
    )
    if not isinstance(function, BatchFunction):
        raise ConfigError(
            "abs_spark.epoch or abs_spark.once has received no batch of this query in this process.",
            remedy="wait for its first batch, or give explain() the function that they returned. A "
            "query with a format abs-... writes from Spark's own "
            "processes: its guarantees are in the log of its start, and `abs register show JOB` "
            "shows its progress.",
        )
    print(explanation(function))


def explanation(function: BatchFunction) -> str:
    """The text that ``explain`` prints."""
    if function.run is None:
        head = [f"{function!r}", "not started: it has received no batch in this process"]
        return "\n".join([*head, *(f"sink {sink!r}" for sink in function.sinks)])
    return _of_run(function, function.run)


def _of_run(function: BatchFunction, run: EpochRun) -> str:
    job = run.name.job
    register = run.targets.register()
    lines = [
        f"job {job}, query {run.name.lineage}, {len(function.sinks)} sink(s) under one decision"
    ]
    state: JobState | None = None
    try:
        stored = register.load(job)
        state = None if stored is None else stored.state
        lines.append(f"register: {place_of(register, job)}: {_state(state)}")
    except AbsError as error:
        lines.append(f"register: {place_of(register, job)}: cannot be read now: {error.what}")
    lines += run.targets.shared_transactions()
    for name, target in run.targets.opened():
        number = run.numbers[name]
        where = target.format.where(target.options)
        promise = target.format.guarantee(target.options)
        lines += [
            f"sink {number} {name}".rstrip() + f": {target.format.name} to {where}",
            f"    {promised(promise)}",
            f"    readers: {promise.reader}",
            f"    in doubt: {_in_doubt(run, name, state)}",
        ]
    return "\n".join(lines)


def _state(state: JobState | None) -> str:
    if state is None:
        return "nothing yet"
    done = "nothing" if state.frontier is None else f"everything up to epoch {state.frontier}"
    decided = f", {len(state.open)} decided and not finished" if state.open else ""
    return f"generation {state.generation} has finished {done}{decided}"


def _in_doubt(run: EpochRun, name: str, state: JobState | None) -> str:
    """Handles of the sink, and of sinks that share transactions with it: they may hold its rows."""
    numbers = {run.numbers[fellow] for fellow in run.targets.fellows(name)}
    try:
        doubts = run.targets.in_doubt(name, run.name.job)
    except AbsError as error:
        return f"cannot be read now: {error.what}"
    names = [doubt.handle for doubt in doubts]
    mine = [name for name in names if name.epoch == NO_EPOCH or number_of(name) in numbers]
    fates = [str(name) if state is None else f"{name} ({fate(state, name)})" for name in mine]
    return "; ".join(fates) or "nothing"
