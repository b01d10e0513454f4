"""Avro's rules of schema resolution, as functions that read columns.

``reading(writer, reader)`` gives a function that reads values which were written with one schema, as
those of the other: promotions, defaults, aliases, and fields that one of them does not have. What the
rules do not allow is a ``MismatchError``; within a union only its values are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from abs_clients.avro.connect import means_another
from abs_clients.avro.defaults import default_array
from abs_clients.avro.schema import Field, Node, arrow_type, widened
from abs_sources.kafka.avro.cursor import Cursor
from abs_sources.kafka.avro.leaves import MismatchError, leaf, mismatch, width
from abs_sources.kafka.avro.skip import Skip, skipping

Read = Callable[[Cursor], pa.Array]
"""Reads the next value at each place; a column of the reader's ``arrow_type``."""

_MAX_EMPTY = 1_000_000
"""Most values without bytes in one list: their number proves nothing about the record's size."""

_FEW_ROWS = 64
"""Of so few lists it is faster to find all items first than to read one of each at a time."""


def reading(writer: Node, reader: Node, path: str = "value") -> Read:
    """The function that reads values of ``writer`` as those of ``reader``.

    Raises:
        MismatchError: no value of the one can be read as the other.
        SchemaError: no column can hold the reader's values.
    """
    if writer.kind == "union":
        return _of_union(writer, reader, path)
    if reader.kind == "union":
        return _as_union(writer, reader, path)
    if means_another(writer, reader):
        raise mismatch(writer, reader, path)
    if writer.kind != reader.kind or writer.kind not in ("record", "array", "map"):
        return leaf(writer, reader, path)
    match writer.kind:
        case "record":
            return _record(writer, reader, path)
        case "array":
            return _array(writer, reader, path)
    return _map(writer, reader, path)


def _of_union(writer: Node, reader: Node, path: str) -> Read:
    reads: list[Read | str] = []
    for inner in writer.inner:
        try:
            reads.append(reading(inner, reader, path))
        except MismatchError as error:
            reads.append(str(error))
    if all(isinstance(entry, str) for entry in reads):
        raise MismatchError(f"{path}: {reads[0]}")
    arrow = arrow_type(reader, path)

    def read(cursor: Cursor) -> pa.Array:
        branch = cursor.number()
        parts: list[pa.Array] = []
        places: list[Any] = []
        unknown = (branch < 0) | (branch >= len(reads))
        if unknown.any():
            cursor.fail(unknown, f"{path} is of a type that its union does not have")
        for number, branch_read in enumerate(reads):
            rows = np.flatnonzero(branch == number)
            if not rows.size:
                continue
            if isinstance(branch_read, str):
                cursor.fail(rows, branch_read)
            elif writer.inner[number].kind != "null":
                part = cursor.take(rows)
                parts.append(branch_read(part))
                places.append(rows)
                cursor.put(rows, part)
        return placed(parts, places, len(cursor), arrow)

    return read


def placed(
    parts: Sequence[pa.Array], places: Sequence[Any], count: int, arrow: pa.DataType
) -> pa.Array:
    """A column with the values of each part at its places, null elsewhere."""
    if len(parts) == 1 and len(parts[0]) == count:
        return parts[0]
    if not parts:
        return pa.nulls(count, arrow)
    order = np.concatenate(places)
    index = np.full(count, -1)
    index[order] = np.arange(len(order))
    return pa.concat_arrays(parts).take(pa.array(index, mask=index < 0))


def _as_union(writer: Node, reader: Node, path: str) -> Read:
    arrow = arrow_type(reader, path)
    if writer.kind == "null":
        if not reader.takes_null:
            raise mismatch(writer, reader, path)
        return lambda cursor: pa.nulls(len(cursor), arrow)
    numbers = range(len(reader.branches))
    alike = sorted(numbers, key=lambda n: not _is_same(writer, reader.branches[n]))
    for number in alike:
        try:
            read = reading(writer, reader.branches[number], path)
        except MismatchError:
            continue
        if widened(reader) is not None:
            return lambda cursor: _wider(read(cursor), arrow)
        return lambda cursor: _member(read(cursor), number, arrow)
    raise mismatch(writer, reader, path)


