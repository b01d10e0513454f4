"""The entry of a data file in a manifest: made by the task that wrote it, appended by the commit.

It holds everything that the table's log says of a file but its path, size and rows: the partition
specification and the values under it, and the metrics that the table's properties ask for. So a commit
opens no file, and what the table has become since does not matter: columns are found by their ids.

Its text lies in handles (a durable format, version 1): the Base64 text of a compressed JSON object.
"""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, promote
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from abs_clients.iceberg.partitions import Partitions
from abs_core.errors import ConfigError
from abs_core.strictjson import fields, of, parse, text, version, whole

VERSION = 1

_KIND = TypeAdapter(IcebergType)

_ID = b"PARQUET:field_id"

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


class Entries:
    """Makes the entries of a task's files.

    Raises:
        ConfigError: the table's metrics configuration cannot be read.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._schema = metadata.schema()
        self._spec = metadata.spec()
        self._plan = _plan(self._schema, metadata.properties)
        self._ids = parquet_path_to_id_mapping(self._schema)
        self.partitions = Partitions(
            self._spec, self._schema, file_schema(self._schema, self._schema.as_arrow())
        )

    def entry(self, footer: Any, head: pa.RecordBatch) -> str:
        """The entry of a file.

        Args:
            footer: its Parquet metadata.
            head: its partition values: one row, a column for each field of the specification.
        """
        statistics = data_file_statistics_from_parquet_metadata(footer, self._plan, self._ids)
        kinds: list[Any] = [f.field_type for f in self._spec.partition_type(self._schema).fields]
        values = self.partitions.record(head)
        entry = {
            "version": VERSION,
            "schema": self._schema.schema_id,
            "spec": [field.model_dump(mode="json") for field in self._spec.fields],
            "types": [str(kind) for kind in kinds],
            "partition": [
                None if value is None else _packed(to_bytes(kind, value))
                for kind, value in zip(kinds, values, strict=True)
            ],
            **{name: getattr(statistics, name) for name in _COUNTS},
            **_bounds(statistics),
            "split_offsets": statistics.split_offsets,
        }
        # Text of one file after another repeats little but names: JSON that is compressed stays small.
        written = json.dumps(entry, separators=(",", ":"), sort_keys=True)
        return b64encode(zlib.compress(written.encode())).decode()


def _plan(schema: Schema, properties: Mapping[str, str]) -> dict[int, StatisticsCollector]:
    try:
        return compute_statistics_plan(schema, dict(properties))
    except ValueError as error:
        raise ConfigError(
            f"The table's property write.metadata.metrics cannot be read: {error}.",
            remedy="set it to none, counts, truncate(16) or full, or remove it.",
        ) from error


def _bounds(statistics: DataFileStatistics) -> dict[str, dict[int, str]]:
    lower, upper = dict[int, str](), dict[int, str]()
    for column, bounds in statistics.column_aggregates.items():
        least = bounds.min_as_bytes()
        try:
            greatest = bounds.max_as_bytes()
        except UnicodeEncodeError:
            # The library makes a bound of a truncated text by its last character plus one, which is
            # none after U+D7FF. A file without an upper bound is read where it need not be, no more.
            greatest = None
        for bound, kept in ((least, lower), (greatest, upper)):
            if bound is not None:
                kept[column] = _packed(bound)
    return {"lower_bounds": lower, "upper_bounds": upper}


@dataclass(frozen=True, slots=True)
class Added:
    """A file as a commit appends it: its entry, and what its manifest is written under."""

    file: DataFile
    spec: PartitionSpec
    schema: Schema


def added(entry: str, path: str, size: int, rows: int, metadata: TableMetadata) -> Added:
    """The file as a commit appends it, under its own specification.

    Raises:
        ValueError: the entry cannot be read.
        LookupError: the table has forgotten the specification.
    """
    parts = _parts(entry)
    spec = _spec(of(list, parts["spec"]), metadata)
    kinds: list[Any] = [_KIND.validate_python(text(kind)) for kind in parts["types"]]
    values = (None if value is None else b64decode(text(value)) for value in parts["partition"])
    try:
        partition = [
            None if value is None else from_bytes(kind, value)
            for kind, value in zip(kinds, values, strict=True)
        ]
    except struct.error as error:
        raise ValueError(f"a value of its partition: {error}") from error
    maps: dict[str, Any] = {name: _numbered(parts[name], whole) for name in _COUNTS}
    maps |= {name: _numbered(parts[name], lambda one: b64decode(text(one))) for name in _BOUNDS}
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=size,
        split_offsets=[whole(offset) for offset in parts["split_offsets"]],
        **maps,
    )
    made.spec_id = spec.spec_id
    # Of the schema that the file was written with, unless the table has forgotten it: the type of a
    # column by which an older specification partitions is known there alone, once it is dropped.
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    return Added(made, spec, schemas.get(whole(parts["schema"]), metadata.schema()))


def forgotten(entry: str, metadata: TableMetadata) -> str | None:
    """The partition fields of a file, if the table has no specification with them any more.

    Raises:
        ValueError: the entry cannot be read.
    """
    wanted = of(list, _parts(entry)["spec"])
    try:
        _spec(wanted, metadata)
    except LookupError as error:
        return str(error)
    return None


def _parts(entry: str) -> Mapping[str, Any]:
    try:
        parts = fields(parse(zlib.decompress(b64decode(entry, validate=True))))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    version(parts["version"], VERSION)
    return parts


def _spec(wanted: Sequence[Any], metadata: TableMetadata) -> PartitionSpec:
    """By its fields, else by what their values are made of.

    A clean-up removes a specification that no file has. When it is back, it and its fields have other
    numbers.
    """
    for keys in (("source-id", "transform", "field-id", "name"), ("source-id", "transform")):
        asked = [[fields(field).get(key) for key in keys] for field in wanted]
        for spec in metadata.partition_specs:
            there = (field.model_dump(mode="json") for field in spec.fields)
            if [[field.get(key) for key in keys] for field in there] == asked:
                return spec
    raise LookupError(", ".join(str(fields(field)["name"]) for field in wanted) or "nothing")


def _numbered(values: object, read: Any) -> dict[int, Any]:
    return {int(column): read(value) for column, value in fields(values).items()}


def _packed(value: bytes) -> str:
    return b64encode(value).decode()


def file_schema(schema: Schema, columns: pa.Schema) -> pa.Schema:
    """The columns as data files have them: with the table's ids, types and rules for NULL.

    Args:
        columns: some of the table's, and perhaps others, which are left as they are.
    """
    with_ids = {field.name: field for field in schema_to_pyarrow(schema)}
    return pa.schema([_small(with_ids.get(field.name, field)) for field in columns])


def _small(field: pa.Field) -> pa.Field:
    """The field in plain layouts; of its metadata the id is kept, which nested ones have, too."""
    kept = {_ID: field.metadata[_ID]} if _ID in (field.metadata or {}) else None
    return pa.field(field.name, _plain(field.type), field.nullable, kept)


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_large_list(kind):
        return pa.list_(_small(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_small(field) for field in kind])
    return kind


def misfits(written: pa.Schema, schema: Schema) -> list[str] | None:
    """Why files of this schema do not fit the table as it is now; None: they have no ids.

    A column fits under any name, and in a wider type to which Iceberg promotes its own.
    """
    if not any(_ID in (field.metadata or {}) for field in written):
        return None
    now = {field.field_id: field for field in schema.fields}
    there = {field.field_id: field for field in pyarrow_to_schema(written).fields}
    problems: list[str] = []
    for number, field in there.items():
        if number not in now:
            problems.append(f"{field.name} was dropped from the table")
        elif not _holds(now[number].field_type, field.field_type):
            problems.append(
                f"{field.name} is {field.field_type}, in the table {now[number].field_type}"
            )
    for number, field in now.items():
        if field.required and not (number in there and there[number].required):
            problems.append(f"{field.name} must not be NULL in the table now")
    return problems


def _holds(now: IcebergType, then: IcebergType) -> bool:
    """Whether a column of the type reads values that were written as the other."""
    if isinstance(then, StructType):
        there = {f.field_id: f for f in now.fields} if isinstance(now, StructType) else {}
        return all(
            f.field_id in there and _holds(there[f.field_id].field_type, f.field_type)
            for f in then.fields
        )
    if isinstance(then, ListType):
        return isinstance(now, ListType) and _holds(now.element_type, then.element_type)
    if isinstance(then, MapType):
        if not isinstance(now, MapType) or not _holds(now.key_type, then.key_type):
            return False
        return _holds(now.value_type, then.value_type)
    try:
        return now == then or promote(then, now) == now
    except ResolveError:
        return False
