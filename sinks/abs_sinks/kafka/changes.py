"""``write=changes``: a delete is a record without a value, and an epoch's records are in order.

The tasks' segments keep each record's position beside it; the driver, which sends all of an epoch in
one transaction, sorts by it. An epoch that is larger than ``SORT_BYTES`` is read several times, with a
part of the keys each time: the order is then that of each key, and not of all records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_text, type_name
from abs_core.errors import RowError, SchemaError
from abs_core.model import Committable
from abs_sinks.kafka.columnar.encoder import murmur2
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import SEGMENT
from abs_sinks.options import Deletes
from abs_sinks.refusals import Code, Reason, refuse

SORT_BYTES = 256 << 20
"""Bytes of segments that are sorted at once: about what the driver holds meanwhile."""

_POSITION = "abs:position"
_KEY = SEGMENT.names[0]

Batches = Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Changes:
    """How a batch of changes is read.

    Args:
        key, value, operation, positions: their columns' indices.
    """

    deletes: Deletes
    key: int
    value: int
    operation: int
    positions: tuple[int, ...]

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise ``BadValuesError`` for a change without key, operation or position."""
        names = batch.schema.names
        for at in (self.key, self.operation, *self.positions):
            code = Code.KEY_MISSING if at == self.key else Code.NULL
            reason = Reason(code, names[at], "are NULL, and a change needs one", "correct them")
            refuse(reason, batch.column(at).is_null())

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, without the values of deletes."""
        operation = batch.column(self.operation)
        deleted: Any = operation
        if self.deletes.values:
            deleted = pc.is_in(operation.cast(pa.string()), pa.array(self.deletes.values))
        columns = list(batch.columns)
        old = columns[self.value]
        columns[self.value] = pc.if_else(deleted, pa.scalar(None, old.type), old)
        fields = [field.with_nullable(True) for field in batch.schema]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def segment(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a segment."""
        return pa.schema(
            [
                *SEGMENT,
                *(
                    pa.field(f"{_POSITION}{n}", schema.field(at).type)
                    for n, at in enumerate(self.positions)
                ),
            ]
        )


def plan_changes(schema: pa.Schema, options: KafkaOptions) -> Changes | None:
    """How to read the input's changes; None if it is no changes.

    Raises:
        SchemaError: a column is missing, of a type without a sure order, or would move records of a key
            to several partitions.
    """
    if options.write != "changes" or not schema.names:
        return None
    names = [name.lower() for name in schema.names]
    if "partition" in names:
        raise SchemaError(
            "write=changes chooses the partition by the key, and there is a column partition.",
            remedy="drop it.",
        )
    wanted = {
        "the record's key": "key",
        "its value": "value",
        "the option applyasdeletes": options.applyasdeletes.column,
        **{f"the option sequenceby ({name})": name for name in options.sequenceby},
    }
    for role, name in wanted.items():
        if name.lower() not in names:
            raise SchemaError(
                f"There is no column {name} ({role}) among {', '.join(schema.names)}.",
                remedy="select it, or correct the option.",
            )
    at = {name: names.index(name.lower()) for name in wanted.values()}
    for name in options.sequenceby:
        _check_position(name, schema.field(at[name]).type)
    operation, deletes = schema.field(at[options.applyasdeletes.column]), options.applyasdeletes
    if pa.types.is_boolean(operation.type) is bool(deletes.values):
        raise SchemaError(
            f"applyasdeletes names the column {operation.name} of type {type_name(operation.type)} "
            f"{'with' if deletes.values else 'without'} values.",
            remedy="a boolean column is named alone (is_deleted), another one with the values that "
            "delete (op=d).",
        )
    positions = tuple(at[name] for name in options.sequenceby)
    return Changes(deletes, at["key"], at["value"], at[deletes.column], positions)


def _check_position(name: str, kind: pa.DataType) -> None:
    types = pa.types
    if not (
        types.is_integer(kind)
        or types.is_decimal(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    ):
        why = (
            "text is ordered as text" if is_text(kind) else "its values have no order that is sure"
        )
        raise SchemaError(
            f"The column {name} of type {type_name(kind)} cannot be a position: {why}.",
            remedy="take integers, decimals, dates or times, such as the LSN of abs_spark.debezium().",
        )


def has_positions(schema: pa.Schema) -> bool:
    """Whether a segment's records are to be sorted."""
    return f"{_POSITION}0" in schema.names


def in_order(batches: Batches, segments: Sequence[Committable]) -> Iterator[pa.RecordBatch]:
    """The records of all segments as batches of ``SEGMENT``, those of a key by their positions.

    Args:
        batches: reads them all, as often as needed.

    Raises:
        RowError: two different changes have one key and one position.
    """
    held = sum(int(dict(segment.extra).get("length", 0)) for segment in segments)
    parts = max(1, ceil(held / SORT_BYTES))
    for part in range(parts):
        mine = [share for batch in batches() if (share := _share(batch, part, parts)).num_rows]
        if not mine:
            continue
        table = pa.Table.from_batches(mine)
        positions = [name for name in table.column_names if name.startswith(_POSITION)]
        _refuse_clashes(table, positions)
        # Dead letters have no position and come last; equal changes stay as they are.
        keys = [(name, "ascending") for name in positions]
        order = pc.sort_indices(table, sort_keys=keys)
        yield from table.take(order).select(SEGMENT.names).to_batches()


def _share(batch: pa.RecordBatch, part: int, parts: int) -> pa.RecordBatch:
    if parts == 1:
        return batch
    # Not the hash itself, whose remainder is the partition.
    codes = murmur2(pc.fill_null(batch.column(_KEY), b"")) // 65_521
    return batch.filter(pa.array(codes % parts == part))


def _refuse_clashes(table: pa.Table, positions: Sequence[str]) -> None:
    changes = table.filter(pc.is_valid(table[positions[0]]))
    shown = changes.append_column("abs:shown", pc.fill_null(changes["abs:value"], b"\xff"))
    groups = shown.group_by([_KEY, "abs:topic", *positions])
    counts = groups.aggregate([("abs:shown", "count_distinct")])
    clashes = counts.filter(pc.greater(counts["abs:shown_count_distinct"], 1))
    if clashes.num_rows:
        first = clashes.slice(0, 1).to_pylist()[0]
        place = ", ".join(str(first[name]) for name in positions)
        raise RowError(
            f"Two different changes of the key {first[_KEY]!r} have one position ({place}).",
            remedy="name columns in sequenceby that tell all changes of a key apart; nothing is "
            "committed.",
        )
