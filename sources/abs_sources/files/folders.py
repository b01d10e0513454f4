"""Columns in folder names, ``column=value``, as Hive and Spark write partitioned data sets."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa

from abs_core.errors import RowError
from abs_sources.files.schema import match

NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null (Spark: ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""

_STAND_IN = pa.field("(a column of the file)", pa.string())
"""Read if all columns are of folders: Arrow cannot tell the rows of a batch without columns."""


def folder_values(path: str) -> dict[str, str | None]:
    """Columns and values in the folders of a file's path; the deeper folder wins."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder)
    return {
        unquote(name): None if value == NULL else unquote(value) for name, _, value in pairs if name
    }


def with_folders(schema: pa.Schema, path: str) -> pa.Schema:
    """A file's schema followed by its folder columns as text; no type is guessed."""
    more = [name for name in folder_values(path) if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in more)])


class FolderColumns:
    """Adds the folder columns of a file's path to its batches.

    A path's value takes precedence over a file's column, as in Spark. Raises RowError if a value
    cannot be read as the schema's type, SchemaError if two folders could be one column.

    Args:
        schema: of the resulting batches.
        path: of the file, below the source's root.
        name: of the file, for people.
    """

    def __init__(self, schema: pa.Schema, path: str, name: str) -> None:
        values = folder_values(path)
        there = match(schema.names, [*values], name)
        self._schema = schema
        self._constants = {
            field.name: _read(values[there[field.name]], field, name)
            for field in schema
            if field.name in there
        }

    @property
    def inside(self) -> pa.Schema:
        """Columns to read from the file itself, at least one."""
        own = [f for f in self._schema if f.name not in self._constants]
        return pa.schema(own or [_STAND_IN])

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with all columns; unchanged without folder columns."""
        if not self._constants:
            return batch
        columns = [
            pa.repeat(self._constants[name], batch.num_rows)
            if name in self._constants
            else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _read(value: str | None, field: pa.Field, name: str) -> pa.Scalar:
    text = pa.array([value], pa.string())
    try:
        if pa.types.is_timestamp(field.type):  # written in UTC, and without saying so
            text = text.cast(pa.timestamp(field.type.unit))
        return text.cast(field.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RowError(
            f"The folder of {name} says {field.name}={value}, which cannot be read as {field.type}.",
            remedy="give a schema that holds it by .schema(...).",
        ) from error
