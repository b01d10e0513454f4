"""A data file being written: gathers batches to row groups, encodes and uploads them."""

from __future__ import annotations

import pyarrow as pa

from abs_sinks.refusals import BadRows, find_bad_rows, naming_rows
from abs_sinks.s3.formats import Encoder, encoder, encoding, try_encoding
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import PartFile
from abs_sinks.s3.uploads import Upload


class DataFile:
    """Memory: one row group of Arrow data, and what ``PartFile`` keeps."""

    def __init__(self, out: PartFile, schema: pa.Schema, options: S3Options) -> None:
        self._options = options
        self._schema = schema
        self._out = out
        self._gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        self._encoder: Encoder = encoder(out, schema, options)

    @property
    def full(self) -> bool:
        """Whether the next rows go to another file."""
        return self._out.tell() >= self._options.maxfilesize

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows.

        Raises:
            RowError: the format cannot hold a value.
            TargetError: a part could not be uploaded.
        """
        self._gathered.append(batch)
        self.gathered_bytes += batch.nbytes
        if self.gathered_bytes >= self._options.rowgroupsize:
            self.flush()

    def flush(self) -> None:
        """Encode the gathered rows as one row group."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, self._schema)
        self._gathered, self.gathered_bytes = [], 0
        with naming_rows(table, self._bad_rows), encoding(self._options):
            self._encoder.write(table)

    def finish(self) -> Upload:
        """End the file; every part is acknowledged when it returns."""
        self.flush()
        with encoding(self._options):
            self._encoder.close()
        return self._out.finish()

    def discard(self) -> None:
        """Abort the upload, at best effort. Never raises."""
        self._gathered = []
        self._out.discard()

    def _bad_rows(self, table: pa.Table) -> BadRows:
        return find_bad_rows(table, lambda part: try_encoding(part, self._options))
