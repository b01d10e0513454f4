"""The format ``abs-files``: replayable files, for ``readStream`` and ``read``."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource
from abs_spark.readable import ReadableDataSource, Reading


def stored_schema(given: Mapping[str, str]) -> pa.Schema:
    """The schema of the first file, for formats that hold it."""
    return FileSource(FileOptions.parse(given, streaming=False)).schema


def open_stream(given: Mapping[str, str], schema: pa.Schema) -> tuple[FileSource, Limit]:
    """A stream of files, which has a log."""
    options = FileOptions.parse(given, streaming=True)
    return FileSource(options, schema), options.limit


def open_batch(given: Mapping[str, str], schema: pa.Schema) -> FileSource:
    """All files that are there now."""
    return FileSource(FileOptions.parse(given, streaming=False), schema)


class FilesDataSource(ReadableDataSource):
    """Reads files; see ``abs_sources.files`` for its options, and for what it guarantees."""

    reading = Reading("abs-files", stored_schema, open_stream, open_batch)
