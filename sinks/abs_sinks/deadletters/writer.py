"""Writers that check rows before they keep them: bad ones become dead letters of the same handle.

A sink says which rows are bad (``_checked`` raises ``BadValuesError``) and where its dead letters go
(``_bury``); what they are, and how they are counted, is the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.deadletters import Count, check_held, noted
from abs_core.errors import OptionError, RowError
from abs_core.model import Committable
from abs_core.sinkmap import number_of
from abs_core.stepwise import StepwiseWriter
from abs_sinks.deadletters.letter import (
    Shown,
    dead_letters,
    schema_text,
    why_bad,
)
from abs_sinks.options import ToSink, limit_text
from abs_sinks.refusals import BadRows, BadValuesError, find_bad_rows

LETTERS = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("sink", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("key", pa.string()),
        pa.field("position", pa.string()),
        pa.field("row", pa.string(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
    ]
)
"""The columns of dead letters as rows; key, position and row are JSON (``abs_sinks.deadletters``)."""


Bury = Callable[[pa.RecordBatch], object]
"""Takes dead letters, rows of ``LETTERS``."""


class Keeping(Protocol):
    """The options of a sink that can keep dead letters."""

    @property
    def deadletter(self) -> Any: ...

    @property
    def deadlettermax(self) -> float: ...

    @property
    def deadlettercolumns(self) -> tuple[str, ...]: ...


class GivingWriter(Writer, Protocol):
    """A ``Writer`` that can be told where its dead letters go."""

    def bury_in(self, elsewhere: Bury) -> None:
        """Give them to another sink, which counts them; needed for ``deadletter=sink:NAME``."""


class GivingSink(Protocol):
    """A sink whose dead letters another one of the epoch may get (``SinkFormat.buries``)."""

    def raw_writer(self, task: Task) -> GivingWriter:
        """The writer itself, which can be told where its dead letters go."""
        ...


class CheckingWriter(StepwiseWriter):
    """A ``Writer`` whose rows are checked batch by batch; ``bad_rows`` finds those that it refuses.

    Args:
        sink: what a dead letter says that it was refused by.
        key: columns that identify a row.
    """

    offers: ClassVar[str] = ""
    """What the option ``deadletter`` names, for errors; empty: the sink has no such option."""

    written: Mapping[str, str] | None = None
    """See ``schema_text``."""

    def __init__(self, options: Keeping, task: Task, sink: str, key: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._keeping = options
        self._task = task
        self._letters_sink = sink
        self._shown = Shown(key, options.deadlettercolumns)
        self._dead = 0
        self._elsewhere: Bury | None = None
        self._held: tuple[int, int] | None = None
        """Rows and dead letters that were pre-committed, where the sink counts them apart."""
        self._of_others = 0
        """Dead letters of no row of this writer."""

    def bury_in(self, elsewhere: Bury) -> None:
        """See ``GivingWriter``."""
        self._elsewhere = elsewhere

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the target cannot hold; nothing is written."""
        return find_bad_rows(batch, self._checked)

    def bury(self, letters: pa.RecordBatch) -> None:
        """Keep dead letters that are of no row of this writer; it has the option ``deadletter``."""
        self._of_others += letters.num_rows
        self._bury(letters)

    def pre_commit(self) -> Committable | None:
        counted = super().pre_commit()
        if counted is None:
            return None
        if self._keeping.deadletter is not None:
            number = number_of(self._task.handle)
            count = Count(number, self._rows, self._dead, self._keeping.deadlettermax)
            counted = replace(counted, extra=tuple(sorted((*counted.extra, *noted([count])))))
        if self._held is not None:
            rows, dead = self._held
            check_held(counted, rows, dead - self._of_others)
        return counted

    @abstractmethod
    def _checked(self, batch: pa.RecordBatch) -> Any:
        """What ``_keep_checked`` takes besides the batch.

        Raises:
            BadValuesError: the target cannot hold a row; nothing is kept.
        """

    @abstractmethod
    def _keep_checked(self, batch: pa.RecordBatch, checked: Any) -> None:
        """Keep a batch that was checked."""

    def _bury(self, letters: pa.RecordBatch) -> None:
        """Keep dead letters, rows of ``LETTERS``, so that they become visible with the rows."""
        raise NotImplementedError(f"{type(self).__name__} keeps no dead letters")

    def _keep(self, batch: pa.RecordBatch) -> None:
        try:
            checked = self._checked(batch)
        except BadValuesError:
            bad = self.bad_rows(batch)
            if not bad:
                raise  # only the batch as a whole is too much
            if self._keeping.deadletter is None:
                with offering(self._keeping, self.offers):
                    raise bad.error(batch, self._rows) from None
            place = self._letters_sink
            self._put_aside(as_rows(batch, bad, self._task, place, self._shown, self.written))
            batch = batch.filter(pa.array(bad.which < 0))
            if not batch.num_rows:
                return
            checked = self._checked(batch)
        self._keep_checked(batch, checked)

    def _put_aside(self, letters: pa.RecordBatch) -> None:
        if not isinstance(self._keeping.deadletter, ToSink):
            self._bury(letters)
            self._dead += letters.num_rows
        elif self._elsewhere is None:
            raise not_alone(self._keeping.deadletter)
        else:
            self._elsewhere(letters)
            self._rows -= letters.num_rows


def as_rows(
    batch: pa.RecordBatch,
    bad: BadRows,
    task: Task,
    sink: str,
    shown: Shown,
    written: Mapping[str, str] | None = None,
) -> pa.RecordBatch:
    """The dead letters of a batch's bad rows, as rows of ``LETTERS``.

    Args:
        sink: what they say that they were refused by.
        written: see ``schema_text``.
    """
    place = (task.job, sink, task.epoch, datetime.now(UTC))
    schema = schema_text(batch.schema, written)
    made = dead_letters(batch, why_bad(bad), shown)
    rows = [(*place, *astuple(letter), schema) for letter in made]
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(LETTERS)]
    return pa.RecordBatch.from_arrays(columns, schema=LETTERS)


def dead_letters_of(kind: str, options: Keeping) -> str:
    """What a sink's guarantee says of its dead letters.

    Args:
        kind: of the place, if it is in the sink's own system.
    """
    given = options.deadletter
    place = str(given) if isinstance(given, ToSink) else f"the {kind} {given}"
    return (
        f"Rows that the target cannot hold are in {place}, under the same decision; more than "
        f"{options.deadlettermax:.2%} of the rows {limit_text()}, stop the query."
    )


def not_alone(place: ToSink) -> OptionError:
    """The error where the sink has no others beside it."""
    return OptionError(
        f"The option deadletter names {place}, and this sink is alone.",
        remedy="only abs_spark.epoch has several sinks; name a place of the sink's own system.",
    )


@contextmanager
def offering(options: Keeping, what: str) -> Iterator[None]:
    """Name the option in errors of rows, where it is not set.

    Args:
        what: it names; empty: the sink has no such option.
    """
    try:
        yield
    except RowError as error:
        if what and options.deadletter is None and "deadletter" not in error.remedy:
            error.remedy = (
                f"{error.remedy.rstrip('.')}; or name {what} in the option deadletter: such rows go "
                "there, and the query goes on."
            )
        raise
