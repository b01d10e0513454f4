"""The function of ``mapInArrow`` that makes typed rows of Debezium's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from abs_core.errors import DataError
from abs_spark.cdc.assumed import converting
from abs_spark.cdc.convert import converter
from abs_spark.cdc.decode import Make
from abs_spark.cdc.envelope import Event, JsonEvents, NoChangeError, event, plain
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.placeholders import unchanged
from abs_spark.cdc.settings import Settings
from abs_spark.cdc.target import TargetColumn
from abs_spark.cdc.wire import Wire

PLACE = ("topic", "partition", "offset")
"""Columns of the input that name a record, where they are there."""


@dataclass(frozen=True)
class Rules:
    """What is made of events.

    Args:
        names: of operation, position, unchanged columns, and of what ``also`` adds.
        ignored: columns of the source that are not read.
        extra: whether the source may have columns that are not read.
        absent: whether events may lack columns of ``targets``.
        schemas: whether an event without a schema is refused.
        letters: whether an unreadable record becomes a row without an operation, a dead letter then.
        wires: how values are sent, where all events have one schema (Avro).
        also: fields of an ``Event`` that are added.
    """

    targets: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    names: tuple[str, ...]
    settings: Settings
    schema: pa.Schema
    value: str = "value"
    ignored: frozenset[str] = frozenset()
    extra: bool = False
    absent: bool = False
    schemas: bool = False
    letters: bool = False
    wires: Mapping[str, Wire] | None = None
    also: tuple[str, ...] = ()


@dataclass
class _Rows:
    """The columns of a batch that is made."""

    width: int
    columns: list[list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = [[] for _ in range(self.width)]

    def add(self, values: Sequence[Any]) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [pa.array(v, f.type) for v, f in zip(self.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class EventReader:
    """Reads batches of events; what ``mapInArrow`` calls in each task."""

    rules: Rules

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(self.rules)
        for batch in batches:
            yield task.read(batch)


class _Task:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._json = JsonEvents()
        self._readers: dict[tuple[int, bool], _RowReader] = {}
        self._wires: dict[int, Mapping[str, Wire]] = {}

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rules = self._rules
        rows = _Rows(len(rules.schema))
        values = batch.column(batch.schema.get_field_index(rules.value))
        if pa.types.is_struct(values.type):
            values = values.cast(plain(values.type))
        for number, value in enumerate(values.to_pylist()):
            if value is None:  # a tombstone
                continue
            try:
                rows.add(self._row(value))
            except MisreadError as error:
                place = _place(batch, number)
                if not rules.letters or isinstance(error, NoChangeError):
                    raise _unreadable(place, error) from None
                rows.add(self._letter(place, error, value))
        return rows.batch(rules.schema)

    def _row(self, value: Any) -> Sequence[Any]:
        rules = self._rules
        read = event(value, rules.wires) if isinstance(value, dict) else self._json.read(value)
        made, kept = self._reader(read).read(read)
        return [
            *(*made, read.op, read.position, kept),
            *(getattr(read, name) for name in rules.also),
        ]

    def _reader(self, read: Event) -> _RowReader:
        snapshot = read.op == "r"
        at = (id(read.wires), snapshot)
        if at not in self._readers:
            if read.wires is None and self._rules.schemas:
                raise MisreadError(
                    "has no schema, and schemas=True says that it has one",
                    "set value.converter.schemas.enable=true in Debezium; or leave schemas out, and "
                    "say how values are sent",
                )
            if read.wires is not None:
                self._wires[id(read.wires)] = read.wires  # keeps the id its own
            self._readers[at] = _RowReader(self._rules, read.wires, julian=snapshot)
        return self._readers[at]

    def _letter(self, place: str, error: MisreadError, value: Any) -> Sequence[Any]:
        """A row without key and operation, which a sink puts aside; ``unchanged`` says why."""
        rules = self._rules
        text = (
            value
            if isinstance(value, str)
            else value.decode(errors="replace")
            if isinstance(value, bytes)
            else str(value)
        )
        why = [f"{place} {error.why}", text]
        none = [None] * len(rules.targets)
        return [*none, None, None, why, *([None] * len(rules.also))]


class _RowReader:
    """Reads the rows of events of one schema, or of those without."""

    def __init__(self, rules: Rules, wires: Mapping[str, Wire] | None, *, julian: bool) -> None:
        self._rules = rules
        self._bare = wires is None
        self._names: Iterable[str] | None = None
        self._columns = []
        if wires is not None:
            self._check_names(wires.keys())
        for target in rules.targets:
            make = self._maker(target, wires, julian=julian)
            is_key = target.name in rules.key
            self._columns.append(
                (target.name, make, unchanged(target, rules.settings.unavailable), is_key)
            )

    def _maker(
        self, target: TargetColumn, wires: Mapping[str, Wire] | None, *, julian: bool
    ) -> Make:
        if wires is None:
            return converting(target, self._rules.settings, julian=julian)
        if target.name not in wires:
            return lambda value: value  # it may be absent
        try:
            return converter(wires[target.name], target, self._rules.settings, julian=julian)
        except MisreadError as error:
            raise _of_column(target.name, error) from None

    def read(self, read: Event) -> tuple[list[Any], list[str]]:
        """The columns' values, and the names of those that the change leaves as they are."""
        row, deleted = read.row, read.op == "d"
        if self._bare and not deleted and row.keys() != self._names:
            self._check_names(row.keys())
            self._names = row.keys()
        made: list[Any] = []
        kept: list[str] = []
        for name, make, is_unchanged, is_key in self._columns:
            value = row.get(name)
            if deleted and not is_key:
                value = None
            elif is_key and value is None and name not in row:
                raise MisreadError(f"has no column {name}, which is of the key")
            elif name not in row and read.op == "u":
                kept.append(name)
            if value is None:
                made.append(None)
            elif is_unchanged(value) and not is_key:
                made.append(None)
                kept.append(name)
            else:
                try:
                    made.append(make(value))
                except MisreadError as error:
                    raise _of_column(name, error) from None
        return made, kept

    def _check_names(self, sent: Iterable[str]) -> None:
        """Refuse columns that only one side has, and those with a name of our own."""
        rules, there = self._rules, set(sent)
        if own := sorted((there & set(rules.names)) - rules.ignored):
            raise MisreadError(
                f"has columns named {', '.join(own)} of its own",
                "name the added columns otherwise: names=('_op', '_lsn', '_unchanged'), and in the "
                "sink's options applyasdeletes, sequenceby and unchanged",
            )
        read = {target.name for target in rules.targets}
        more = sorted(there - read - rules.ignored - set(rules.names))
        if more and not rules.extra:
            raise MisreadError(
                f"has the columns {', '.join(more)}, which the table does not have",
                f"add them to the table, and start again; or name them in ignore; or "
                f"more='{more[0]} TYPE' reads them, and schemachange=add of the sink adds them",
            )
        less = sorted(read - there)
        if less and not rules.absent:
            raise MisreadError(
                f"lacks the columns {', '.join(less)}: Debezium does not send such a type, or the "
                "source does not have them",
                "name them in ignore: they are left as they are",
            )


def _of_column(name: str, error: MisreadError) -> MisreadError:
    return MisreadError(f"cannot be read: column {name} {error.why}", error.remedy)


def _place(batch: pa.RecordBatch, number: int) -> str:
    names = batch.schema.names
    if not set(PLACE) <= set(names):
        return f"Record {number} of a batch"
    topic, partition, offset = (batch.column(names.index(name))[number].as_py() for name in PLACE)
    return f"The record at offset {offset} of {topic}-{partition}"


def _unreadable(place: str, error: MisreadError) -> DataError:
    remedy = error.remedy or (
        "correct it at the source; or set the sink's deadletter, in the options of table or with "
        "deadletter=True: then such records are put aside, and the query goes on"
    )
    return DataError(f"Debezium: {place[0].lower()}{place[1:]} {error.why}.", remedy=f"{remedy}.")
