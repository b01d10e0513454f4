"""The format ``abs-s3``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from abs_core.errors import OptionError
from abs_sinks.s3 import S3Options, committed_files
from abs_sources.files import FileOptions, FileSource
from abs_sources.files.model import Found, OpenFile, Pin, Store
from abs_spark.formats.s3 import FORMAT
from abs_spark.readable import ReadableDataSource, Reading
from abs_spark.source import AbsDataSource

_SHARED = ("fileformat", "endpoint", "region", "pathstyle", "header", "timeout")
"""Options that mean the same to the sink and to a reader of files."""


@dataclass(frozen=True, slots=True)
class CommittedStore:
    """The files of a folder that are committed, whatever else lies there."""

    files: Store
    options: S3Options

    def find(self) -> list[Found]:
        # What is committed stays so: it is looked up first, then found in the listing.
        folder = self.options.path.folder
        committed = {file.key.removeprefix(folder) for file in committed_files(self.options)}
        return [found for found in self.files.find() if found.pin.path in committed]

    def open(self, pin: Pin) -> OpenFile:
        return self.files.open(pin)

    def name(self, path: str) -> str:
        return self.files.name(path)


def stored_schema(given: Mapping[str, str]) -> pa.Schema:
    """The schema of the first committed file, for formats that hold it."""
    return _source(given, None).schema


def open_batch(given: Mapping[str, str], schema: pa.Schema) -> FileSource:
    """All files that are committed now: whole epochs of each job."""
    return _source(given, schema)


def open_stream(given: Mapping[str, str], schema: pa.Schema) -> NoReturn:
    """There is none."""
    raise OptionError(
        "abs-s3 is read in batches only.",
        remedy="spark.readStream.format('abs-files') reads what 2pc and wal wrote, as it comes.",
    )


def _source(given: Mapping[str, str], schema: pa.Schema | None) -> FileSource:
    options = S3Options.parse(given)
    shared = {name: text for name, text in given.items() if name.lower() in _SHARED}
    header = {"header": str(options.header).lower()}
    read = FileOptions.parse({**header, **shared, "path": str(options.path)}, streaming=False)
    return FileSource(read, schema, CommittedStore(read.store(), options))


class S3DataSource(ReadableDataSource, AbsDataSource):
    """Writes files to S3 exactly once, and reads what is committed; see ``abs_sinks.s3``."""

    format = FORMAT
    reading = Reading("abs-s3", stored_schema, open_stream, open_batch)
