"""Reads what ``abs-s3`` has committed, and nothing else: whole epochs, whatever the protocol.

Files of 2pc and wal are committed by being there; those of ``idempotent`` by a manifest that the job's
register lists. What each is, is asked of the sink (``abs_sinks.s3.committed``). Files of others in the
folder are left out, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from abs_core.errors import OptionError
from abs_core.source import Limit
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.objects import Objects
from abs_sinks.s3.options import S3Options
from abs_sources.files import FileOptions, FileSource, Place
from abs_sources.files.bucket import Server
from abs_sources.files.faults import changed, gone
from abs_sources.files.lines import CsvForm
from abs_sources.files.model import Found, OpenFile, Pin
from abs_sources.files.pattern import Pattern
from abs_sources.files.s3 import S3Store
from abs_spark.readable import Reading


@dataclass(frozen=True, slots=True)
class CommittedStore:
    """The committed files of a sink's folder, as a place that a file source reads.

    A data file's key is written once, so a key and a size name one content; where a manifest tells the
    checksum, that is compared, too.
    """

    options: S3Options

    def find(self) -> list[Found]:
        """Committed at this moment; each job's epochs are whole.

        Raises:
            TargetError: the server refused or went away.
        """
        cut = len(self.options.path.folder)
        files = committed_files(self.options)
        return [Found(Pin(file.key[cut:], file.size, file.crc), 0) for file in files]

    def open(self, pin: Pin) -> OpenFile:
        """The file, with the content that was committed.

        Raises:
            ReplayMismatchError: it is gone, or is another one now.
            TargetError: the server refused or went away.
        """
        name = self.name(pin.path)
        head = Objects(self.options).head(self.options.path.key(pin.path))
        if head is None:
            raise gone(name)
        if pin.stamp and head.crc64nvme not in (None, pin.stamp):
            raise changed(name, f"checksum {pin.stamp}", str(head.crc64nvme))
        return self._store.open(pin._replace(stamp=head.etag))

    def name(self, path: str) -> str:
        return self._store.name(path)

    @property
    def _store(self) -> S3Store:
        path = self.options.path
        return S3Store(_server(self.options), path.bucket, Pattern(path.prefix))


def open_committed(given: Mapping[str, str], schema: pa.Schema | None) -> FileSource:
    """All that is committed now.

    Raises:
        OptionError: all that is wrong with the options, which are those of the sink.
    """
    options = S3Options.parse(given)
    place = Place(options.path.bucket, options.path.prefix)
    reading = FileOptions(
        place,
        options.fileformat,
        csv=replace(CsvForm(), header=options.header),
        server=_server(options),
    )
    return FileSource(reading, schema, CommittedStore(options))


def stored_schema(given: Mapping[str, str]) -> pa.Schema:
    """The schema of the first committed file; columns of ``partitionby`` come last, as text."""
    return open_committed(given, None).schema


def no_stream(given: Mapping[str, str], schema: pa.Schema) -> tuple[FileSource, Limit]:
    """Not offered.

    Raises:
        OptionError: always.
    """
    raise OptionError(
        "abs-s3 is read as a batch only.",
        remedy="stream its files by abs-files, where they were written by protocol 2pc or wal.",
    )


def _server(options: S3Options) -> Server:
    return Server(options.endpoint, options.region, options.pathstyle, options.timeout)


READING = Reading("abs-s3", stored_schema, no_stream, open_committed)
