"""Writes and pre-commits, or drains, a task's rows of one epoch, for one or several sinks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from abs_core import protocol
from abs_core.contracts import RegisterStore, Task, Writer
from abs_core.deadletters import Count, with_counts
from abs_core.effort import Effort
from abs_core.errors import AbsError, NotPreparedError, TargetError
from abs_core.events import Observer, PreCommitted
from abs_core.model import Committable, Drained, JobState, Share, Wrote
from abs_core.patience.waiting import retried
from abs_core.protocol import Refused
from abs_core.several import GroupWriter
from abs_sinks.rowhash import empty_digest, row_digest
from abs_spark.progress import observer_of
from abs_spark.schema import to_target_schema
from abs_spark.sink_spec import SinkSpec

W = TypeVar("W", bound=Writer | GroupWriter)


@dataclass(eq=False, repr=False)
class TaskOutput(Generic[W]):
    """Takes the rows of one sink, or of several that share a transaction.

    Args:
        make: makes the writer at the first row, so that an empty share costs no transaction.
        put: passes a sink's rows to the writer.
        partition: of the input; for display, as ``sinks``.
        sinks: their names, if they have any.
    """

    make: Callable[[], W]
    put: Callable[[W, int, pa.RecordBatch], None]
    task: Task
    partition: int
    sinks: str
    observe: Observer
    _writer: W | None = field(default=None, init=False)
    _rows: int = field(default=0, init=False)
    _made: bool = field(default=False, init=False)
    _began: float = field(default=0.0, init=False)
    _dead: dict[int, Count] = field(default_factory=dict, init=False)
    _given: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    _seconds: float = field(default=0.0, init=False)
    _retried: tuple[int, float] = field(default=(0, 0.0), init=False)

    def write(self, sink: int, rows: pa.RecordBatch) -> None:
        began = time.monotonic()
        if self._writer is None:
            self._began, self._retried = began, retried(None)
            self._writer = self.make()
        self.put(self._writer, sink, rows)
        self._rows += rows.num_rows
        had, size = self._given.get(sink, (0, 0))
        self._given[sink] = had + rows.num_rows, size + rows.nbytes
        self._seconds += time.monotonic() - began

    def give_away(self, rows: int) -> None:
        """So many of the rows are dead letters, which another sink has."""
        self._rows -= rows

    def bury(self, sink: int, letters: pa.RecordBatch, count: Count) -> None:
        """Write dead letters of another sink, which ``count`` names."""
        self.write(sink, letters)
        had = self._dead.get(count.sink, replace(count, rows=0, dead=0))
        self._dead[count.sink] = replace(
            had, rows=had.rows + count.rows, dead=had.dead + count.dead
        )

    def pre_commit(self) -> tuple[int, Committable | None, Effort | None]:
        """Pre-commit the rows; their number and handle, and the effort. A second call returns none."""
        rows, self._rows = self._rows, 0
        if self._writer is None or (rows == 0 and not self._given):
            return 0, None, None
        began, by_sink, self._given = time.monotonic(), self._given, {}
        made = None
        if rows:
            self._made, made = True, self._writer.pre_commit()
        elif not self._made:
            self._writer.abort()  # another sink has got all of its rows, as dead letters
        if made is not None:
            if self._dead:
                made = with_counts(made, self._dead.values())
            self.observe(
                PreCommitted(
                    job=self.task.job,
                    epoch=self.task.epoch,
                    partition=self.partition,
                    rows=rows,
                    seconds=time.monotonic() - self._began,
                    sinks=self.sinks,
                    handle=str(made.handle),
                )
            )
        (had, before), (retries, waited) = self._retried, retried(None)
        effort = Effort(
            tuple((sink, *amounts) for sink, amounts in by_sink.items()),
            self._seconds,
            time.monotonic() - began,
            retries - had,
            waited - before,
        )
        return rows, made, effort

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def output_to(
    targets: Mapping[str, SinkSpec],
    make: Callable[[], W],
    put: Callable[[W, int, pa.RecordBatch], None],
    task: Task,
    partition: int,
) -> TaskOutput[W]:
    """The output of a task to these sinks, by name; what else it shows and tells follows from them."""
    return TaskOutput(make, put, task, partition, ", ".join(targets), observer_of(targets))


def to_one(writer: Writer, sink: int, rows: pa.RecordBatch) -> None:
    """A sink has a writer of its own."""
    writer.write(rows)


def to_group(writer: GroupWriter, sink: int, rows: pa.RecordBatch) -> None:
    """Several sinks have one."""
    writer.write(sink, rows)


@dataclass(eq=False, repr=False)
class SinkShare:
    """One sink's rows in one task.

    Args:
        schema: of its rows.
        out: takes them; None: the epoch is already decided, so they are counted and not written.
        digests: whether a replay can be recognised by its rows only.
        of: selects its rows of a batch.
        sink: its number, for ``out``.
        prefix: of its column names in the digest.
    """

    schema: pa.Schema
    out: TaskOutput[Any] | None
    digests: InitVar[bool]
    of: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch
    sink: int = 0
    prefix: str = ""
    _rows: int = field(default=0, init=False)

    def __post_init__(self, digests: bool) -> None:
        self._digest = empty_digest(self.schema) if digests else None

    def write(self, batch: pa.RecordBatch) -> None:
        rows = self.of(batch)
        if rows.num_rows == 0:
            return
        self._rows += rows.num_rows
        if self.out is None and self._digest is None:
            return
        fitting = to_target_schema(rows, self.schema)
        if self._digest is not None:
            self._digest += row_digest(fitting)
        if self.out is not None:
            self.out.write(self.sink, fitting)

    def share(self) -> Share:
        digest = None if self._digest is None else self._digest.prefixed(self.prefix)
        if self.out is None:
            return Drained(self._rows, digest)
        rows, made, effort = self.out.pre_commit()
        return Wrote(rows, made, digest, effort)


def task_of(state: JobState, epoch: int, partition: int) -> Task:
    """What a try of a task does, as the coordinator has begun the epoch."""
    return Task(
        register=state.register,
        job=state.job,
        generation=state.generation,
        epoch=epoch,
        partition=partition,
        attempt=secrets.token_hex(8),
        frontier=state.frontier,
        abandoned=state.abandoned,
    )


def take_shares(
    sinks: Sequence[SinkShare],
    batches: Iterable[pa.RecordBatch],
    task: Task,
    register: Callable[[], RegisterStore],
) -> list[Share]:
    """Pass all of a task's rows to every sink, then pre-commit; the share of each.

    Deduplication is by whole epochs (I8): whatever rows a replay gives to this partition, all are
    written or all are drained.

    Args:
        register: the job's; read if the target fails.

    Raises:
        AbsError: nothing of the task's rows becomes visible.
    """
    try:
        read = 0
        for batch in batches:
            read += batch.num_rows
            for sink in sinks:
                sink.write(batch)
        return _having_read(read, [sink.share() for sink in sinks])
    except BaseException as error:
        for out in {sink.out for sink in sinks if sink.out is not None}:
            out.abort()
        if isinstance(error, TargetError | NotPreparedError):
            raise_if_fenced(register, task, error)
        raise


def _having_read(rows: int, shares: list[Share]) -> list[Share]:
    """The shares, the first of which tells how many rows of the source the task had for all."""
    for place, share in enumerate(shares):
        if isinstance(share, Wrote):
            effort = replace(share.effort or Effort(), read=rows)
            return [*shares[:place], replace(share, effort=effort), *shares[place + 1 :]]
    return shares


def raise_if_fenced(register: Callable[[], RegisterStore], task: Task, cause: AbsError) -> None:
    """After a failure, check whether a newer run has taken over, as it aborts the older run's handles.

    Raises:
        FencedError: it has; from ``cause``. Nothing is raised if this cannot be checked.
    """
    try:
        stored = register().load(task.job)
    except TargetError:
        return
    if stored is None:
        return
    planned = protocol.plan(stored.state, task.generation, task.epoch, gaps_allowed=True)
    if isinstance(planned, Refused):
        raise planned.error from cause
