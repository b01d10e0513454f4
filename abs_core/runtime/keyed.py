"""Operators with keyed state: reduce, process with timers. Their input is partitioned by the key.

``Reducing`` works on whole batches; ``Process`` row by row, for convenience. Windows and joins are
written on the same contract, in modules that are loaded where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.errors import OptionError
from abs_core.runtime.context import TaskContext
from abs_core.runtime.operators import Emit, Operator, Row, emit_rows
from abs_core.state.codecs import INT64
from abs_core.state.contracts import ArrayCodec
from abs_core.state.keygroups import encode_keys

FOLDS: dict[str, Callable[..., pa.Array]] = {
    "sum": pc.add,
    "count": pc.add,
    "min": pc.min_element_wise,
    "max": pc.max_element_wise,
}
"""Arrow's name of a fold within a batch -> how it goes on over batches."""


def folding(fold: str, column: str | None) -> Callable[..., pa.Array]:
    """How the fold goes on over batches.

    Raises:
        OptionError: there is no such fold, or it has no column to fold.
    """
    if fold not in FOLDS or (fold != "count" and column is None):
        raise OptionError(f"There is no fold {fold!r} of {column!r}; choose of {[*FOLDS]}.")
    return FOLDS[fold]


def folded(
    batch: pa.RecordBatch, by: list[str], fold: str, column: str | None, to: pa.DataType
) -> tuple[list[pa.Array], pa.Array]:
    """One batch folded: the columns ``by``, each combination once, and the value of each."""
    over = column or by[0]
    groups = pa.Table.from_batches([batch]).group_by(by)
    grouped = groups.aggregate([(over, fold)]).combine_chunks()
    columns = [grouped[name].chunk(0) for name in by]
    return columns, grouped[f"{over}_{fold}"].chunk(0).cast(to)


class Reducing(Operator):
    """Folds a column by key, over the whole life of the job; emits the new value of each key it met.

    Args:
        column: to fold; with ``count`` it is not looked at.
        fold: one of ``FOLDS``.
        out: name of the column that holds the result.
    """

    def __init__(
        self,
        context: TaskContext,
        key: Sequence[str],
        fold: str,
        column: str | None,
        out: str,
        codec: ArrayCodec[Any] = INT64,
    ) -> None:
        self._key, self._fold, self._column, self._out = [*key], fold, column, out
        self._codec = codec
        self._state = context.reducing(out, codec, _never, folding(fold, column))

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        columns, values = folded(batch, self._key, self._fold, self._column, self._codec.type)
        now = self._state.add_array(encode_keys(columns), values)
        emit(pa.record_batch([*columns, now], names=[*self._key, self._out]))


def _never(present: Any, added: Any) -> Any:
    raise AssertionError("folded by whole arrays only")


@dataclass(slots=True)
class KeyedContext:
    """What a process function works with; ``context`` declares states, ``key`` names them.

    Args:
        key: of the row, or of the timer, as canonical bytes: pass it to the states.
        time: event time that all inputs have got to; None before the first watermark.
    """

    context: TaskContext
    key: bytes = b""
    time: int | None = None
    states: dict[str, Any] = field(default_factory=dict)

    def set_timer(self, at: int) -> None:
        """Call ``on_timer`` for this key once event time has got to ``at``, or the data ends."""
        self.states["timers"].register(self.key, at)


ProcessFunction = Callable[[Row, KeyedContext], Iterable[Row]]
TimerFunction = Callable[[int, KeyedContext], Iterable[Row]]


class Process(Operator):
    """A user's function over rows, with state and timers.

    Args:
        declare: declares states, once per task: name -> a state of the context.
        schema: of what comes out.
    """

    def __init__(
        self,
        context: TaskContext,
        key: Sequence[str],
        function: ProcessFunction,
        schema: pa.Schema,
        declare: Callable[[TaskContext], dict[str, Any]],
        on_timer: TimerFunction | None = None,
    ) -> None:
        self._key, self._function, self._schema = [*key], function, schema
        self._on_timer = on_timer
        self._context = KeyedContext(context, states=declare(context))
        self._timers = context.timers() if on_timer is not None else None
        self._context.states["timers"] = self._timers

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        rows: list[Row] = []
        keys = encode_keys([batch.column(name) for name in self._key])
        for key, row in zip(keys, batch.to_pylist(), strict=True):
            self._context.key = key
            rows += self._function(row, self._context)
        emit_rows(rows, self._schema, emit)

    def on_watermark(self, time: int, emit: Emit) -> None:
        self._context.time = time
        self._fire(time, emit)

    def on_end(self, emit: Emit) -> None:
        self._fire((1 << 63) - 1, emit)

    def _fire(self, until: int, emit: Emit) -> None:
        if self._timers is None or self._on_timer is None:
            return
        rows: list[Row] = []
        for at, key in self._timers.due(until):
            self._context.key = key
            rows += self._on_timer(at, self._context)
        emit_rows(rows, self._schema, emit)
