"""The steps of a writer, for the writers of all sinks."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable


class StepwiseWriter(ABC):
    """A ``Writer`` in steps, with the crash points between them.

    It keeps batches that have rows, and pre-commits nothing if there were none.
    """

    def __init__(self) -> None:
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._keep(batch)
        first, self._rows = self._rows == 0, self._rows + batch.num_rows
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if not self._rows:
            return None
        self._complete()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        committable = self._prepared()
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return committable

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def _keep(self, batch: pa.RecordBatch) -> None:
        """Keep a batch's rows; ``_rows`` is the number of those before them."""

    @abstractmethod
    def _complete(self) -> None:
        """Wait until all kept rows have arrived."""

    @abstractmethod
    def _prepared(self) -> Committable:
        """Pre-commit the kept rows."""
