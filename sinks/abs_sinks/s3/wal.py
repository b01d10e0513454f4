"""Protocol wal: a task writes a segment, and the commit composes an epoch's segments to files."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa

from abs_clients.arrow import taken
from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Task
from abs_core.deadletters import check_held, counts_of, noted
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.routing import none_to_commit
from abs_core.wal import SegmentWriter, read_segment
from abs_sinks.checking import CheckingWriter, offering
from abs_sinks.deadletters.letter import LETTERS
from abs_sinks.refusals import BadRows, find_bad_rows
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import S3Segments
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import committable, inspected
from abs_sinks.s3.writer import OFFERED, letters_files

AHEAD = 8
"""Batches read ahead, and held in memory."""

_LETTER = "abs:letter"
"""Column of a segment that holds a dead letter (``LETTERS``), null in rows of the input."""

Batches = Generator[pa.RecordBatch, None, None]


def reading_ahead(batches: Batches, count: int = AHEAD) -> Batches:
    """Read batches ahead in a thread, while the caller encodes earlier ones.

    Yields the same batches in order; an error comes at its place.

    The caller closes it (``contextlib.closing``), which closes ``batches`` and ends the thread.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="abs-s3-read") as pool:
        coming = deque(pool.submit(next, batches, None) for _ in range(count))
        try:
            while (batch := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, batches, None))
                yield batch
        finally:
            for waiting in coming:
                waiting.cancel()
            pool.submit(batches.close)


class WalWriter(CheckingWriter):
    """Streams rows to a segment, which readers never see; with dead letters, both, side by side."""

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        super().__init__(options, task, str(options.path))
        self._options, self._schema, self._handle = options, schema, task.handle
        self._kept = schema if options.letters is None else _with_letters(schema)
        self._segment = SegmentWriter(
            S3Segments(options), task.handle, self._kept, compression="zstd"
        )
        self._files = TaskFiles(options, schema, task.handle)

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the files of a later compose could not hold; nothing is written."""
        return find_bad_rows(batch, self._files.check)

    def abort(self) -> None:
        self._segment.abort()

    def _checked(self, batch: pa.RecordBatch) -> None:
        if self._options.deadletter is not None:
            self._files.check(batch)

    def _keep_checked(self, batch: pa.RecordBatch, checked: None) -> None:
        if self._options.letters is None:
            self._segment.write(batch)
            return
        columns = [*batch.columns, pa.nulls(batch.num_rows, self._kept.field(_LETTER).type)]
        self._segment.write(pa.RecordBatch.from_arrays(columns, schema=self._kept))

    def _bury(self, letters: pa.RecordBatch) -> None:
        letter = pa.StructArray.from_arrays(letters.columns, fields=list(letters.schema))
        columns = [*(pa.nulls(len(letter), field.type) for field in self._schema), letter]
        self._segment.write(pa.RecordBatch.from_arrays(columns, schema=self._kept))

    def _complete(self) -> None:
        """Nothing: ``_prepared`` seals the segment."""

    def _prepared(self) -> Committable:
        seal = self._segment.finish()
        assert seal is not None, "rows were written"
        return seal.committable()


class WalCommitter(Committer):
    """A ``Committer`` that composes of segments to uploads, which are committed as those of ``2pc``."""

    composes = True

    def __init__(self, options: S3Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._segments = S3Segments(options)

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Committer``, and ``compose``."""
        return compose(self._options, self._schema, committables)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return inspected(committables, self._inspect)

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Raise ``ProtocolError`` if a segment is given: a decision names composed uploads."""
        return none_to_commit(
            committables,
            "A decision names a segment of the write-ahead log, not the files composed of it.",
            "this is a defect of the engine, which must call `compose` before it decides.",
        )

    def abort(self, handles: Sequence[HandleName]) -> None:
        # A segment is under one key: it is deleted unseen. To list a job's costs more.
        abort_each(handles, lambda handle: self._segments.delete([handle]))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return [entry.in_doubt(self._segments.url) for entry in self._segments.list(job)]

    def forget(self, state: JobState) -> None:
        """Nothing: segments of finished epochs are in doubt until they are swept."""

    def _inspect(self, committable: Committable) -> Outcome:
        there = self._segments.has(committable.handle)
        return Outcome.PREPARED if there else Outcome.UNKNOWN


def compose(
    options: S3Options, schema: pa.Schema, segments: Sequence[Committable]
) -> list[Committable]:
    """Compose the segments to uploads of one new handle, in files of ``targetfilesize``.

    A retry of the epoch composes other uploads under another handle (I6); undecided ones are swept.

    Raises:
        NotPreparedError: a segment is gone.
        CorruptionError: a segment is not what was pre-committed.
        TargetError: the server refused or went away; nothing is decided.
    """
    if not segments:
        return []
    name = replace(min(c.handle for c in segments), attempt=secrets.token_hex(8))
    files = TaskFiles(replace(options, maxfilesize=options.targetfilesize), schema, name)
    dead = None if options.letters is None else letters_files(options, name)
    opened = [one for one in (files, dead) if one is not None]
    try:
        with offering(options.deadletter, OFFERED):
            _fill(files, dead, schema, _batches(options, segments))
            uploads = [upload for one in opened for upload in one.finish()]
    except BaseException:
        for writer in opened:
            writer.discard()
        raise
    made = committable(name, sum(one.rows for one in opened), uploads)
    counted = replace(made, extra=tuple(sorted((*made.extra, *noted(counts_of(segments))))))
    # Before the decision: what is counted after it could only be told as a loss.
    check_held(counted, files.rows, 0 if dead is None else dead.rows)
    return [counted]


def _fill(files: TaskFiles, dead: TaskFiles | None, schema: pa.Schema, batches: Batches) -> None:
    """Write the batches of segments to files of rows, and of dead letters."""
    with closing(reading_ahead(batches)) as ahead:
        for batch in ahead:
            if dead is None:
                files.write(batch)
                continue
            for to, share in zip((files, dead), _apart(batch, schema), strict=True):
                if share.num_rows:
                    to.write(share)


def _with_letters(schema: pa.Schema) -> pa.Schema:
    """The columns of a segment in which a row is of the input, or a dead letter."""
    nullable = [field.with_nullable(True) for field in schema]
    return pa.schema([*nullable, pa.field(_LETTER, pa.struct(list(LETTERS)))])


def _apart(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """A segment's rows of the input, and its dead letters."""
    letter = batch.column(_LETTER)
    rows = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)
    dead = letter.is_valid()
    letters = pa.RecordBatch.from_arrays(letter.filter(dead).flatten(), schema=LETTERS)
    good = np.flatnonzero(~dead.to_numpy(zero_copy_only=False))
    return taken(rows, pa.array(good)), letters


def _batches(options: S3Options, segments: Sequence[Committable]) -> Batches:
    """The rows of all segments; each segment is checked before its first row."""
    for segment in sorted(segments, key=lambda c: c.handle):
        yield from read_segment(S3Segments(options), segment)
