"""Columns in folder names, ``column=value``, as Hive and Spark write partitioned data sets."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.errors import RowError
from abs_sources.files.schema import match
from abs_sources.files.texts import from_text

NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null (Spark: ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""

_OFFSET = re.compile(r":[0-9.]+(Z|[+-][0-9:]+)$")

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
        zone: of moments without an offset, which are refused without it.
    """

    def __init__(self, schema: pa.Schema, path: str, name: str, zone: str | None) -> None:
        values = folder_values(path)
        there = match(schema.names, [*values], name)
        self._schema = schema
        self._constants = {
            field.name: _read(values[there[field.name]], field, name, zone)
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


def _read(value: str | None, field: pa.Field, name: str, zone: str | None) -> pa.Scalar:
    def refused(why: object) -> RowError:
        return RowError(
            f"The folder of {name} says {field.name}={value}, which cannot be read as {field.type}: "
            f"{why}.",
            remedy="give a schema that holds it by .schema(...); a string always does.",
        )

    text, to = pa.array([value], pa.string()), field.type
    try:
        if value is None or not pa.types.is_timestamp(to) or to.tz is None or _OFFSET.search(value):
            return from_text(text, to, field.name)[0]
        clock = from_text(text, pa.timestamp(to.unit), field.name)
        if zone is None:
            raise refused(
                "it has no offset, and Spark and Hive write the time of the session's zone. Set the "
                "option timeZone to that zone (UTC for folders of older releases of abs-s3)"
            )
        # A clock that is set back shows a time twice: refused, as the folder does not say which.
        return pc.assume_timezone(clock, zone).cast(to)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise refused(str(error).rstrip(".")) from error
