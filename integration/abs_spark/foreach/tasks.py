"""A task of an epoch: writes its rows to every sink, and reports what it pre-committed."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructType

from abs_core.births import rules as births
from abs_core.contracts import Sink, Task, Writer
from abs_core.deadletters import Count
from abs_core.errors import ProtocolError
from abs_core.model import Share
from abs_core.patience.slow_writes import SlowWriteReporter
from abs_core.several import GroupWriter, SinkGroup
from abs_core.sinkmap import STRIDE
from abs_sinks.deadletters.writer import Bury, GivingSink
from abs_sinks.door import as_input
from abs_sinks.options import DeadLetterOptions
from abs_spark.foreach.row_size import Measured
from abs_spark.foreach.views import View
from abs_spark.process.executor import check_reached, on_executor, partition
from abs_spark.process.gc_tuning import tune_gc
from abs_spark.process.logs import show_logs
from abs_spark.process.lru_cache import LruCache
from abs_spark.share import SinkShare, TaskOutput, output_to, take_shares, to_group, to_one
from abs_spark.sink_spec import SinkSpec, group_of, groups

_Outs = Mapping[int, TaskOutput[Any]]


class Obscured:
    """A picklable value that neither its ``repr`` nor its pickle shows (I9).

    It hides options from eyes and searches, not from somebody who has the pickle and this code: tasks
    must read them. Anyone who can read Spark's memory and network can read any connector's options.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def open(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return "Obscured(...)"

    def __getstate__(self) -> tuple[bytes, bytes]:
        # It may hold a function of the user's.
        content: bytes = cloudpickle.dumps(self._value)  # type: ignore[no-untyped-call]
        pad = secrets.token_bytes(len(content))
        return pad, _xor(content, pad)

    def __setstate__(self, state: tuple[bytes, bytes]) -> None:
        content, pad = state
        self._value = pickle.loads(_xor(content, pad))  # noqa: S301 - Spark unpickled what it lies in


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


REPORT = pa.schema([pa.field("report", pa.binary(), nullable=False)])
REPORT_TYPE = StructType().add("report", BinaryType())
"""``REPORT`` as Spark's type: it would parse a text anew for every epoch."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sink's part of a pass.

    Args:
        number: of the sink, in the job's register.
        name: of the sink; empty if it is the only one.
        buries: number of the sink that gets its dead letters, if the option names one.
    """

    number: int
    target: SinkSpec
    view: View
    name: str
    buries: int | None = None


@dataclass(frozen=True, slots=True)
class TaskSecrets:
    """What all tasks of a pass get and no log may show.

    Args:
        register: the sink whose system has the job's register.
    """

    parts: tuple[Part, ...]
    register: SinkSpec


@dataclass(frozen=True, slots=True)
class EpochTask:
    """What all tasks of a pass get.

    Args:
        obscured: the ``TaskSecrets``.
        task: as the coordinator began the epoch; each task has its own partition and attempt.
        own: whether the register is in the sinks' own system, and nothing else is written.
        drain: the epoch is already decided: rows are counted and not written.
        digests: whether a replay can be recognised by its rows only.
    """

    obscured: Obscured
    task: Task
    own: bool
    drain: bool
    digests: bool


def writing(work: EpochTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: yields one row, the task's report."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with on_executor():
            report = take_part(work, partition(), batches)
        yield pa.RecordBatch.from_pylist([{"report": report}], schema=REPORT)

    return write


def take_part(work: EpochTask, partition: int, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Do a task's whole work; return its report, for ``shares_of``: a share of each sink, rows' size.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    show_logs()
    if partition >= STRIDE:
        raise ProtocolError(
            f"The micro-batch has {partition + 1} partitions or more.",
            remedy=f"coalesce the micro-batch to fewer than {STRIDE} partitions.",
        )
    secret: TaskSecrets = work.obscured.open()
    if not work.drain:
        for part in secret.parts:
            kept_sink(part.target, work)  # each process asks the target before its first row
    sinks = _sink_shares(work, secret.parts, partition)
    measured = Measured(batches)
    shares = take_shares(
        sinks, iter(measured), work.task, lambda: kept_sink(secret.register, work).register()
    )
    tune_gc()
    return pickle.dumps((partition, shares, measured.row_bytes))


def _sink_shares(work: EpochTask, parts: Sequence[Part], partition: int) -> list[SinkShare]:
    """One for each part; those that share a transaction have one ``TaskOutput``."""
    outs = {} if work.drain else _outs(work, {part.number: part for part in parts}, partition)
    return [
        SinkShare(
            part.view.schema,
            outs.get(part.number),
            digests=work.digests,
            of=part.view.of,
            sink=part.number,
            prefix=f"{part.name}." if part.name else "",
        )
        for part in parts
    ]


def _outs(work: EpochTask, parts: Mapping[int, Part], partition: int) -> dict[int, TaskOutput[Any]]:
    """The ``TaskOutput`` of each sink, by number."""
    outs: dict[int, TaskOutput[Any]] = {}
    for numbers in groups({number: part.target for number, part in parts.items()}):
        group = group_of({number: parts[number].target for number in numbers})
        if group.by_task:
            task = _task(work, min(numbers), partition)
            shared = [parts[number] for number in numbers]
            shared_by = partial(_shared, group, task, shared, outs, parts)
            targets = {part.name: part.target for part in shared}
            out = output_to(targets, shared_by, to_group, task, partition)
            outs |= dict.fromkeys(numbers, out)
    for number, part in parts.items():
        if number not in outs:
            task = _task(work, number, partition)
            make = partial(_writer, part.target, work, task)
            if part.buries is not None:
                make = partial(_burying, work, task, part, parts[part.buries], outs)
            outs[number] = output_to({part.name: part.target}, make, to_one, task, partition)
    return outs


def _writer(target: SinkSpec, work: EpochTask, task: Task) -> Writer:
    return kept_sink(target, work).writer(task)


def _shared(
    group: SinkGroup, task: Task, parts: Sequence[Part], outs: _Outs, every: Mapping[int, Part]
) -> GroupWriter:
    """The writer of sinks that share a transaction."""
    writer = group.writer(task)
    for part in parts:
        if part.buries is not None:
            writer.bury_in(part.number, _bury(part, every[part.buries], outs))
    return writer


def _burying(work: EpochTask, task: Task, part: Part, other: Part, outs: _Outs) -> Writer:
    """The writer of a sink whose dead letters another one gets."""
    writer = cast(GivingSink, kept_sink(part.target, work)).raw_writer(task)
    writer.bury_in(_bury(part, other, outs))
    return SlowWriteReporter(writer, part.target.options.patience, task)


def _bury(part: Part, other: Part, outs: _Outs) -> Bury:
    """Gives dead letters of one sink to another."""
    most = cast(DeadLetterOptions[Any], part.target.options).deadlettermax

    def bury(letters: pa.RecordBatch) -> None:
        rows = letters.num_rows
        count = Count(part.number, rows, rows, most)
        outs[other.number].bury(other.number, as_input(other.target.format, letters), count)
        outs[part.number].give_away(rows)

    return bury


def _task(work: EpochTask, number: int, partition: int) -> Task:
    """The sink's part of the task's attempt."""
    # Random for each attempt: Spark may run two at once, which must not share a name (I6).
    return replace(work.task, partition=number * STRIDE + partition, attempt=secrets.token_hex(8))


_sinks: LruCache[tuple[SinkSpec, str, int, bool], Sink] = LruCache(lambda sink: sink.close())


def kept_sink(target: SinkSpec, work: EpochTask) -> Sink:
    """The sink, which this worker process keeps from epoch to epoch of one run.

    Raises:
        TargetError: it is made now, and this executor does not reach its target.
    """
    key = (target, work.task.register, work.task.generation, work.own)
    return _sinks.of(
        key,
        lambda: _reached(target, work),
        lambda kept: kept[:2] == key[:2],  # of an earlier run
    )


def _reached(target: SinkSpec, work: EpochTask) -> Sink:
    sink = target.sink(alone=work.own)
    sink.if_missing(_vanished)  # the driver has created what may be created
    try:
        check_reached(sink, replace(target.options.patience, job=work.task.job))
    except BaseException:
        sink.close()
        raise
    return sink


def _vanished() -> None:
    raise births.vanished_target()


def shares_of(reports: Sequence[bytes]) -> tuple[list[Share], float]:
    """All shares of a pass, and the size of its largest rows in bytes; 0 without rows.

    Raises:
        ProtocolError: two reports belong to one partition.
    """
    seen: set[int] = set()
    shares: list[Share] = []
    largest = 0.0
    for report in reports:
        partition, made, row_bytes = pickle.loads(report)  # noqa: S301 - as Spark reads its tasks' messages
        if partition in seen:
            raise ProtocolError(
                f"Spark returned two results of partition {partition}.",
                remedy="restart the query: the epoch is written again. If it happens again, "
                "please report it with the version of Spark.",
            )
        seen.add(partition)
        shares += made
        largest = max(largest, row_bytes)
    return shares, largest
