"""Decodes the columns ``key`` and ``value`` of a source's batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from abs_clients.avro.registry import registry
from abs_clients.avro.schema import Node, arrow_type, parsed
from abs_core.errors import DataError, SchemaError
from abs_core.patience import Patience
from abs_sources.kafka.avro.decode import Decoder
from abs_sources.kafka.formats import Formats

T = TypeVar("T")


def newest(formats: Formats, topics: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The id of the newest schema of each column for which none is given; see ``Formats.with_pins``."""
    found = []
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
        found.append((column, latest.id))
    return tuple(found)


def decoded_schema(formats: Formats, raw: pa.Schema) -> pa.Schema:
    """See ``Formats.read_schema``."""
    for column in formats.columns:
        at = raw.get_field_index(column)
        raw = raw.set(at, pa.field(column, arrow_type(_reader(formats, column), column)))
    return raw


class Columns:
    """Decodes batches; keeps what was learnt about writers' schemas."""

    def __init__(self, formats: Formats) -> None:
        self._decoders = {
            column: Decoder(_reader(formats, column), partial(_node, formats), column)
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
