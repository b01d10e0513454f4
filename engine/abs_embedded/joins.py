"""The join by key of ``Stream.join``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from abs_core.barriers.elements import Batch
from abs_core.errors import SchemaError
from abs_embedded.context import TaskContext
from abs_embedded.operators import Emit, Operator, Row, emit_rows
from abs_embedded.state.codecs import JSON, Codec
from abs_embedded.state.keygroups import encode_keys, key_kind


class Join(Operator):
    """Inner join by key of two streams, over the whole life of the job: each pair once.

    Args:
        keys: of the left and of the right rows.
        merge: makes the joined row of a left and a right one.
        codec: for the rows; ``PICKLE`` also takes timestamps and bytes, which JSON cannot.
    """

    def __init__(
        self,
        context: TaskContext,
        keys: tuple[Sequence[str], Sequence[str]],
        merge: Callable[[Row, Row], Row],
        schema: pa.Schema,
        codec: Codec[Row] = JSON,
    ) -> None:
        self._keys, self._merge, self._schema = keys, merge, schema
        self._sides = (context.list("left", codec), context.list("right", codec))
        self._kinds: list[list[str] | None] = [None, None]

    def on_batch(self, port: int, batch: Batch, emit: Emit) -> None:
        rows: list[Row] = []
        columns = [batch.column(name) for name in self._keys[port]]
        keys = encode_keys(columns)
        self._check(port, [key_kind(column.type) for column in columns])
        here, there = self._sides[port], self._sides[1 - port]
        for key, row in zip(keys, batch.to_pylist(), strict=True):
            here.append(key, row)
            others = there.get(key)
            # A copy for each pair: `merge` may change what it is given.
            pairs = (({**row}, o) if port == 0 else (o, {**row}) for o in others)
            rows += [self._merge(left, right) for left, right in pairs]
        emit_rows(rows, self._schema, emit)

    def _check(self, port: int, kinds: list[str]) -> None:
        """Raise ``SchemaError`` if equal values of both sides would be different keys."""
        self._kinds[port] = kinds
        left, right = self._kinds
        if left is not None and right is not None and left != right:
            raise SchemaError(
                f"The left side of a join has keys of {left}, the right side of {right}: equal keys "
                "would not meet.",
                remedy="cast the key of one side before its `key_by`.",
            )
