"""Events of the protocol as log lines and OpenTelemetry metrics, and for the program's observers.

Uses OpenTelemetry's API only: without a configured SDK the instruments do nothing. Events occur once
per task and epoch, never per row or batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from logging import DEBUG, INFO, WARNING
from typing import TYPE_CHECKING, Any, get_args

from opentelemetry import metrics

from abs_core.events import (
    Abandoned,
    Committed,
    Decided,
    Ended,
    Event,
    NotCertified,
    NotCompared,
    Observer,
    PreCommitted,
    RolledForward,
    Skipped,
    Started,
    SweepFailed,
    Swept,
    Written,
)
from abs_spark import observers
from abs_spark.observers import tell, told
from abs_spark.process.program import hear, tell_program

if TYPE_CHECKING:
    from abs_spark.sink_spec import SinkSpec

SUBJECT = "event"

_start = logging.getLogger("abs_spark.start")
_recovery = logging.getLogger("abs_spark.recovery")
_epoch = logging.getLogger("abs_spark.epoch")
_progress = logging.getLogger("abs_spark.progress")

_meter = metrics.get_meter("abs_spark")
_read = _meter.create_counter(
    "abs.source.rows", "{row}", "Rows of the source in committed epochs, each once"
)
_rows = _meter.create_counter("abs.rows", "{row}", "Rows that committed epochs wrote to each sink")
_dead = _meter.create_counter("abs.dead_letters", "{row}", "Rows of committed epochs kept aside")
_changes = _meter.create_counter(
    "abs.changes", "{row}", "Changes that were applied to each sink's rows, and that were not"
)
_epochs = _meter.create_counter("abs.epochs", "{epoch}", "Committed epochs")
_batches = _meter.create_counter("abs.batches", "{batch}", "Micro-batches that Spark has ended")
_failures = _meter.create_counter("abs.failures", "{query}", "Queries that ended with an error")
_skips = _meter.create_counter("abs.skips", "{epoch}", "Replayed epochs found committed already")
_sweeps = _meter.create_counter("abs.sweeps", "{handle}", "Handles aborted: no decision names them")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histograms' buckets: an SDK's own begin at 5 s for a unit of seconds."""


def _seconds(name: str, description: str) -> metrics.Histogram:
    try:
        return _meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=SECONDS
        )
    except TypeError:  # an API that is older than 1.30
        return _meter.create_histogram(name, "s", description)


_bytes = _meter.create_counter("abs.bytes", "By", "Bytes of committed epochs, as Arrow holds them")
_retries = _meter.create_counter(
    "abs.retries", "{request}", "Requests that failed and were retried"
)
_waited = _meter.create_counter("abs.waited", "s", "Time in calls that were retried")
_in_doubt = _meter.create_gauge(
    "abs.in_doubt", "{handle}", "Handles without a decision, after the last epoch"
)
_oldest = _meter.create_gauge("abs.in_doubt.age", "s", "Age of the oldest of them")
_frontier = _meter.create_gauge("abs.frontier", "{epoch}", "All epochs up to it are finished")
_epoch_seconds = _seconds(
    "abs.epoch.duration",
    "Steps of an epoch: write and pre_commit of its slowest task, decide, commit",
)
_pre_commit_seconds = _seconds(
    "abs.pre_commit.duration", "A task's time from its first row to durable rows"
)
_commit_seconds = _seconds("abs.commit.duration", "Decision, commit and finish of an epoch")


Dataset = Callable[[str], tuple[str, str]]
"""Namespace and name of a sink's target, from its identity."""


def observer_of(sinks: Mapping[str, SinkSpec]) -> Observer:
    """``observer`` of the events of these sinks, by name."""
    protocols = {spec.options.common.protocol for spec in sinks.values()}
    datasets = {name: partial(spec.format.dataset, spec.options) for name, spec in sinks.items()}
    return observer("+".join(sorted(protocols)), datasets)


def observer(protocol: str, datasets: Mapping[str, Dataset] | None = None) -> Observer:
    """An observer that logs, counts, and tells the program's own observers.

    Metrics have the attributes ``job`` and ``protocol``; a log record has the event as its attribute
    ``abs_event``.

    Args:
        datasets: of the sinks, by name.

    Raises:
        ConfigError: an observer that the environment names cannot be loaded.
    """
    told()
    attributes = {"protocol": protocol}

    def observe(event: Event) -> None:
        event = _placed(event, datasets or {})
        tell(event)  # first: one of them may configure the metrics
        # A figure is counted in one process: in the program where it hears of it.
        if not tell_program(SUBJECT, [attributes, type(event).__name__, asdict(event)]):
            _count(event, {"job": event.job, **attributes})
        logger, level, text, values = _line(event)
        logger.log(level, text, *values, extra={"abs_event": event})

    return observe


@cache
def hear_events() -> None:
    """In the program: count what its formats' processes tell, and give it to ``abs_spark.listener``.

    Observers of ``ABS_OBSERVE`` have been called there.
    """
    hear(SUBJECT, _heard)


_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def _heard(message: tuple[dict[str, str], str, dict[str, Any]]) -> None:
    attributes, kind, fields = message
    event = _EVENTS[kind](**{name: _as_sent(value) for name, value in fields.items()})
    for observe in tuple(observers.added):
        observers.tell_one(observe, event)
    _count(event, {"job": event.job, **attributes})


def _as_sent(value: Any) -> Any:
    """JSON has lists for tuples, and objects for what an epoch wrote to a sink."""
    if isinstance(value, list):
        return tuple(Written(**one) if isinstance(one, dict) else one for one in value)
    return value


