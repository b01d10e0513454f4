"""The bases of all sinks' writers: they check rows, and count those that pass.

What becomes of a bad row is ``deadletters.writer``'s, which a sink without the option never enters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.deadletters import check_held, noted
from abs_core.errors import AbsError, RowError
from abs_core.model import Committable
from abs_core.sinkmap import number_of
from abs_core.stepwise import StepwiseWriter
from abs_sinks.deadletters.writer import Bury, Letters
from abs_sinks.options import DeadLetterOptions
from abs_sinks.refusals import BadRows, BadValuesError, find_bad_rows


class CountingWriter(StepwiseWriter):
    """A ``Writer`` that counts rows and dead letters for each sink that has the option for them."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task
        self.number = number_of(task.handle)
        """The number of the sink of the next rows."""
        self._letters: dict[int, Letters] = {}
        self._elsewhere: dict[int, Bury] = {}

    def bury_in(self, elsewhere: Bury, number: int | None = None) -> None:
        """See ``deadletters.writer.GivingWriter``.

        Args:
            number: of the sink, if there are several.
        """
        self._elsewhere[self.number if number is None else number] = elsewhere

    def pre_commit(self) -> Committable | None:
        made = super().pre_commit()
        return None if made is None else self._counted(made)

    def _counted(self, made: Committable) -> Committable:
        """The committable with the counts so far."""
        if not self._letters:
            return made
        counts = noted(letters.count for letters in self._letters.values())
        extra = dict(made.extra) | dict(counts)
        return replace(made, extra=tuple(sorted(extra.items())))

    def _letters_of(self, options: DeadLetterOptions[Any]) -> Letters | None:
        """Those of the sink of the next rows; None without the option."""
        if options.deadletter is None:
            return None
        if self.number not in self._letters:
            self._letters[self.number] = Letters(options, self.number)
        return self._letters[self.number]


class CheckingWriter(CountingWriter):
    """A ``Writer`` whose rows are checked batch by batch; ``bad_rows`` finds those that it refuses.

    A sink says which rows are bad (``_checked`` raises ``BadValuesError``) and where its letters go
    (``_bury``); what they are, and how they are counted, is the same for all.

    Args:
        sink: what a dead letter says that it was refused by.
        key: columns that identify a row.
    """

    offers: ClassVar[str] = ""
    """What the option ``deadletter`` names, for errors; empty: the sink has no such option."""

    def __init__(
        self, options: DeadLetterOptions[Any], task: Task, sink: str, key: tuple[str, ...] = ()
    ) -> None:
        super().__init__(task)
        self._keeping = options
        self._letters_sink = sink
        self._key = key
        self._held: tuple[int, int] | None = None
        """Rows and dead letters that were pre-committed, where the sink counts them apart."""
        self._of_others = 0
        """Dead letters of no row of this writer."""

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the target cannot hold; nothing is written."""
        return find_bad_rows(batch, self._checked)

    def bury(self, letters: pa.RecordBatch) -> None:
        """Keep dead letters that are of no row of this writer; it has the option ``deadletter``."""
        self._of_others += letters.num_rows
        self._bury(letters)

    def pre_commit(self) -> Committable | None:
        made = super().pre_commit()
        if made is not None and self._held is not None:
            rows, dead = self._held
            check_held(made, rows, dead - self._of_others)
        return made

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
        letters = self._letters_of(self._keeping)
        if letters is not None:
            letters.add(rows=batch.num_rows)
        try:
            checked = self._checked(batch)
        except BadValuesError:
            bad = self.bad_rows(batch)
            if not bad:
                raise  # only the batch as a whole is too much
            if letters is None:
                with offering(None, self.offers):
                    raise bad.error(batch, self._rows) from None
            self._put_aside(letters, batch, bad)
            batch = bad.others(batch)
            if not batch.num_rows:
                return
            checked = self._checked(batch)
        self._keep_checked(batch, checked)

    def _put_aside(self, letters: Letters, batch: pa.RecordBatch, bad: BadRows) -> None:
        place = self._letters_sink
        rows = letters.rows_of(batch, bad, self._task, place, self._key, self._keeping.written)
        if letters.given:
            letters.give(rows, self._elsewhere.get(self.number))
            self._rows -= rows.num_rows
        else:
            self._bury(rows)
            letters.add(dead=rows.num_rows)


def of_row(error: AbsError) -> bool:
    """Whether a row is refused, and not the input as a whole."""
    return isinstance(error, RowError)


@contextmanager
def offering(
    place: object, kind: str, refused: Callable[[AbsError], bool] = of_row
) -> Iterator[None]:
    """Name the option ``deadletter`` in errors of rows, where it is not set.

    Args:
        place: the option's value.
        kind: of the place that the error names; empty: the sink has no such option.
        refused: whether an error is of a row.
    """
    try:
        yield
    except AbsError as error:
        if kind and place is None and "deadletter" not in error.remedy and refused(error):
            error.remedy = (
                f"{error.remedy.rstrip('.')}; or name {kind} in the option deadletter: such rows go "
                "there, and the query goes on."
            )
        raise
