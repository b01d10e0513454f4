"""Join by key: what ``Stream.join`` loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from abs_core.runtime.context import TaskContext
from abs_core.runtime.elements import Batch
from abs_core.runtime.operators import Emit, Operator, Row, emit_rows
from abs_core.state.codecs import JSON
from abs_core.state.keygroups import encode_keys


class Join(Operator):
    """Inner join by key of two streams, over the whole life of the job: each pair once.

    Args:
        keys: of the left and of the right rows.
        merge: a left and a right row in, the joined row out.
    """

    def __init__(
        self,
        context: TaskContext,
        keys: tuple[Sequence[str], Sequence[str]],
        merge: Callable[[Row, Row], Row],
        schema: pa.Schema,
    ) -> None:
        self._keys, self._merge, self._schema = keys, merge, schema
        self._sides = (context.list("left", JSON), context.list("right", JSON))

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        rows: list[Row] = []
        keys = encode_keys([batch.column(name) for name in self._keys[port]])
        here, there = self._sides[port], self._sides[1 - port]
        for key, row in zip(keys, batch.to_pylist(), strict=True):
            here.append(key, row)
            others = there.get(key)
            rows += [self._merge(*((row, o) if port == 0 else (o, row))) for o in others]
        emit_rows(rows, self._schema, emit)
