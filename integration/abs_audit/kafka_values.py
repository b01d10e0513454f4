"""What the records of a topic hold: JSON objects, bytes, or Avro. The audit's columns are made here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from duckdb import DuckDBPyConnection

from abs_audit.carry import types_of
from abs_audit.contracts import PLACE
from abs_audit.families import Family, Type
from abs_audit.textfiles import as_text, json_objects, text_schema
from abs_clients.avro.schema import Node, arrow_type, member, widened
from abs_clients.avro.settings import RegistrySettings
from abs_core.errors import ConfigError, DataError, SchemaError

if TYPE_CHECKING:
    from abs_clients.avro.registry import Registered


class Values(ABC):
    """Turns records into columns.

    Args:
        name: of the topic, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def columns(
        self, connection: DuckDBPyConnection, batches: Iterable[Sequence[Any]]
    ) -> Mapping[str, Type]:
        """See ``Relation.columns``; ``batches`` has the records, if it takes them."""

    @abstractmethod
    def schema(self, names: Sequence[str]) -> pa.Schema:
        """Of what ``batch`` makes if these columns are wanted: they, and perhaps more."""

    @abstractmethod
    def batch(self, records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        """The columns of these records.

        Raises:
            DataError: a record cannot be read; it is named.
        """

    @abstractmethod
    def unfolded(self, arrays: Mapping[str, pa.Array], names: Sequence[str]) -> pa.RecordBatch:
        """What ``batch`` would make of the records that a sink writes of its columns key and value."""


class JsonValues(Values):
    """Each value is one object, whose fields are columns without types."""

    def columns(
        self, connection: DuckDBPyConnection, batches: Iterable[Sequence[Any]]
    ) -> Mapping[str, Type]:
        """Finding the fields takes a read of all records."""
        names: dict[str, None] = {}
        for parsed in chain.from_iterable(map(self._objects, batches)):
            names.update(dict.fromkeys(parsed))
        return dict.fromkeys(names, Type(Family.UNTYPED))

    def schema(self, names: Sequence[str]) -> pa.Schema:
        return text_schema(names)

    def batch(self, records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        objects = self._objects(records)
        if PLACE in schema.names:
            for value, record in zip(objects, records, strict=True):
                value[PLACE] = _place(record)
        return as_text(objects, schema, self.name)

    def unfolded(self, arrays: Mapping[str, pa.Array], names: Sequence[str]) -> pa.RecordBatch:
        values = _as_bytes(arrays["value"]).to_pylist()
        objects = json_objects([value or b"null" for value in values], self.name)
        return as_text(objects, text_schema(names), self.name)

    def _objects(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        return json_objects([bytes(_value(record)) for record in records], self.name)


_RAW = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_PLACED = _RAW.append(pa.field(PLACE, pa.string()))


class RawValues(Values):
    """The columns are ``key`` and ``value``, as bytes."""

    def columns(
        self, connection: DuckDBPyConnection, batches: Iterable[Sequence[Any]]
    ) -> Mapping[str, Type]:
        return dict.fromkeys(_RAW.names, Type(Family.BINARY))

    def schema(self, names: Sequence[str]) -> pa.Schema:
        return _PLACED

    def batch(self, records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        columns = (
            [record.key for record in records],
            [record.value for record in records],
            list(map(_place, records)),
        )
        return pa.record_batch([*map(pa.array, columns, _PLACED.types)], schema=_PLACED)

    def unfolded(self, arrays: Mapping[str, pa.Array], names: Sequence[str]) -> pa.RecordBatch:
        rows = len(next(iter(arrays.values())))
        none = pa.nulls(rows, pa.binary())
        columns = [_as_bytes(arrays.get(name, none)) for name in _RAW.names]
        return pa.record_batch(columns, schema=_RAW)


class AvroValues(Values):
    """Each value is a record; its fields are columns by the newest schema under ``<topic>-value``.

    It is decoded by confluent-kafka's own deserializer: sinks and sources have decoders of their own.

    Raises:
        ConfigError: there is no such schema, or it is none of a record.
        SchemaError: no column holds its values.
        TargetError: the registry does not answer.
    """

    def __init__(self, name: str, topic: str, settings: RegistrySettings) -> None:
        super().__init__(name)
        self._settings = settings
        self._subject = f"{topic}-value"

    def columns(
        self, connection: DuckDBPyConnection, batches: Iterable[Sequence[Any]]
    ) -> Mapping[str, Type]:
        types = types_of(connection.from_arrow(pa.schema(self._fields).empty_table()), self.name)
        # The deserializer reads them as values, whose letters have no case.
        uuids = (f.name for f in self._newest.node.fields if _logical(f.node) == "uuid")
        return {**types, **dict.fromkeys(uuids, Type(Family.UUID))}

    def schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([*self._fields, pa.field(PLACE, pa.string())])

    def batch(self, records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
        decoded = [self._decoded(record) for record in records]
        places = list(map(_place, records))
        try:
            node = self._newest.node
            rows = [
                {**in_members(node, value), PLACE: place}
                for value, place in zip(decoded, places, strict=True)
            ]
            return pa.RecordBatch.from_pylist(rows, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise DataError(
                f"{self.name}: a value between {places[0]} and {places[-1]} does not fit its "
                f"column: {error}.",
                remedy="audit the topic as bytes (?value=raw).",
            ) from error

    def unfolded(self, arrays: Mapping[str, pa.Array], names: Sequence[str]) -> pa.RecordBatch:
        value = arrays["value"]
        if not pa.types.is_struct(value.type):
            raise _in_another_format(value.type)
        fields = [field.name for field in value.type]
        return pa.record_batch(value.flatten(), names=fields)

    @cached_property
    def _fields(self) -> list[pa.Field]:
        return list(arrow_type(self._newest.node))

    @cached_property
    def _newest(self) -> Registered:
        from abs_clients.avro.registry import registry  # of the extra avro

        newest = registry(self._settings).latest(self._subject)
        if newest is None or newest.node.kind != "record":
            content = "no schema" if newest is None else "a schema that is none of a record"
            raise ConfigError(
                f"The registry at {self._settings.url} has {content} under {self._subject}.",
                remedy="audit the topic as bytes (?value=raw), or correct registry.url.",
            )
        return newest

    @cached_property
    def _decode(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        client = SchemaRegistryClient.new_client(dict(self._settings.given))
        return AvroDeserializer(client, self._newest.text)

    def _decoded(self, record: Any) -> dict[str, Any]:
        from confluent_kafka.serialization import MessageField, SerializationContext

        where = SerializationContext(record.topic, MessageField.VALUE, list(record.headers))
        value = _value(record)
        try:
            fields: dict[str, Any] = self._decode(value, where)
        except Exception as error:  # the libraries below it raise their own
            raise DataError(
                f"{self.name}: the value at {_place(record)} cannot be decoded as Avro: {error}.",
                remedy="audit the topic as bytes (?value=raw); the record was written by another "
                "program, or its schema was deleted.",
            ) from error
        return fields


def in_members(node: Node, value: Any) -> Any:
    """A value as the deserializer gives it, as one of ``arrow_type``: unions in members, UUIDs as text.

    Raises:
        TypeError: it may be of several types of a union.
    """
    if value is None:
        return None
    match node.kind:
        case "union":
            if (one := widened(node)) is not None:
                return in_members(one, value)
            branches = node.branches
            fitting = [n for n, branch in enumerate(branches) if _fits(branch, value)]
            if len(fitting) != 1:
                raise TypeError(
                    f"it may be {len(fitting)} of {', '.join(b.shown for b in branches)}"
                )
            return {member(fitting[0]): in_members(branches[fitting[0]], value)}
        case "record":
            return {field.name: in_members(field.node, value[field.name]) for field in node.fields}
        case "array":
            return [in_members(node.inner[0], item) for item in value]
        case "map":
            return [(key, in_members(node.inner[0], item)) for key, item in value.items()]
    return str(value) if isinstance(value, UUID) else value


def _logical(node: Node) -> str | None:
    one = widened(node)
    return None if one is None else one.logical


_PYTHON: dict[str, type] = {
    **dict.fromkeys(("string", "enum"), str),
    **dict.fromkeys(("bytes", "fixed"), bytes),
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("record", "map"), dict),
    **dict.fromkeys(("time-millis", "time-micros"), time),
    "array": list,
    "boolean": bool,
    "decimal": Decimal,
    "date": date,
    "uuid": UUID,
}


def _fits(branch: Node, value: Any) -> bool:
    """Whether a value that is decoded may be of this type of a union."""
    kind = _PYTHON.get(branch.logical or branch.kind, datetime)
    if type(value) is not kind:
        return False
    if isinstance(value, datetime):
        return (value.tzinfo is None) == str(branch.logical).startswith("local")
    if branch.kind == "record" and isinstance(value, dict):
        return {field.name for field in branch.fields} == value.keys()
    return branch.kind != "enum" or value in branch.symbols


def _as_bytes(column: pa.Array) -> pa.Array:
    """A column of a sink's input that is written as it is."""
    try:
        return column.cast(pa.binary())
    except pa.ArrowNotImplementedError as error:
        raise _in_another_format(column.type) from error


def _in_another_format(arrow: pa.DataType) -> SchemaError:
    return SchemaError(
        f"The row's value is {arrow}, and the topic is read in another format.",
        remedy="compare it by hand, or read the topic as its job writes it (?value=).",
    )


def _place(record: Any) -> str:
    return f"partition {record.partition}, offset {record.offset}"


def _value(record: Any) -> bytes:
    if record.value is None:
        raise DataError(
            f"Partition {record.partition} has no value at offset {record.offset}: a tombstone.",
            remedy="audit the topic with value=raw.",
        )
    return bytes(record.value)
