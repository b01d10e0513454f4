"""The base of writers that stream a task's rows to uploads."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.model import Committable, HandleName
from abs_core.patience import Patience
from abs_sinks.checking import CheckingWriter, offering
from abs_sinks.deadletters.letter import LETTERS
from abs_sinks.refusals import BadRows, find_bad_rows
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.uploads import Upload

OFFERED = "a folder"
"""What the option ``deadletter`` names."""


class StreamingWriter(CheckingWriter):
    """A ``Writer``: the first row begins the first file; each request is retried.

    Without dead letters a row is checked as it is encoded, and not twice.
    """

    offers = OFFERED

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        super().__init__(options, task, str(options.path))
        self._options = options
        self._schema = schema
        self._handle = task.handle
        self._patience = replace(options.patience, job=task.job)
        self._files: TaskFiles | None = None
        self._letters_files: TaskFiles | None = None
        self._uploads: tuple[Upload, ...] = ()

    def abort(self) -> None:
        for files in (self._files, self._letters_files):
            if files is not None:
                files.discard()
        self._files = self._letters_files = None

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the format or a key cannot hold; nothing is written."""
        return find_bad_rows(batch, self._begun().check)

    def _checked(self, batch: pa.RecordBatch) -> None:
        if self._options.deadletter is not None:
            self._opened().check(batch)

    def _keep_checked(self, batch: pa.RecordBatch, checked: None) -> None:
        with offering(self._options.deadletter, self.offers):
            self._opened().write(batch)

    def _bury(self, letters: pa.RecordBatch) -> None:
        if self._letters_files is None:
            self._letters_files = letters_files(self._options, self._handle, self._patience)
        self._letters_files.write(letters)

    def _opened(self) -> TaskFiles:
        if self._files is None:
            self._files = self._begun()
        return self._files

    def _begun(self) -> TaskFiles:
        return TaskFiles(self._options, self._schema, self._handle, self._patience)

    def _complete(self) -> None:
        with offering(self._options.deadletter, self.offers):
            for files in (self._files, self._letters_files):
                if files is not None:
                    self._uploads += files.finish()
        rows, dead = (
            0 if files is None else files.rows for files in (self._files, self._letters_files)
        )
        self._held = rows, dead

    def _prepared(self) -> Committable:
        committable = self._sealed()
        self._files = self._letters_files = None  # which ``abort`` must not discard any more
        return committable

    @abstractmethod
    def _sealed(self) -> Committable:
        """Pre-commit the uploads; after an error ``abort`` discards them.

        Raises:
            TargetError: the server refused or went away; the sweep deletes what is there.
        """


def letters_files(
    options: S3Options, handle: HandleName, patience: Patience | None = None
) -> TaskFiles:
    """Files of a handle's dead letters, JSON lines, in their folder."""
    assert options.letters is not None
    there = replace(
        options,
        path=options.letters,
        fileformat="json",
        compression="none",
        partitionby=(),
        filename="dead",
    )
    return TaskFiles(there, LETTERS, handle, patience)
