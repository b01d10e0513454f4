"""Windows of event time, tumbling and sliding, for ``Stream.window``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.barriers.elements import END_OF_TIME
from abs_core.errors import ConfigError, OptionError
from abs_embedded.context import TaskContext
from abs_embedded.keyed import folded, folding
from abs_embedded.operators import Emit, Operator, event_times
from abs_embedded.state.codecs import BYTES, INT64, TEXT
from abs_embedded.state.keygroups import decode_keys, encode_keys
from abs_embedded.state.operator_state import Mode, OperatorList


class Window(Operator):
    """Folds a column by key and window of event time; emits a window when event time has passed it.

    A late record opens its window again: it is emitted as another row, with the late records.
    Windows are [start, start + size), one every ``slide``.

    Args:
        time: the column of the event time: integer or timestamp, in its own unit.
        size: of a window, in that unit.
        slide: between the starts of two windows; ``size`` for tumbling windows.
    """

    def __init__(
        self,
        context: TaskContext,
        key: Sequence[str],
        time: str,
        size: int,
        slide: int,
        fold: str,
        column: str | None,
        out: str,
    ) -> None:
        if size <= 0 or slide <= 0:
            raise OptionError(
                f"A window of {size} every {slide} is not possible.",
                remedy="give lengths above zero.",
            )
        self._over = folding(fold, column)
        self._key, self._time, self._size, self._slide = [*key], time, size, slide
        self._fold, self._column, self._out = fold, column, out
        # Timers of its own name: those of a function that had this id are none of a window. Earlier
        # releases kept both under one name.
        earlier = {"windows", "timers"} <= {*context.unclaimed()}
        self._values = context.map("windows", INT64, INT64)
        self._timers = context.timers("timers" if earlier else "window timers")
        self._types = context.lists.list("key types", BYTES, Mode.UNION)
        # One is enough: of the union of all tasks, each restart would make as many times more.
        self._types.put(self._types.get()[:1])
        self._check(context.lists.list("window", TEXT, Mode.UNION))

    def _check(self, made: OperatorList[str]) -> None:
        """Raise ``ConfigError`` if restored windows have another length or fold than the code's."""
        now = f"{self._fold} over {self._size}"
        before = sorted({*made.get()} - {now})
        if before and len(self._timers):
            raise ConfigError(
                f"The snapshot has open windows of {', '.join(before)}; the code declares {now}.",
                remedy="give the window another id, and allow `drop_state` for the open ones.",
            )
        made.put([now])

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        times = event_times(batch, self._time)
        newest = pc.subtract(times, _modulo(times, self._slide))
        for back in range(-(-self._size // self._slide)):
            starts = pc.subtract(newest, back * self._slide)
            inside = pc.less(pc.subtract(times, starts), self._size)
            self._add(batch.append_column("_start", starts).filter(inside))

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        by = [*self._key, "_start"]
        (*columns, begins), values = folded(batch, by, self._fold, self._column, pa.int64())
        keys, starts = encode_keys(columns), begins.to_pylist()
        before = pa.array(self._values.get_many(keys, starts), pa.int64())
        now = pc.coalesce(self._over(before, values), before, values)
        self._values.put_many(keys, starts, now.to_pylist())
        self._timers.register_many(keys, [start + self._size for start in starts])
        if not self._types.get():
            schema = pa.record_batch(columns, names=self._key).schema
            self._types.put([schema.serialize().to_pybytes()])

    def on_watermark(self, time: int, emit: Emit) -> None:
        due = self._timers.due(time)
        if not due:
            return
        keys = [key for _, key in due]
        starts = [at - self._size for at, _ in due]
        values = self._values.get_many(keys, starts)
        self._values.put_many(keys, starts, [None] * len(keys))
        names = [*self._key, "window_start", "window_end", self._out]
        ends = [at for at, _ in due]
        types = pa.ipc.read_schema(pa.py_buffer(self._types.get()[0])).types
        columns = decode_keys(keys, types)
        numbers = (pa.array(column, pa.int64()) for column in (starts, ends, values))
        emit(pa.record_batch([*columns, *numbers], names=names))

    def on_end(self, emit: Emit) -> None:
        self.on_watermark(END_OF_TIME, emit)


def _modulo(times: pa.Array, slide: int) -> pa.Array:
    remainder = pc.subtract(times, pc.multiply(pc.divide(times, slide), slide))
    return pc.if_else(pc.less(remainder, 0), pc.add(remainder, slide), remainder)
