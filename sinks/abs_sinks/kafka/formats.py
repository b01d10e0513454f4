"""The formats of key and value: bytes, or what ``abs_sinks.kafka.avro`` makes of columns.

Its libraries (extra ``avro``) are imported only where an option asks for the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from abs_clients.extras import importing
from abs_core.contracts import Task
from abs_core.model import Committable, Finding
from abs_sinks.kafka.keys import are_noted, keep_keys
from abs_sinks.kafka.options import KafkaOptions

_WHAT = "The option value.format or key.format"


class Encoding(Protocol):
    """What a writer does with each batch before it looks at its records."""

    schema: pa.Schema
    """The schema of encoded batches."""

    def parts(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The batch in slices that are small enough to be encoded."""
        ...

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with ``key`` and ``value`` as bytes.

        Raises:
            BadValuesError: the format cannot hold a value.
            SchemaError: it cannot hold the column's type, or would write keys otherwise than so far.
            TargetError: the registry or a broker does not answer.
        """
        ...

    def noted(self, committable: Committable | None) -> Committable | None:
        """The committable with what its records were encoded by."""
        ...


class Bytes:
    """Batches stay as they are."""

    def __init__(self, options: KafkaOptions, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._task = task
        self.schema = schema

    def parts(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        return (batch,)

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if are_noted(self._options):
            keep_keys(self._options, self._task, None)
        return batch

    def noted(self, committable: Committable | None) -> Committable | None:
        return committable


def encoding(options: KafkaOptions, schema: pa.Schema, task: Task) -> Encoding:
    """The encoding that the options name, for one task.

    Raises:
        SchemaError: a column of that format is missing.
    """
    if not options.formats.columns:
        return Bytes(options, schema, task)
    with importing(_WHAT):
        from abs_sinks.kafka.avro.columns import EncodedColumns
    return EncodedColumns(options, schema, task)


def findings_of_format(
    options: KafkaOptions, schema: pa.Schema
) -> tuple[pa.Schema, Sequence[Finding]]:
    """The schema of encoded batches, and whether the registry has what is needed; changes nothing.

    Raises:
        SchemaError: a column of that format is missing.
        TargetError: the registry does not answer.
    """
    if not options.formats.columns:
        return schema, ()
    with importing(_WHAT):
        from abs_sinks.kafka.avro.columns import encoded_schema, findings_of_schemas
    return encoded_schema(options, schema), findings_of_schemas(options, schema)