def count_batch(job: str) -> None:
    """Count a micro-batch that Spark has ended."""
    _batches.add(1, {"job": job})


def count_failure(job: str) -> None:
    """Count a query that ended with an error."""
    _failures.add(1, {"job": job})


def _placed(event: Event, datasets: Mapping[str, Dataset]) -> Event:
    """The event with the datasets of its targets."""
    if not isinstance(event, Committed | RolledForward):
        return event
    targets = []
    for one in event.targets:
        namespace, name = datasets[one.sink](one.target) if one.sink in datasets else ("", "")
        targets.append(replace(one, namespace=namespace, dataset=name))
    return replace(event, targets=tuple(targets))


def _count(event: Event, of: dict[str, str]) -> None:
    match event:
        case PreCommitted(seconds=seconds):
            _pre_commit_seconds.record(seconds, of)
        case Committed(seconds=seconds):
            if event.is_counted:
                _read.add(event.rows if event.read is None else event.read, of)
            rows = event.rows - event.dead if event.is_counted else None
            for sink in event.targets or (Written("", rows, 0, dead=event.dead),):
                at = {**of, "sink": sink.sink}
                if sink.rows is not None:
                    _rows.add(sink.rows, at)
                # 0, too: Prometheus sees no increase of what was not there before.
                _dead.add(sink.dead, at)
                if sink.changed is not None:
                    _changes.add(sink.changed, {**at, "applied": "true"})
                    _changes.add((sink.rows or 0) - sink.changed, {**at, "applied": "false"})
            _epochs.add(1, of)
            _commit_seconds.record(seconds, of)
            _count_more(event, of)
        case Skipped():
            _skips.add(1, of)
        case Swept(handles=handles):
            _sweeps.add(len(handles), of)


def _count_more(event: Committed, of: dict[str, str]) -> None:
    _bytes.add(event.bytes, of)
    _retries.add(event.retries, of)
    _waited.add(event.waited_seconds, of)
    _in_doubt.set(event.in_doubt, of)
    _oldest.set(event.oldest_seconds or 0.0, of)
    if event.frontier is not None:
        _frontier.set(event.frontier, of)
    steps = {
        "write": event.write_seconds,
        "pre_commit": event.pre_commit_seconds,
        "decide": event.decide_seconds,
        "commit": event.commit_seconds,
    }
    for step, seconds in steps.items():
        _epoch_seconds.record(seconds, {**of, "step": step})


_UNTOLD = {
    NotCertified: "job %s: its birth certificate cannot be written into the checkpoint; if the "
    "register is lost in this run, the loss may go undetected: %s",
    NotCompared: "job %s: whether a target still has all finished epochs cannot be told: %s",
}


def _line(event: Event) -> tuple[logging.Logger, int, str, tuple[object, ...]]:
    """Logger, level, text and its values."""
    match event:
        case Started(job, generation, minted):
            how = "a new register was created" if minted else "the register was taken over"
            return _start, INFO, "job %s: generation %d started; %s", (job, generation, how)
        case PreCommitted(job, epoch, partition, rows, seconds, sinks):
            of = f" of {sinks}" if sinks else ""
            text = "job %s: epoch %d partition %d%s: %d rows pre-committed in %.3f s"
            return _progress, INFO, text, (job, epoch, partition, of, rows, seconds)
        case Decided(job, epoch, _, named):
            text = "job %s: epoch %d: decided (%d handles)"
            return _progress, DEBUG, text, (job, epoch, len(named))
        case Committed():
            return _epoch, INFO, *_committed(event)
        case Skipped(job, epoch, rows):
            text = "job %s: epoch %d: committed before;%s not written again"
            read = f" its {rows} rows were read and" if rows else " it is"
            return _recovery, INFO, text, (job, epoch, read)
        case RolledForward(job, epoch, handles):
            text = "job %s: epoch %d: was decided and is committed now (%d handles)"
            return _recovery, INFO, text, (job, epoch, handles)
        case Swept(job, swept):
            text = "job %s: %d handles without a decision were aborted"
            return _recovery, INFO, text, (job, len(swept))
        case SweepFailed(job, why):
            text = "job %s: handles without a decision could not be aborted: %s"
            return _recovery, WARNING, text, (job, why)
        case NotCertified(job, why) | NotCompared(job, why):
            return _start, WARNING, _UNTOLD[type(event)], (job, why)
        case Ended(job, _):
            text = "job %s: the run has ended; its open transactions were committed or aborted"
            return _recovery, INFO, text, (job,)
        case Abandoned(job, epoch):
            text = "job %s: epoch %d: abandoned; the next run writes it"
            return _recovery, INFO, text, (job, epoch)


def _committed(event: Committed) -> tuple[str, tuple[object, ...]]:
    """Text and values of a committed epoch."""
    job, epoch, rows, dead = event.job, event.epoch, event.rows, event.dead
    if not event.is_counted:
        return "job %s: epoch %d: written in %.3f s", (job, epoch, event.seconds)
    text = "job %s: epoch %d: %d rows committed in %.3f s (%d handles)%s"
    more = f", {dead} of them dead" if dead else ""
    if len(event.targets) > 1 and event.read is not None:
        text = "job %s: epoch %d: %d rows of the source committed in %.3f s (%d handles)%s"
        sinks = ", ".join(f"{one.rows} to {one.sink}" for one in event.targets)
        rows, more = event.read, f": {sinks}{f'; {dead} dead' if dead else ''}"
    return text, (job, epoch, rows, event.seconds, event.handles, more)
