"""Opens files by format: their schema, and a reader for the rest of a piece.

Folder names ``column=value`` are columns, as Hive and Spark write partitioned data sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import type_name
from abs_core.errors import DataError, RowError, SchemaError
from abs_sources.files.columnar import (
    Progress,
    Rest,
    Step,
    arrow_schema_of,
    parquet_schema,
    read_arrow,
    read_parquet,
)
from abs_sources.files.consent import naming_ways_out
from abs_sources.files.lines import codec_of, read_csv, read_json, read_text
from abs_sources.files.model import OpenFile, Piece, Pin, Store
from abs_sources.files.options import FileOptions
from abs_sources.files.schema import from_text, match

TEXT = pa.schema([pa.field("value", pa.string())])
_WHOLE = {"parquet", "arrow"}


def is_divisible(options: FileOptions, name: str) -> bool:
    """Whether reading can begin in the middle of the file of this name."""
    return options.fileformat in _WHOLE or codec_of(name) is None


def stored_schema(options: FileOptions, store: Store, pins: Sequence[Pin]) -> pa.Schema:
    """The schema in the first file; SchemaError if the format has none, or without a file."""
    if options.fileformat == "text":
        return TEXT
    reads = {"parquet": parquet_schema, "arrow": arrow_schema_of}.get(options.fileformat)
    if reads is None or not pins:
        why = "there is no file yet" if reads else f"{options.fileformat} files do not hold one"
        raise SchemaError(
            f"The schema of {options.path.name} is not known: {why}.",
            remedy='give it, for instance by .schema("id bigint, word string").',
        )
    opened = store.open(pins[0])
    try:
        return with_folders(reads(opened.content, store.name(pins[0].path)), pins[0].path)
    finally:
        opened.close()


class FileReader:
    """Reads the rest of one piece of one file; ``log`` is the id of the stream's log, if any."""

    def __init__(
        self,
        options: FileOptions,
        store: Store,
        log: str | None,
        schema: pa.Schema,
        piece: Piece,
        at: Progress,
    ) -> None:
        self.at = at
        self._telling = partial(naming_ways_out, log, store, piece.pin, begun=at is not None)
        name = store.name(piece.pin.path)
        most = options.batchsize if options.fileformat in _WHOLE else options.chunk
        with self._telling():
            self._folders = FolderColumns(schema, piece.pin.path, name, options.zone)
            self._file: OpenFile = store.open(piece.pin)
        inside = self._folders.inside
        self._steps = _steps(options, Rest(self._file.content, piece, at, inside, most, name))

    def read(self) -> pa.RecordBatch | None:
        """The next batch; None at the end of the piece.

        Raises ReplayMismatchError if the file is not the pinned one.
        """
        with self._telling():
            try:
                batch, at = next(self._steps, (None, self.at))
            except Exception:
                self._file.check()  # a file that changed while it was read looks damaged
                raise
            self._file.check()
        self.at = at
        return None if batch is None else self._folders.add(batch)

    def close(self) -> None:
        self._file.close()


def _steps(options: FileOptions, rest: Rest) -> Iterator[Step]:
    if rest.piece.pin.size == 0 and options.fileformat not in _WHOLE:
        return iter(())
    if options.fileformat == "csv":
        return read_csv(rest, options.csv)
    return _READ[options.fileformat](rest)


_READ: dict[str, Callable[[Rest], Iterator[Step]]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
    "json": read_json,
    "text": read_text,
}


NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null (Spark: ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""

_OFFSET = re.compile(r":[0-9.]+(Z|[+-][0-9:]+)$")

_STAND_IN = pa.field("(a column of the file)", pa.string())
"""Read if all columns are of folders: Arrow cannot tell the rows of a batch without columns."""


def folder_values(path: str) -> dict[str, str | None]:
    """Columns and values in the folders of a file's path; the deeper folder wins."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder)
    try:
        return {
            unquote(name, errors="strict"): None
            if value == NULL
            else unquote(value, errors="strict")
            for name, _, value in pairs
            if name
        }
    except UnicodeDecodeError as error:
        raise DataError(
            f"The folders of the file {path!r} hold bytes (%XX) that are not UTF-8, so their values "
            "are not known.",
            remedy="rename the folder, with %XX of UTF-8 and %25 for a percent sign; or leave such "
            "folders out (a glob in path).",
        ) from error


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
            f"The folder of {name} says {field.name}={value}, which cannot be read as "
            f"{type_name(field.type)}: "
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
