"""The format ``abs-s3``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa

from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_core.errors import OptionError
from abs_sinks.s3 import S3Options, committed_files
from abs_sinks.s3.committed import is_gone
from abs_sinks.s3.door import FORMAT
from abs_sinks.s3.layout import UPTO, UpTo
from abs_sources.files import FileOptions, FileSource
from abs_sources.files.model import Found, OpenFile, Pin, Store
from abs_sources.files.pattern import literal
from abs_sources.files.s3 import S3Store
from abs_spark.datasource.readable import ReadableDataSource
from abs_spark.datasource.source import AbsDataSource

_SHARED = ("fileformat", "endpoint", "region", "pathstyle", "header", "timeout")
"""Options with the same meaning for the sink and for a reader of files."""

_SEVERAL = "statepaths"
"""Option of readers only: the statepaths of all jobs that write to the folder."""


@dataclass(frozen=True, slots=True)
class CommittedStore:
    """The committed files of a folder.

    Args:
        beside: see ``committed_files``.
        upto: those files only.
    """

    files: Store
    options: S3Options
    beside: tuple[Location, ...] = ()
    upto: UpTo | None = None

    def find(self) -> list[Found]:
        """Every committed file, with the content that it has now.

        Raises:
            CorruptionError: a file that a manifest names is not there.
            RegisterLostError: see ``committed_files``.
        """
        # Committed files stay committed, so the manifests are read before the listing.
        folder = self.options.path.folder
        committed = [
            file.key
            for file in committed_files(self.options, self.beside)
            if self.upto is None or self.upto.has(file.key)
        ]
        listed = {found.pin.path: found for found in self.files.find()}
        matches = (listed.get(key.removeprefix(folder)) or self._look(key) for key in committed)
        return [found for found in matches if found is not None]

    def _look(self, key: str) -> Found | None:
        """A committed file that was not listed; None if it went away and no manifest names it."""
        path = self.options.path
        head = Objects(self.options.bucket).head(key)
        if head is not None:
            return Found(Pin(key.removeprefix(path.folder), head.size, head.etag), 0)
        gone = is_gone(path, key)
        if gone is not None:
            raise gone
        return None

    def open(self, pin: Pin) -> OpenFile:
        return self.files.open(pin)

    def name(self, path: str) -> str:
        return self.files.name(path)


def _source(settings: Mapping[str, str], schema: pa.Schema | None) -> FileSource:
    writers = {
        name: text for name, text in settings.items() if name.lower() not in (_SEVERAL, UPTO)
    }
    upto = next((UpTo.parse(text) for name, text in settings.items() if name.lower() == UPTO), None)
    options, beside = S3Options.parse(writers), _beside(settings, writers)
    shared = {name: text for name, text in settings.items() if name.lower() in _SHARED}
    # Older releases named folders of moments in UTC, and without saying so.
    own = {
        "header": str(options.header).lower(),
        "timezone": "UTC",
        "path": literal(str(options.path)),
    }
    read = FileOptions.parse({**own, **shared}, streaming=False)
    # A job that has committed nothing yet has written nothing.
    store = read.store()
    if isinstance(store, S3Store):
        store = replace(store, exists=False)
    return FileSource(read, schema, CommittedStore(store, options, beside, upto))


def _beside(settings: Mapping[str, str], own: Mapping[str, str]) -> tuple[Location, ...]:
    """What ``statepaths`` names; each must be one that a job on this folder could have."""
    several = next((text for name, text in settings.items() if name.lower() == _SEVERAL), "")
    rest = {name: text for name, text in own.items() if name.lower() != "statepath"}
    parsed = (S3Options.parse({**rest, "statepath": text}) for text in several.split(",") if text)
    return tuple(options.state for options in parsed)


class S3DataSource(ReadableDataSource, AbsDataSource):
    """Writes files to S3 exactly once, and reads what is committed; see ``abs_sinks.s3``."""

    format = FORMAT

    @classmethod
    def stored_schema(cls, options: Mapping[str, str]) -> pa.Schema:
        """The schema of the first committed file, for formats that hold it."""
        return _source(options, None).schema

    @classmethod
    def open_stream(cls, options: Mapping[str, str], schema: pa.Schema) -> NoReturn:
        """There is none."""
        raise OptionError(
            "abs-s3 is read in batches only.",
            remedy="spark.readStream.format('abs-files') reads what 2pc and wal wrote, as it comes.",
        )

    @classmethod
    def open_batch(cls, options: Mapping[str, str], schema: pa.Schema) -> FileSource:
        """All files that are committed now: whole epochs of each job."""
        return _source(options, schema)
