"""A task of an epoch: writes its rows to every sink, and reports what it pre-committed."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from abs_core.contracts import Sink, Task, Writer
from abs_core.deadletters import Count
from abs_core.errors import ProtocolError
from abs_core.events import Observer
from abs_core.model import Share
from abs_core.patience.slow_writes import SlowWriteReporter
from abs_core.sinkmap import STRIDE
from abs_sinks.appended import BuryingSink
from abs_sinks.burying import Keeping
from abs_spark.context import partition
from abs_spark.executor import check_reached, on_executor
from abs_spark.foreach.sealed import Sealed
from abs_spark.foreach.views import View
from abs_spark.gc_tuning import tune_gc
from abs_spark.logs import show_logs
from abs_spark.lru_cache import LruCache
from abs_spark.progress import observer
from abs_spark.share import Lane, TaskOutput, take_shares, to_group, to_one
from abs_spark.target import Target, group_of, groups

REPORT = pa.schema([pa.field("report", pa.binary(), nullable=False)])
REPORT_TYPE = StructType().add("report", BinaryType())
"""The same for Spark, which would parse a text anew for every epoch."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sink's part of a pass.

    Args:
        number: of the sink, in the job's register.
        name: of the sink; empty if it is the only one.
        buries: number of the sink that gets its dead letters, if the option names one.
    """

    number: int
    target: Target
    view: View
    name: str
    buries: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What all tasks of a pass get and no log may show.

    Args:
        register: the sink whose system has the job's register.
    """

    parts: tuple[Part, ...]
    register: Target


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a pass get.

    Args:
        sealed: of ``Told``.
        task: as the coordinator began the epoch; each task has its own partition and attempt.
        own: whether the register is in the sinks' own system, and nothing else is written.
        drain: the epoch is already decided: rows are counted and not written.
        digests: whether a replay can be recognised by its rows only.
    """

    sealed: Sealed
    task: Task
    own: bool
    drain: bool
    digests: bool


def writing(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: yields one row, the task's report."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with on_executor():
            report = take_part(work, partition(), batches)
        yield pa.RecordBatch.from_pylist([{"report": report}], schema=REPORT)

    return write


def take_part(work: Work, partition: int, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Do a task's whole work; return its report, for ``shares_of``: a share of each sink.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    show_logs()
    if partition >= STRIDE:
        raise ProtocolError(
            f"The micro-batch has {partition + 1} partitions or more.",
            remedy=f"coalesce the micro-batch to fewer than {STRIDE} partitions.",
        )
    told: Told = work.sealed.open()
    if not work.drain:
        for part in told.parts:
            kept_sink(part.target, work)  # each process asks the target before its first row
    lanes = _lanes(work, told.parts, partition)
    shares = take_shares(
        lanes, batches, work.task, lambda: kept_sink(told.register, work).register()
    )
    tune_gc()
    return pickle.dumps((partition, shares))


def _lanes(work: Work, parts: Sequence[Part], partition: int) -> list[Lane]:
    """One lane for each part; lanes that share a transaction have one ``TaskOutput``."""
    outs = {} if work.drain else _outs(work, {part.number: part for part in parts}, partition)
    return [
        Lane(
            part.view.schema,
            outs.get(part.number),
            digests=work.digests,
            of=part.view.of,
            sink=part.number,
            prefix=f"{part.name}." if part.name else "",
        )
        for part in parts
    ]


def _outs(work: Work, parts: Mapping[int, Part], partition: int) -> dict[int, TaskOutput[Any]]:
    """The ``TaskOutput`` of each sink, by number."""
    outs: dict[int, TaskOutput[Any]] = {}
    for numbers in groups({number: part.target for number, part in parts.items()}):
        group = group_of({number: parts[number].target for number in numbers})
        if group.by_task:
            task = _task(work, min(numbers), partition)
            shared = [parts[number] for number in numbers]
            shared_by = partial(group.writer, task)
            outs |= dict.fromkeys(
                numbers, TaskOutput(shared_by, to_group, task, *_seen(shared, partition))
            )
    for number, part in parts.items():
        if number not in outs:
            task = _task(work, number, partition)
            make = partial(_writer, part.target, work, task)
            if part.buries is not None:
                make = partial(_burying, work, task, part, parts[part.buries], outs)
            outs[number] = TaskOutput(make, to_one, task, *_seen([part], partition))
    return outs


def _seen(parts: Sequence[Part], partition: int) -> tuple[tuple[int, str], Observer]:
    """The event of a task's pre-commit, and its observer."""
    names = ", ".join(part.name for part in parts)
    return (partition, names), observer(parts[0].target.options.common.protocol)


def _writer(target: Target, work: Work, task: Task) -> Writer:
    return kept_sink(target, work).writer(task)


def _burying(
    work: Work, task: Task, part: Part, other: Part, outs: Mapping[int, TaskOutput[Any]]
) -> Writer:
    """The writer of a sink whose dead letters another one gets."""
    keeping = cast(Keeping, part.target.options)
    most = keeping.deadlettermax

    def bury(letters: pa.RecordBatch) -> None:
        rows = letters.num_rows
        count = Count(part.number, rows, rows, most)
        outs[other.number].bury(other.number, other.target.format.letters(letters), count)
        outs[part.number].give_away(rows)

    writer = cast(BuryingSink, kept_sink(part.target, work)).judging(task)
    writer.bury_in(bury)
    return SlowWriteReporter(writer, part.target.options.patience, task)


def _task(work: Work, number: int, partition: int) -> Task:
    """The sink's part of the task's attempt."""
    return replace(work.task, partition=number * STRIDE + partition, attempt=secrets.token_hex(8))


_sinks: LruCache[tuple[Target, str, int, bool], Sink] = LruCache(lambda sink: sink.close())


def kept_sink(target: Target, work: Work) -> Sink:
    """The sink, which this worker process keeps from epoch to epoch of one run.

    Raises:
        TargetError: it is made now, and this executor does not reach its target.
    """
    key = (target, work.task.register, work.task.generation, work.own)
    return _sinks.of(
        key,
        lambda: _reached(target, work),
        lambda known: known[:2] == key[:2],  # of an earlier run
    )


def _reached(target: Target, work: Work) -> Sink:
    sink = target.sink(alone=work.own)
    try:
        check_reached(sink, replace(target.options.patience, job=work.task.job))
    except BaseException:
        sink.close()
        raise
    return sink


def shares_of(reports: Sequence[bytes]) -> list[Share]:
    """All shares of a pass.

    Raises:
        ProtocolError: two reports belong to one partition.
    """
    seen: set[int] = set()
    shares: list[Share] = []
    for report in reports:
        partition, made = pickle.loads(report)  # noqa: S301 - as Spark reads its tasks' messages
        if partition in seen:
            raise ProtocolError(
                f"Spark returned two results of partition {partition}.",
                remedy="restart the query: the epoch is written again. If it happens again, "
                "please report it with the version of Spark.",
            )
        seen.add(partition)
        shares += made
    return shares
