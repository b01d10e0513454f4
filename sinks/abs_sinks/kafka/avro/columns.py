"""What a writer does with columns that have a schema: it encodes them before anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from abs_clients.avro.registry import header_of
from abs_clients.avro.schema import Node
from abs_core.contracts import Task
from abs_core.errors import SchemaError
from abs_core.model import Committable, Finding
from abs_sinks.kafka.avro.choose import Chooser, Ids
from abs_sinks.kafka.avro.encode import encode
from abs_sinks.kafka.avro.pins import KeptKeys, pinned
from abs_sinks.kafka.keys import KEY, are_noted, keep_keys
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.refusals import MisfitError

SCHEMAS = "schemas"
"""The field of a committable for the schema ids of its records."""

PIECE_BYTES = 16 << 20
"""Bytes of input that are encoded at once: an Arrow column of binaries ends at 2 GiB."""


class EncodedColumns:
    """An ``Encoding`` of the columns that the options name.

    Args:
        schema: of the input.

    Raises:
        SchemaError: a column of that format is missing.
    """

    def __init__(self, options: KafkaOptions, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._task = task
        self._at = encoded_at(options, schema)
        self._ids: Ids = {}
        self._nodes: Mapping[str, Node] = {}
        self._chooser = Chooser(options, {c: schema.field(at).type for c, at in self._at.items()})
        self.schema = encoded_schema(options, schema)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See ``Encoding``: records in Confluent's wire format."""
        if not self._nodes:
            self._ids = self._pinned()
            self._nodes = {name: self._chooser.node(number) for name, number in self._ids.items()}
        columns = list(batch.columns)
        for name, at in self._at.items():
            header = header_of(self._ids[name])
            try:
                columns[at] = encode(self._nodes[name], columns[at], header, name)
            except MisfitError as error:
                sentence = f"schema {self._ids[name]} of the column {name}: {error.reason}."
                raise SchemaError(sentence, remedy=f"{error.remedy}.") from error
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _pinned(self) -> Ids:
        options, task, chooser = self._options, self._task, self._chooser
        key = None
        if are_noted(options):
            schemas = KeptKeys(options, task, chooser) if KEY in self._at else None
            key = keep_keys(options, task, schemas).schema
        return pinned(options, task, chooser, key)

    def noted(self, committable: Committable | None) -> Committable | None:
        if committable is None or not self._ids:
            return committable
        shown = ",".join(f"{name}={number}" for name, number in sorted(self._ids.items()))
        extra = tuple(sorted({**dict(committable.extra), SCHEMAS: shown}.items()))
        return replace(committable, extra=extra)


def encoded_at(options: KafkaOptions, schema: pa.Schema) -> dict[str, int]:
    """The index of each column that is encoded."""
    names = [name.lower() for name in schema.names]
    for column in options.formats.columns:
        if names.count(column) != 1:
            raise SchemaError(
                f"{column}.format=avro needs one column {column} among {', '.join(schema.names)}.",
                remedy=f"name it: select(struct(...) AS {column}).",
            )
    return {column: names.index(column) for column in options.formats.columns}


def encoded_schema(options: KafkaOptions, schema: pa.Schema) -> pa.Schema:
    """The input's schema after encoding."""
    for at in encoded_at(options, schema).values():
        schema = schema.set(at, pa.field(schema.field(at).name, pa.binary()))
    return schema


def findings_of_schemas(options: KafkaOptions, schema: pa.Schema) -> list[Finding]:
    """Whether the registry has schemas that fit; registers none.

    Raises:
        TargetError: the registry does not answer.
    """
    at = encoded_at(options, schema)
    chooser = Chooser(options, {name: schema.field(n).type for name, n in at.items()})
    try:
        ids = chooser.ids(register=False)
    except SchemaError as error:
        if options.formats.register:
            return [Finding.note(error.what, "the first task registers one.")]
        return [Finding.of(error)]
    shown = ", ".join(f"{name} with schema {number}" for name, number in ids.items())
    kept = " Keys keep the schema that the job began with." if KEY in ids else ""
    return [Finding.note(f"Records are written as Avro: {shown}.{kept}", "")] if ids else []
