"""What a writer does with bad rows: they become dead letters of the same handle, or another sink's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.deadletters import Count
from abs_sinks.deadletters.letter import LETTERS, Shown, dead_letters, schema_text, why_bad
from abs_sinks.options import DeadLetterOptions, ToSink, limit_text, not_alone
from abs_sinks.refusals import BadRows

Bury = Callable[[pa.RecordBatch], object]
"""Takes dead letters, rows of ``LETTERS``."""


class GivingWriter(Writer, Protocol):
    """A ``Writer`` that can be told where its dead letters go."""

    def bury_in(self, elsewhere: Bury) -> None:
        """Give them to another sink, which counts them; needed for ``deadletter=sink:NAME``."""


class GivingSink(Protocol):
    """A sink whose dead letters another one of the epoch may get (``SinkFormat.buries``)."""

    def raw_writer(self, task: Task) -> GivingWriter:
        """The writer itself, which can be told where its dead letters go."""
        ...


class BuryingWriter(Writer, Protocol):
    """A ``Writer`` that keeps dead letters beside rows."""

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows: ...

    def bury(self, letters: pa.RecordBatch) -> None: ...


class Letters:
    """The dead letters of one sink in a writer.

    Args:
        number: of the sink.
    """

    def __init__(self, options: DeadLetterOptions[Any], number: int) -> None:
        self._options = options
        self.count = Count(number, 0, 0, options.deadlettermax)
        """Rows that passed, dead ones included but not those that were given away."""

    @property
    def given(self) -> bool:
        """Whether another sink gets them."""
        return isinstance(self._options.deadletter, ToSink)

    def add(self, *, rows: int = 0, dead: int = 0) -> None:
        """Count rows that passed, and dead letters among those."""
        had = self.count
        self.count = replace(had, rows=had.rows + rows, dead=had.dead + dead)

    def rows_of(
        self,
        batch: pa.RecordBatch,
        bad: BadRows,
        task: Task,
        sink: str,
        key: tuple[str, ...],
        written: Mapping[str, str] | None = None,
    ) -> pa.RecordBatch:
        """The dead letters of a batch's bad rows, as rows of ``LETTERS``.

        Args:
            sink: what they say that they were refused by.
            key: columns that identify a row.
            written: see ``schema_text``.
        """
        place = (task.job, sink, task.epoch, datetime.now(UTC))
        schema = schema_text(batch.schema, written)
        made = dead_letters(batch, why_bad(bad), Shown(key, self._options.deadlettercolumns))
        rows = [(*place, *astuple(letter), schema) for letter in made]
        types = enumerate(LETTERS.types)
        columns = [pa.array([row[n] for row in rows], kind) for n, kind in types]
        return pa.RecordBatch.from_arrays(columns, schema=LETTERS)

    def give(self, letters: pa.RecordBatch, elsewhere: Bury | None) -> None:
        """Give letters away: they are no rows of this sink any more.

        Raises:
            OptionError: no other sink gets them.
        """
        if elsewhere is None:
            raise not_alone(self._options.deadletter)
        self.add(rows=-letters.num_rows)
        elsewhere(letters)


def dead_letters_of(kind: str, options: DeadLetterOptions[Any]) -> str:
    """What a sink's guarantee says of its dead letters.

    Args:
        kind: of the place, if it is in the sink's own system.
    """
    target = options.deadletter
    place = str(target) if isinstance(target, ToSink) else f"the {kind} {target}"
    return (
        f"Rows that the target cannot hold are in {place}, under the same decision; more than "
        f"{options.deadlettermax:.2%} of the rows {limit_text()}, stop the query."
    )
