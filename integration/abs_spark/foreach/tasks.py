"""What a task of an epoch does: writes its rows to every sink, and reports what is pre-committed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from abs_core.codec import committable_from_json, committable_to_json
from abs_core.contracts import Sink, Task, Writer
from abs_core.errors import ProtocolError
from abs_core.grouping import SinkGroup
from abs_core.model import Committable, Drained, Share, Wrote
from abs_core.rowdigest import RowDigest, read_row_digest
from abs_core.sinkmap import STRIDE
from abs_sinks.rowhash import empty_digest, row_digest
from abs_spark.context import partition
from abs_spark.executor import on_executor
from abs_spark.foreach.sealed import Sealed
from abs_spark.foreach.views import View
from abs_spark.logs import show_logs
from abs_spark.schema import conform
from abs_spark.settled import settle
from abs_spark.target import Target, group_of, groups

REPORT = pa.schema([pa.field("report", pa.string(), nullable=False)])
REPORT_DDL = "report string"

_KEPT = 8


@dataclass(frozen=True, slots=True)
class Part:
    """One sink's part of a pass.

    Args:
        number: of the sink, in the job's register.
        prefix: stands before its columns' names in a digest of the epoch's rows.
    """

    number: int
    target: Target
    view: View
    prefix: str


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a pass are told.

    Args:
        sealed: of ``tuple[Part, ...]``.
        task: as the coordinator began the epoch; partition and attempt are each task's own.
        own: whether the register lies in the sinks' own system, and nothing else is written.
        drain: the epoch was decided before: rows are counted, and not written.
        digests: whether an epoch that comes again can be told by nothing but its rows.
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
            report = take_part(work, batches)
        yield pa.RecordBatch.from_pylist([{"report": report}], schema=REPORT)

    return write


def take_part(work: Work, batches: Iterator[pa.RecordBatch]) -> str:
    """A task's whole work; its shares, one of each sink, as text.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    show_logs()
    parts: tuple[Part, ...] = work.sealed.open()
    number = partition()
    if number >= STRIDE:
        raise ProtocolError(
            f"A stage of {number + 1} tasks or more.",
            remedy=f"coalesce the micro-batch to fewer than {STRIDE} partitions.",
        )
    with ExitStack() as undo:
        lanes = _lanes(work, parts, number, undo)
        for batch in batches:
            for lane in lanes:
                lane.write(batch)
        shares = [lane.share() for lane in lanes]
        undo.pop_all()
    settle()
    return shares_to_text(number, [part.number for part in parts], shares)


def _lanes(work: Work, parts: Sequence[Part], partition: int, undo: ExitStack) -> list[_Lane]:
    """One for each part; those that share a transaction of the task have one way out."""
    targets = {part.number: part.target for part in parts}
    outs: dict[int, _Out] = {}
    for numbers in groups(targets):
        group = group_of({number: targets[number] for number in numbers})
        if group.by_task:
            task = _task(work, min(numbers), partition)
            shared = _Shared(group, task, undo)
            outs |= dict.fromkeys(numbers, shared)
    for part in parts:
        if part.number not in outs:
            outs[part.number] = _Own(part, work, _task(work, part.number, partition), undo)
    return [_Lane(work, part, outs[part.number]) for part in parts]


class _Out(Protocol):
    """What takes the rows of one sink or several."""

    def write(self, sink: int, rows: pa.RecordBatch) -> None: ...

    def pre_commit(self) -> tuple[int, Committable | None]:
        """The rows, and their handle; nothing when it is called again."""
        ...


