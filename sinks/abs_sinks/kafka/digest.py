"""What a task has written, in one number."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from abs_clients.buffers import bytes_of
from abs_sinks.kafka.records import Records


class Digest:
    """Of keys and values, in the order in which they were given, batch by batch."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    @property
    def text(self) -> str:
        return f"xxh3_128:{self._hash.hexdigest()}"

    def feed(self, records: Records) -> None:
        for column in (records.keys, records.values):
            if column is not None:
                self._column(column)

    def _column(self, column: pa.BinaryArray) -> None:
        self._hash.update(pc.binary_length(column).fill_null(-1).to_numpy())
        self._hash.update(bytes_of(column).data)
