"""The contract of an operator, and the stateless operators.

An operator takes and emits elements; it knows no channels, barriers or snapshots. Its state lives
in the ``Context``, which the task copies at a barrier and restores before the first element.
``on_end`` is called again after a recovery, so what it emits must leave the operator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from abs_core.barriers.elements import Batch
from abs_core.errors import RowError, SchemaError
from abs_core.model import Committable

Emit = Callable[[Batch], None]
Row = dict[str, Any]


class Operator:
    """One parallel instance. Called by one thread at a time; the default methods do nothing."""

    finished = True
    """Of a source: whether there is nothing more to read."""

    def poll(self, emit: Callable[[Any], None]) -> bool:
        """Of a source: emit available data or a watermark; returns whether there was any."""
        return False

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        """Take one element of input ``port``, in the order of the operator's inputs."""

    def on_watermark(self, time: int, emit: Emit) -> None:
        """Every input has reached this event time."""

    def on_end(self, emit: Emit) -> None:
        """No input will deliver data any more."""

    def pre_commit(self, checkpoint: int) -> tuple[Committable, ...]:
        """Prepare the state for its copy; a sink returns handles not known to be decided.

        In a source, UnavailableError fails the checkpoint and not the task.
        """
        return ()

    def decided(self, checkpoint: int) -> None:
        """The checkpoint is decided and committed."""

    def close(self) -> None:
        """Free this process's resources."""


class Stateless(Operator):
    """Applies ``function`` to each element by itself."""

    def __init__(self, function: Callable[[Batch], Iterable[Batch]]) -> None:
        self._function = function

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        for out in self._function(batch):
            emit(out)


def passing(context: Any) -> Operator:
    """Passes each element on: union, and both ends of a loop."""
    return Stateless(lambda batch: (batch,))


def event_times(batch: pa.RecordBatch, column: str) -> pa.Array:
    """A column of integers or timestamps, as integers in its own unit.

    Raises SchemaError for a missing column or another type, RowError for a null.
    """
    if column not in batch.schema.names:
        raise SchemaError(
            f"The time {column!r} is not in the batch's columns {batch.schema.names}.",
            remedy="name a column that the operator's input has.",
        )
    times = batch.column(column)
    if not (pa.types.is_integer(times.type) or pa.types.is_timestamp(times.type)):
        raise SchemaError(
            f"The time {column} is a {times.type}; it must be integer or timestamp.",
            remedy="cast it; before a window a `map` can, for `EventTime` the source must.",
        )
    if times.null_count:
        raise RowError(
            f"A row has no time: {column} is null.",
            remedy="filter such rows out before the window, or fill the column at the source.",
        )
    return times.cast(pa.int64()) if pa.types.is_timestamp(times.type) else times


def emit_rows(rows: list[Row], schema: pa.Schema, emit: Emit) -> None:
    """Emit rows as one batch, if there are any."""
    if rows:
        emit(pa.RecordBatch.from_pylist(rows, schema=schema))