class _Own:
    """One sink's own writer; an empty share costs no transaction."""

    def __init__(self, part: Part, work: Work, task: Task, undo: ExitStack) -> None:
        self._part = part
        self._work = work
        self._task = task
        self._undo = undo
        self._writer: Writer | None = None
        self._rows = 0

    def write(self, sink: int, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = kept_sink(self._part.target, self._work).writer(self._task)
            self._undo.callback(self._writer.abort)
        self._writer.write(rows)
        self._rows += rows.num_rows

    def pre_commit(self) -> tuple[int, Committable | None]:
        return self._rows, None if self._writer is None else self._writer.pre_commit()


class _Shared:
    """One transaction of the task, for several sinks: its handle bears the number of the first."""

    def __init__(self, group: SinkGroup, task: Task, undo: ExitStack) -> None:
        self._writer = group.writer(task)
        self._rows = 0
        undo.callback(self._writer.abort)

    def write(self, sink: int, rows: pa.RecordBatch) -> None:
        self._writer.write(sink, rows)
        self._rows += rows.num_rows

    def pre_commit(self) -> tuple[int, Committable | None]:
        rows, self._rows = self._rows, 0
        return rows, None if rows == 0 else self._writer.pre_commit()


class _Lane:
    """One sink's rows in one task."""

    def __init__(self, work: Work, part: Part, out: _Out) -> None:
        self._work = work
        self._part = part
        self._out = out
        self._rows = 0
        self._digest = empty_digest(part.view.schema) if work.digests else None

    def write(self, batch: pa.RecordBatch) -> None:
        rows = self._part.view.of(batch)
        if rows.num_rows == 0:
            return
        self._rows += rows.num_rows
        if self._work.drain and self._digest is None:
            return
        fitting = conform(rows, self._part.view.schema)
        if self._digest is not None:
            self._digest += row_digest(fitting)
        if not self._work.drain:
            self._out.write(self._part.number, fitting)

    def share(self) -> Share:
        digest = None if self._digest is None else _prefixed(self._digest, self._part.prefix)
        if self._work.drain:
            return Drained(self._rows, digest)
        rows, made = self._out.pre_commit()
        return Wrote(rows, made, digest)


def _task(work: Work, number: int, partition: int) -> Task:
    """What the sink of that number does in the task."""
    told = work.task
    return Task(
        register=told.register,
        job=told.job,
        generation=told.generation,
        epoch=told.epoch,
        partition=number * STRIDE + partition,
        attempt=secrets.token_hex(8),
        frontier=told.frontier,
        abandoned=told.abandoned,
    )


_sinks: dict[tuple[Target, str, int, bool], Sink] = {}


def kept_sink(target: Target, work: Work) -> Sink:
    """The sink, as it is kept in this worker process from epoch to epoch of one run."""
    key = (target, work.task.register, work.task.generation, work.own)
    sink = _sinks.pop(key, None)
    if sink is None:
        for old in [k for k in _sinks if k[:2] == key[:2]]:
            _sinks.pop(old).close()  # of an earlier run
        while len(_sinks) >= _KEPT:
            _sinks.pop(next(iter(_sinks))).close()
        sink = target.sink(alone=work.own)
    _sinks[key] = sink
    return sink


def _prefixed(digest: RowDigest, prefix: str) -> RowDigest:
    return RowDigest(
        digest.total, tuple((f"{prefix}{name}", sum_) for name, sum_ in digest.columns)
    )


def shares_to_text(partition: int, numbers: Sequence[int], shares: Sequence[Share]) -> str:
    """A task's report."""
    return json.dumps([partition, [_to_json(*pair) for pair in zip(numbers, shares, strict=True)]])


def _to_json(number: int, share: Share) -> list[object]:
    made = share.committable if isinstance(share, Wrote) else None
    return [
        number,
        isinstance(share, Drained),
        share.rows,
        None if made is None else committable_to_json(made),
        None if share.digest is None else share.digest.to_text(),
    ]


def shares_of(reports: Sequence[str]) -> list[Share]:
    """All shares of a pass.

    Raises:
        ProtocolError: two reports are of one partition.
    """
    seen: set[int] = set()
    shares: list[Share] = []
    for text in reports:
        partition, told = json.loads(text)
        if partition in seen:
            raise ProtocolError(
                f"Spark returned two results of partition {partition}.",
                remedy="restart the query: the epoch is written again. If it comes again, please "
                "report it with the version of Spark.",
            )
        seen.add(partition)
        for _, drained, rows, made, digest in told:
            read = None if digest is None else read_row_digest(digest)
            if drained:
                shares.append(Drained(rows, read))
            else:
                held = None if made is None else committable_from_json(made)
                shares.append(Wrote(rows, held, read))
    return shares
