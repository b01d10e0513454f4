"""The partition values of rows, by the library's own transforms, as a specification asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    IdentityTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import IcebergType, NestedField, StructType

from abs_core.errors import ConfigError


class Partitions:
    """What a specification makes of rows.

    Args:
        columns: the schema's, as rows have them.

    Attributes:
        labels: the names of its fields.
        fields: a column for each of them, under a name that the schema does not have.

    Raises:
        ConfigError: the library's transforms are not installed.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, columns: pa.Schema) -> None:
        self._fields = [_Field(field, schema) for field in spec.fields]
        self.labels = [field.name for field in spec.fields]
        # Arrow makes no empty array of a list of UUIDs from values.
        nulls = [pa.nulls(0, field.type) for field in columns]
        none = pa.RecordBatch.from_arrays(nulls, schema=columns)
        names, self.fields = set(columns.names), list[pa.Field]()
        for field in self._fields:
            name = f"partition {field.name}"
            while name in names:
                name += "'"
            names.add(name)
            self.fields.append(pa.field(name, field.values(none).type))

    def values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The values of ``fields`` for each row."""
        return [field.values(rows) for field in self._fields]

    def outside(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        """A column, and which rows have a value there whose partition value its type does not hold.

        Truncation rounds down. Below the smallest multiple of the width an integer wraps around to the
        largest, and a reader that filters by the column would leave the file out.
        """
        for field in self._fields:
            if (beyond := field.outside(rows)) is not None:
                yield field.path[0], beyond

    def texts(self, place: int, values: pa.Array) -> list[str | None]:
        """The values of one field in the names of folders; None: NULL."""
        field = self._fields[place]
        return [None if value is None else field.text(value) for value in field.plain(values)]

    def record(self, values: pa.RecordBatch) -> list[Any]:
        """The values of one row of ``fields`` as a manifest has them."""
        columns = zip(self._fields, values.columns, strict=True)
        return [field.plain(column)[0] for field, column in columns]


class _Field:
    """A field of a specification."""

    def __init__(self, field: PartitionField, schema: Schema) -> None:
        self.name = field.name
        self.path = source_of(field, schema)
        self._field = field
        self._schema = schema
        # The column of a void field may be gone.
        self._source = cast("Any", schema.find_type(field.source_id) if self.path else None)
        try:
            self._transform = field.transform.pyarrow_transform(self._source)
        except NotInstalledError as error:
            raise ConfigError(
                f"The table is partitioned by {field.transform}, which the package pyiceberg-core "
                "computes: it is not installed.",
                remedy="pip install 'abs-sinks[iceberg]'.",
            ) from error

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        if isinstance(self._field.transform, VoidTransform):
            return pa.nulls(rows.num_rows, pa.int32())
        return self._transform(self._column(rows))

    def outside(self, rows: pa.RecordBatch) -> pa.Array | None:
        if not isinstance(self._field.transform, TruncateTransform):
            return None
        column = self._column(rows)
        kind, values = column.type, self._transform(column)
        if pa.types.is_integer(kind):
            return pc.greater(values, column)
        if pa.types.is_decimal(kind):  # computed with more digits than the type has
            least = Decimal((1, (9,) * kind.precision, -kind.scale))
            return pc.less(values, pa.scalar(least, kind))
        return None

    def plain(self, values: pa.Array) -> list[Any]:
        """The values as a manifest has them."""
        if isinstance(self._field.transform, IdentityTransform):
            return [
                partition_record_value(self._field, v, self._schema) for v in values.to_pylist()
            ]
        return list(values.to_pylist())

    def text(self, value: Any) -> str:
        return str(self._field.transform.to_human_string(self._source, value))

    def _column(self, rows: pa.RecordBatch) -> pa.Array:
        column = reduce(pc.struct_field, self.path[1:], rows.column(self.path[0]))
        return column.storage if isinstance(column, pa.ExtensionArray) else column


def named(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """The fields as a person writes them: ``day``, ``day(at)``, ``bucket[16](id)``."""
    names = []
    for field in spec.fields:
        path, transform = ".".join(source_of(field, schema)), field.transform
        how = transform._transform if isinstance(transform, UnknownTransform) else transform
        names.append(path if isinstance(transform, IdentityTransform) else f"{how}({path})")
    return tuple(names)


def unwritable(spec: PartitionSpec, schema: Schema) -> Iterator[str]:
    """The fields whose values are not made here."""
    for field, name in zip(spec.fields, named(spec, schema), strict=True):
        path, transform = source_of(field, schema), field.transform
        if isinstance(transform, VoidTransform):
            continue
        if not path or not transform.can_transform(schema.find_type(field.source_id)):
            yield name


def sources_of(spec: PartitionSpec, schema: Schema) -> Iterator[str]:
    """The columns that values of partitions are made of; a void field, which has none, needs none."""
    for field in spec.fields:
        path = source_of(field, schema)
        if path and not isinstance(field.transform, VoidTransform):
            yield path[0]


def source_of(field: PartitionField, schema: Schema) -> list[str]:
    """The names that lead to a field's column; none if the column is gone."""
    return _path(schema.fields, field.source_id)


def _path(fields: tuple[NestedField, ...], number: int) -> list[str]:
    for field in fields:
        kind: IcebergType = field.field_type
        inner = _path(kind.fields, number) if isinstance(kind, StructType) else []
        if inner or field.field_id == number:
            return [field.name, *inner]
    return []
