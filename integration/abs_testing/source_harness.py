"""The interface by which the checks fill and read a source; source authors implement it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from abs_core.source import Limit, Source

Record = Hashable
"""One row in a form that the harness can compare; no two rows of a harness are equal."""


class SourceHarness(Protocol):
    """One empty place that a source reads, as a test sees it.

    Its sources start at the beginning, and give batches of few rows (five, say), so that a split has
    several batches, and the state between two of them can be checked.
    """

    @property
    def limits(self) -> Sequence[tuple[Limit, int]]:
        """Limits that the source keeps, each with the most rows that an epoch may hold under it.

        Far fewer than forty, so that the rows of a check need several epochs.
        """
        ...

    @property
    def damages(self) -> Mapping[str, Callable[[], None]]:
        """Ways in which the past can change, by name: rows that were added are then gone or others.

        After any of them, a range over all that was added cannot be read as it was.
        """
        ...

    def new_source(self) -> Source:
        """A source on this place, as a new process would build it."""
        ...

    def add(self, rows: int) -> Sequence[Record]:
        """Add so many new rows, readable when it returns; from four on, into at least two splits."""
        ...

    def records(self, batch: pa.RecordBatch) -> Sequence[Record]:
        """The rows of a batch that the source gave, in order."""
        ...


SourceOpener = Callable[[], AbstractContextManager[SourceHarness]]
"""Opens a harness on a place that no other check has used."""
