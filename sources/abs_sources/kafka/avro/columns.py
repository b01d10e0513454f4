"""Decodes the columns ``key`` and ``value`` of a source's batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from abs_clients.avro.connect import CONNECT_SCHEMA, connect_schema, dropped
from abs_clients.avro.registry import HEADER_BYTES, ids_of, registry
from abs_clients.avro.schema import Node, arrow_type, parsed
from abs_clients.buffers import bytes_of, offsets_of
from abs_core.errors import DataError, SchemaError
from abs_core.patience import Patience
from abs_sources.kafka.avro.cursor import PADDING, Cursor
from abs_sources.kafka.avro.leaves import MismatchError
from abs_sources.kafka.avro.resolve import Read, placed, reading
from abs_sources.kafka.formats import Formats

T = TypeVar("T")


def newest(formats: Formats, topics: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The id of the newest schema of each column for which none is given; ``decoding.with_pins``."""
    pins = []
    for column in formats.columns:
        if formats.schema(column) is not None:
            continue
        subject = f"{topics[0]}-{column}"
        latest = _ask(formats, partial(registry(formats.registry).latest, subject))
        if latest is None:
            raise SchemaError(
                f"The registry at {formats.registry.url} has no schema under {subject}.",
                remedy=f"register one, or set {column}.schema to the schema that the column is to "
                "have.",
            )
        pins.append((column, latest.id))
    return tuple(pins)


def decoded_schema(formats: Formats, raw: pa.Schema) -> pa.Schema:
    """See ``decoding.read_schema``."""
    for column in formats.columns:
        at, node = raw.get_field_index(column), _reader(formats, column)
        metadata = {CONNECT_SCHEMA: json.dumps(connect_schema(node))} if node.semantic else None
        raw = raw.set(at, pa.field(column, arrow_type(node, column), metadata=metadata))
    return raw


class Columns:
    """Decodes batches; keeps what was learnt about writers' schemas."""

    def __init__(self, formats: Formats) -> None:
        self._decoders = {
            column: Decoder(
                _reader(formats, column),
                partial(_node, formats),
                column,
                dict(formats.pinned).get(column),
            )
            for column in formats.columns
        }

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns as their schemas have them.

        Raises:
            DataError: a record cannot be read; it is named by topic, partition and offset.
            TargetError: the registry does not answer.
        """
        columns, schema = list(batch.columns), batch.schema
        for column, decoder in self._decoders.items():
            at = schema.get_field_index(column)
            columns[at], bad = decoder.decode(columns[at])
            if bad:
                raise _unreadable(batch, column, min(bad), len(bad), bad[min(bad)])
            schema = schema.set(at, pa.field(column, decoder.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unreadable(batch: pa.RecordBatch, column: str, row: int, count: int, why: str) -> DataError:
    names = ("topic", "partition", "offset")
    topic, partition, offset = (batch.column(name)[row].as_py() for name in names)
    more = f" So are {count - 1} more of {batch.num_rows} records." if count > 1 else ""
    return DataError(
        f"Kafka: the {column} of the record at offset {offset} of {topic}-{partition} is not what "
        f"{column}.format=avro reads: {why}.{more}",
        remedy=f"set {column}.schema to a schema by which it can be read; or leave {column}.format "
        "out, and decode the bytes in the job, which can then put such records aside.",
    )


def _reader(formats: Formats, column: str) -> Node:
    text = formats.schema(column)
    return parsed(text) if text is not None else _node(formats, dict(formats.pinned)[column])


def _node(formats: Formats, number: int) -> Node:
    return _ask(formats, partial(registry(formats.registry).node, number))


def _ask(formats: Formats, call: Callable[[], T]) -> T:
    return Patience(
        formats.patience, system=f"the schema registry at {formats.registry.url}"
    ).retry(call)


class Decoder:
    """Decodes a column of records; keeps how each writer's schema is read.

    Args:
        reader: the schema of the column.
        written: the schema of an id; raises SchemaError if there is none.
        path: of the column, for messages.
        newest: the id of the reader's schema, if it was the newest one when the query started.
    """

    def __init__(
        self,
        reader: Node,
        written: Callable[[int], Node],
        path: str,
        newest: int | None = None,
    ) -> None:
        self.type = arrow_type(reader, path)
        self._reader = reader
        self._written = written
        self._path = path
        self._newest = newest
        self._reads: dict[int, Read | str] = {}

    def decode(self, records: pa.BinaryArray) -> tuple[pa.Array, Mapping[int, str]]:
        """The values, null where a record is; and what is wrong, by row, of those that are not Avro.

        Raises:
            TargetError: the registry does not answer.
        """
        rows = np.arange(len(records))
        if records.null_count:
            rows = rows[records.is_valid().to_numpy(zero_copy_only=False)]
        base = offsets_of(records)
        bad: dict[int, str] = {}
        data = np.concatenate([bytes_of(records), np.zeros(PADDING, np.uint8)])
        start = base[:-1].astype(np.int64) - int(base[0])
        end = base[1:].astype(np.int64) - int(base[0])
        cursor = Cursor(data, start[rows], end[rows], rows, bad)
        ids = ids_of(data, cursor.at, cursor.end)
        if (ids < 0).any():
            cursor.fail(
                ids < 0, "it does not begin with the id of a schema (a zero and four bytes)"
            )
        cursor.at = np.minimum(cursor.at + HEADER_BYTES, cursor.end)
        parts: list[pa.Array] = []
        places: list[Any] = []
        for number in np.unique(ids[ids >= 0]).tolist():
            mine = np.flatnonzero(ids == number)
            read = self._read(number)
            if isinstance(read, str):
                cursor.fail(mine, read)
                continue
            part = cursor.take(mine)
            parts.append(read(part))
            places.append(rows[mine])
            rest = part.at < part.end
            if rest.any():
                part.fail(rest, f"it goes on after the value of schema {number}")
        return placed(parts, places, len(records), self.type), bad

    def _read(self, number: int) -> Read | str:
        if number not in self._reads:
            try:
                self._reads[number] = self._reading(number)
            except (MismatchError, SchemaError) as error:
                why = error.what if isinstance(error, SchemaError) else str(error)
                if number == 0:
                    why += (
                        " Ids begin at 1: Apicurio's own serializers write ids of 8 bytes, unless "
                        "they are told to write Confluent's (apicurio.registry.as-confluent=true)"
                    )
                self._reads[number] = f"its schema is {number}: {why}"
        return self._reads[number]

    def _reading(self, number: int) -> Read:
        written = self._written(number)
        lost, gained = dropped(written, self._reader), dropped(self._reader, written)
        # A copy of a table must not go on without a column that the source has got meanwhile, nor with
        # NULL for one that was renamed. A column that the source has no more is left out.
        if lost and self._newest is not None and number > self._newest:
            raise MismatchError(
                f"its row has {', '.join(lost)}, which the schema that the query began with has not: "
                "start the query again"
            )
        if lost and gained:
            raise MismatchError(
                f"its row has {', '.join(lost)}, and the newest schema {', '.join(gained)} instead: of "
                "a column with a new name the values would be lost"
            )
        return reading(written, self._reader, self._path)
