"""Operators with keyed state: reduce, and process with timers. Their input is partitioned by key.

``Reducing`` works on whole batches; ``Process`` row by row. Windows and joins use the same
contract, in modules that are loaded on use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.barriers.elements import END_OF_TIME
from abs_core.errors import ConfigError, OptionError, RowError, SchemaError
from abs_embedded.context import TaskContext
from abs_embedded.operators import Emit, Operator, Row, emit_rows
from abs_embedded.schemas import check_fold
from abs_embedded.state.codecs import INT64, ArrayCodec
from abs_embedded.state.keygroups import encode_keys
from abs_embedded.state.timers import Timers


def _sum(present: pa.Array, added: pa.Array) -> pa.Array:
    try:
        return pc.add_checked(present, added)
    except pa.ArrowInvalid as error:
        raise _beyond() from error


def _beyond() -> RowError:
    return RowError(
        "A sum does not fit into 64 bits.", remedy="sum a column of floats, or of a larger unit."
    )


WIDE = "\0wide"
"""A column's name that no user gives."""


def _narrowed(values: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return values.cast(to)
    except pa.ArrowInvalid as error:
        if pa.types.is_decimal(values.type) and values.type.scale == 0 and to == pa.int64():
            raise _beyond() from error
        raise


def _may_wrap(column: pa.Array) -> bool:
    """Whether some sum of these values could exceed 64 bits: Arrow's sum would wrap around."""
    if not pa.types.is_integer(column.type):
        return False
    least, most = pc.min_max(column).as_py().values()
    return least is not None and max(-least, most) * len(column) >= 1 << 63


FOLDS: dict[str, Callable[..., pa.Array]] = {
    "sum": _sum,
    "count": pc.add,
    "min": pc.min_element_wise,
    "max": pc.max_element_wise,
}
"""Arrow's name of a fold within a batch -> how it goes on over batches."""


def folding(fold: str, column: str | None) -> Callable[..., pa.Array]:
    """The function that combines the fold's results over batches.

    Raises OptionError for an unknown fold, or a missing column.
    """
    if fold not in FOLDS or (fold != "count" and column is None):
        raise OptionError(
            f"There is no fold {fold!r} of {column!r}.",
            remedy=f"choose one of {[*FOLDS]}; all but count need a column.",
        )
    return FOLDS[fold]


def folded(
    batch: pa.RecordBatch, by: list[str], fold: str, column: str | None, to: pa.DataType
) -> tuple[list[pa.Array], pa.Array]:
    """Fold one batch: each combination of the columns ``by`` once, and its value, without nulls.

    Raises:
        RowError: a sum is beyond 64 bits.
        SchemaError: a column is missing, or cannot be folded so.
    """
    over = column or by[0]
    if column is not None and column in batch.schema.names:
        check_fold(fold, column, by, batch.schema.field(column).type, to)
    try:
        table = pa.Table.from_batches([batch])
        if fold == "sum" and _may_wrap(batch[over]):
            table = table.append_column(WIDE, table[over].cast(pa.decimal128(38)))
            over = WIDE
        grouped = table.group_by(by).aggregate([(over, fold)]).combine_chunks()
        values = _narrowed(grouped[f"{over}_{fold}"].chunk(0), to)
    except (pa.ArrowException, KeyError) as error:
        raise SchemaError(
            f"No {fold} of {column or by[0]} by {', '.join(by)} can be kept as {to}: {error}.",
            remedy="cast the column before it; `reduce` keeps fractions with codec=FLOAT64.",
        ) from error
    return [grouped[name].chunk(0) for name in by], values


class Reducing(Operator):
    """Folds a column by key, over the whole life of the job; emits each new value.

    Args:
        column: to fold; ``count`` counts its non-null values, or without a column, rows.
        fold: one of ``FOLDS``.
        out: name of the result's column.
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


ROUNDS = 100_000
"""How often in a row timers may set timers that are due at once."""


@dataclass(slots=True)
class KeyedContext:
    """Context of a process function; ``context`` declares states, ``key`` names their entries.

    Args:
        key: of the row, or of the timer, as canonical bytes: pass it to the states.
        time: event time that all inputs have reached; None before the first watermark,
            ``END_OF_TIME`` after the last record.
    """

    context: TaskContext
    key: bytes = b""
    time: int | None = None
    states: dict[str, Any] = field(default_factory=dict)
    timers: Timers | None = None

    def set_timer(self, at: int) -> None:
        """Call ``on_timer`` for this key once event time reaches ``at``, or the data ends.

        A timer set by ``on_timer`` for a past time fires at once. So one that sets itself again
        must stop when ``time`` is ``END_OF_TIME``. Raises ConfigError without an ``on_timer``.
        """
        if self.timers is None:
            raise ConfigError(
                "A timer was set, but `process` has no on_timer to call.",
                remedy="give `process` an on_timer.",
            )
        self.timers.register(self.key, at)


ProcessFunction = Callable[[Row, KeyedContext], Iterable[Row]]
TimerFunction = Callable[[int, KeyedContext], Iterable[Row]]


class Process(Operator):
    """A user's function over rows, with state and timers.

    Args:
        declare: declares states, once per task: name -> a state of the context.
        schema: of the output.
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
        self._context.timers = context.timers() if on_timer is not None else None

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        rows: list[Row] = []
        keys = encode_keys([batch.column(name) for name in self._key])
        for key, row in zip(keys, batch.to_pylist(), strict=True):
            self._context.key = key
            for out in self._function(row, self._context):
                # A copy: a generator may yield one object again and again. By a loop: quickest.
                rows.append({**out})  # noqa: PERF401
        emit_rows(rows, self._schema, emit)

    def on_watermark(self, time: int, emit: Emit) -> None:
        self._context.time = time
        if (timers := self._context.timers) is None or self._on_timer is None:
            return
        # What a timer sets is due now, too, if its time has come: not when the next watermark happens
        # to come, which differs from run to run.
        for _ in range(ROUNDS):
            rows: list[Row] = []
            for at, self._context.key in (due := timers.due(time)):
                rows += [{**out} for out in self._on_timer(at, self._context)]
            emit_rows(rows, self._schema, emit)
            if not due:
                return
        raise ConfigError(
            f"Timers have set further timers that were due at once, {ROUNDS:,} times in a row.",
            remedy="set none when `time` is END_OF_TIME: at the end of the data all are due.",
        )

    def on_end(self, emit: Emit) -> None:
        self.on_watermark(END_OF_TIME, emit)
