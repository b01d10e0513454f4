"""The format ``abs-files``: replayable files, for ``readStream`` and ``read``."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource
from abs_spark.datasource.readable import ReadableDataSource


class FilesDataSource(ReadableDataSource):
    """Reads files; see ``abs_sources.files`` for its options, and for what it guarantees."""

    @classmethod
    def name(cls) -> str:
        return "abs-files"

    @classmethod
    def stored_schema(cls, options: Mapping[str, str]) -> pa.Schema:
        """The schema of the first file, for formats that hold it."""
        return FileSource(FileOptions.parse(options, streaming=False)).schema

    @classmethod
    def open_stream(cls, options: Mapping[str, str], schema: pa.Schema) -> tuple[FileSource, Limit]:
        """A stream of files, which has a log."""
        parsed = FileOptions.parse(options, streaming=True)
        return FileSource(parsed, schema), parsed.limit

    @classmethod
    def open_batch(cls, options: Mapping[str, str], schema: pa.Schema) -> FileSource:
        """All files that are there now."""
        return FileSource(FileOptions.parse(options, streaming=False), schema)
