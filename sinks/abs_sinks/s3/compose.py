"""Protocol wal: the segments of an epoch become few files, as uploads that the decision names."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from abs_core.model import Committable
from abs_core.wal import read_segment
from abs_sinks.s3.ahead import Batches, reading_ahead
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import S3Segments
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import committable


def compose(
    options: S3Options, schema: pa.Schema, segments: Sequence[Committable]
) -> list[Committable]:
    """One handle that holds the rows of all these segments, in files of ``targetfilesize``.

    Its name is new (I6): another try of the same epoch composes other uploads, and what is not
    decided is swept like any other upload.

    Raises:
        NotPreparedError: a segment is not there any more.
        CorruptionError: a segment is not what was pre-committed.
        TargetError: the server refused or went away; nothing is decided.
    """
    if not segments:
        return []
    name = replace(min(c.handle for c in segments), attempt=secrets.token_hex(8))
    files = TaskFiles(replace(options, maxfilesize=options.targetfilesize), schema, name)
    try:
        with closing(reading_ahead(_batches(options, segments))) as batches:
            for batch in batches:
                files.write(batch)
        return [committable(name, files.rows, files.finish())]
    except BaseException:
        files.discard()
        raise


def _batches(options: S3Options, segments: Sequence[Committable]) -> Batches:
    """The rows of all segments, each of which is checked whole before its first row comes."""
    for segment in sorted(segments, key=lambda c: c.handle):
        yield from read_segment(S3Segments(options), segment)