def _wider(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    # Arrow 26 cuts the nulls inside of lists in a cast, also to the same type.
    return values if values.type.equals(arrow) else values.cast(arrow)


def _is_same(writer: Node, branch: Node) -> bool:
    return writer.kind == branch.kind and writer.name == branch.name


def _member(values: pa.Array, number: int, arrow: pa.DataType) -> pa.Array:
    columns = [
        values if n == number else pa.nulls(len(values), field.type)
        for n, field in enumerate(arrow)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(arrow))


def _record(writer: Node, reader: Node, path: str) -> Read:
    check_names(writer, reader, path)
    wanted = _found(writer, reader)
    by_writer = {name: field for field, name in wanted.items() if name is not None}
    fields = {field.name: field for field in reader.fields}
    steps: list[tuple[str | None, Read]] = []
    for writer_field in writer.fields:
        name = by_writer.get(writer_field.name)
        at = f"{path}.{writer_field.name}"
        if name is None:
            plain = without_logical(writer_field.node)
            steps.append((None, reading(plain, plain, at)))
        else:
            steps.append((name, reading(writer_field.node, fields[name].node, at)))
    for name, writer_name in wanted.items():
        if writer_name is None and not fields[name].has_default:
            raise MismatchError(
                f"{path}.{name} is missing in the schema that the record was written with "
                f"({writer.name}), and has no default in the one that it is read with"
            )
    arrow = arrow_type(reader, path)
    defaults = {name: default_array(fields[name]) for name, at in wanted.items() if at is None}

    def read(cursor: Cursor) -> pa.Array:
        columns: dict[str, pa.Array] = {}
        for name, step in steps:
            column = step(cursor)
            if name is not None:
                columns[name] = column
        for name in fields:
            if name not in columns:
                columns[name] = defaults[name].take(pa.array(np.zeros(len(cursor), np.int32)))
        if not columns:
            return pa.array([{}] * len(cursor), arrow)
        ordered = [columns[field.name] for field in arrow]
        return pa.StructArray.from_arrays(ordered, fields=list(arrow))

    return read


def _found(writer: Node, reader: Node) -> dict[str, str | None]:
    """The writer's field of each of the reader's: of its name, else of an alias that no other takes."""
    names = {writer_field.name for writer_field in writer.fields}
    found = {
        reader_field.name: reader_field.name if reader_field.name in names else None
        for reader_field in reader.fields
    }
    left = names - set(found)
    for field in reader.fields:
        if found[field.name] is None:
            found[field.name] = next((alias for alias in field.aliases if alias in left), None)
            left.discard(found[field.name] or "")
    return found


def check_names(writer: Node, reader: Node, path: str) -> None:
    """Raise MismatchError unless both have one name, as far as namespaces, or the reader an alias."""
    short = [name.rpartition(".")[2] for name in (writer.name, reader.name)]
    if short[0] != short[1] and writer.name not in reader.aliases:
        raise MismatchError(
            f"{path} was written as {writer.shown}, and is read as {reader.shown} without that alias"
        )


def without_logical(node: Node) -> Node:
    """The same bytes as types that every column can hold; for what is read over."""
    return replace(
        node,
        logical=None,
        inner=tuple(map(without_logical, node.inner)),
        fields=tuple(replace(field, node=without_logical(field.node)) for field in node.fields),
    )


def _array(writer: Node, reader: Node, path: str) -> Read:
    read_item = reading(writer.inner[0], reader.inner[0], f"{path}[]")
    arrow, wide = arrow_type(reader, path), width(writer.inner[0])
    skip = skipping(writer.inner[0])

    def read(cursor: Cursor) -> pa.Array:
        offsets, items = _items(cursor, read_item, arrow.value_type, wide, skip)
        return pa.ListArray.from_arrays(offsets, items, arrow)

    return read


def _map(writer: Node, reader: Node, path: str) -> Read:
    read_key = leaf(Node("string"), Node("string"), f"{path}.key")
    read_value = reading(writer.inner[0], reader.inner[0], f"{path}{{}}")
    arrow = arrow_type(reader, path)
    pair = pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])
    entry = (Field("key", Node("string")), Field("value", writer.inner[0]))
    skip = skipping(Node("record", fields=entry))

    def read_item(cursor: Cursor) -> pa.Array:
        key = read_key(cursor)
        return pa.StructArray.from_arrays([key, read_value(cursor)], fields=list(pair))

    def read(cursor: Cursor) -> pa.Array:
        offsets, items = _items(cursor, read_item, pair, None, skip)
        key, value = items.flatten()
        return pa.MapArray.from_arrays(offsets, key, value, arrow)

    return read


def _items(
    cursor: Cursor, read: Read, arrow: pa.DataType, wide: int | None, skip: Skip
) -> tuple[pa.Array, pa.Array]:
    """The items of the lists at each place: offsets and values.

    Args:
        wide: bytes of an item, if all have as many: then those of a block are read at once.
        skip: finds an item's end, for lists of few rows: they are read at once, too.
    """
    counts = np.zeros(len(cursor), np.int64)
    parts: list[pa.Array] = []
    owners: list[Any] = []
    active = np.arange(len(cursor))
    while active.size:
        block = _block_counts(cursor, active, wide)
        active, left = active[block > 0], block[block > 0]
        counts[active] += left
        rows = active
        if wide is not None and rows.size:
            part = cursor.take(rows).repeated(left, wide)
            parts.append(read(part))
            owners.append(np.repeat(rows, left))
            cursor.at[rows] += left * wide
            cursor.at[rows] = np.minimum(cursor.at[rows], cursor.end[rows])
            continue
        while rows.size:
            part = cursor.take(rows)
            if rows.size <= _FEW_ROWS:
                items, taken = part.listed(left, skip)
                counts[rows] -= left - taken
                parts.append(read(items))
                owners.append(np.repeat(rows, taken))
                cursor.put(rows, part)
                break
            parts.append(read(part))
            owners.append(rows)
            cursor.put(rows, part)
            rows, left = rows[left > 1], left[left > 1] - 1
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    if not parts:
        return offsets, pa.nulls(0, arrow)
    order = np.argsort(np.concatenate(owners), kind="stable")
    return offsets, pa.concat_arrays(parts).take(pa.array(order))


def _block_counts(cursor: Cursor, active: Any, wide: int | None) -> Any:
    """The number of items in the next block of these lists; 0: it was the last."""
    part = cursor.take(active)
    count = part.number()
    sized = np.flatnonzero(count < 0)
    if sized.size:  # then the block's size in bytes follows
        inner = part.take(sized)
        inner.number()
        part.put(sized, inner)
        count[sized] = -count[sized]
    most = _MAX_EMPTY if wide == 0 else (part.end - part.at) // (wide or 1)
    wrong = (count < 0) | (count > most)
    if wrong.any():
        part.fail(wrong, "a list in it has more items than the record has bytes")
        count[wrong] = 0
    cursor.put(active, part)
    return count
