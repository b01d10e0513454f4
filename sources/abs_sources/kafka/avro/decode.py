"""Decodes records in Confluent's wire format as a column, by the schema that a reader wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from abs_clients.avro.schema import Node, arrow_type
from abs_clients.avro.wire import HEADER_BYTES, ids_of
from abs_clients.buffers import bytes_of, offsets_of
from abs_core.errors import SchemaError
from abs_sources.kafka.avro.cursor import PADDING, Cursor
from abs_sources.kafka.avro.leaves import MismatchError
from abs_sources.kafka.avro.resolve import Read, placed, reading


class Decoder:
    """Decodes a column of records; keeps how each writer's schema is read.

    Args:
        reader: the schema of the column.
        written: the schema of an id; raises SchemaError if there is none.
        path: of the column, for messages.
    """

    def __init__(self, reader: Node, written: Callable[[int], Node], path: str) -> None:
        self.type = arrow_type(reader, path)
        self._reader = reader
        self._written = written
        self._path = path
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
                self._reads[number] = reading(self._written(number), self._reader, self._path)
            except (MismatchError, SchemaError) as error:
                why = error.what if isinstance(error, SchemaError) else str(error)
                self._reads[number] = f"its schema is {number}: {why}"
        return self._reads[number]
