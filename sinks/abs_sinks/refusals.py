"""What a target cannot hold: ``MisfitError`` for types; for values the rows and why, as ``BadRows``.

Checks raise ``BadValuesError`` where they find a value, so good rows cost nothing. ``find_bad_rows``
repeats a sink's check without the rows already found, until it passes.

Reasons never show the value that is refused: it may be personal data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import taken
from abs_clients.buffers import Array, bytes_of
from abs_core.errors import RowError


class MisfitError(Exception):
    """One type does not fit another: reason and remedy. Never leaves a sink."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy


class Code(StrEnum):
    """Kinds of reasons, for programs; the texts are durable."""

    NULL = "null"
    NUL_CHARACTER = "nul-character"
    ENCODING = "encoding"
    TOO_LONG = "too-long"
    OUT_OF_RANGE = "out-of-range"
    TOO_PRECISE = "too-precise"
    NOT_RECTANGULAR = "not-rectangular"
    MALFORMED = "malformed"
    NOT_CONVERTIBLE = "not-convertible"
    KEY_MISSING = "key-missing"
    TOO_LARGE = "too-large"
    TOPIC = "topic"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a target cannot hold rows.

    Args:
        column: of the input; empty: it is the row as a whole.
        why: the end of "3 of 100 values ..."; it shows no value.
        remedy: without a full stop.
    """

    code: Code
    column: str
    why: str
    remedy: str

    @property
    def message(self) -> str:
        """One sentence for any of the rows."""
        return f'Column "{self.column}": values {self.why}.' if self.column else f"Rows {self.why}."


class BadValuesError(RowError):
    """A target cannot hold values of one array or batch, for one reason.

    Args:
        rows: their positions; None: one at least, it is not known which.
    """

    def __init__(self, reason: Reason, rows: Array | None) -> None:
        super().__init__(reason.message, remedy=f"{reason.remedy}.")
        self.reason = reason
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return RowError(self.what, remedy=self.remedy).__reduce__()


@dataclass(frozen=True, slots=True)
class BadRows:
    """The rows of a batch that a target cannot hold; false if there are none.

    Args:
        reasons: those that occur.
        which: for each row the position of its reason, -1 for a good row.
    """

    reasons: tuple[Reason, ...]
    which: Array

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def others(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The good rows of the batch that was checked."""
        return taken(batch, pa.array(np.flatnonzero(self.which < 0)))

    def error(
        self,
        batch: pa.RecordBatch | pa.Table,
        first_row: int | None = None,
        key: Sequence[str] = (),
    ) -> RowError:
        """The error that names the first bad row, and how many more have the same reason.

        Args:
            batch: the rows that were checked.
            first_row: the task's rows before this batch; None: not known.
            key: the columns that identify a row.
        """
        row = int(np.argmax(self.which >= 0))
        reason = self.reasons[self.which[row]]
        count, rows = int((self.which == self.which[row]).sum()), len(self.which)
        sentence = f'Column "{reason.column}": ' if reason.column else ""
        sentence += f"{count} of {rows} {'values' if reason.column else 'rows'} {reason.why}"
        place = "row" if first_row is None else f"row {first_row + row} of the task"
        named = _named(batch, row, key, reason.column)
        return RowError(f"{sentence}; the first is {place} ({named}).", remedy=f"{reason.remedy}.")


def find_bad_rows(batch: pa.RecordBatch | pa.Table, check: Callable[[Any], object]) -> BadRows:
    """All rows that ``check`` refuses, each with the first reason.

    Args:
        check: raises ``BadValuesError``. Where that does not know the rows, the batch is halved
            until it is a single one.
    """
    which = np.full(batch.num_rows, -1)
    reasons: list[Reason] = []
    waiting = [np.arange(batch.num_rows)]
    while waiting:
        rows = waiting.pop()
        try:
            check(batch if len(rows) == batch.num_rows else taken(batch, pa.array(rows)))
        except BadValuesError as error:
            if error.rows is None and len(rows) > 1:
                waiting += np.array_split(rows, 2)
                continue
            bad = rows if error.rows is None else rows[error.rows]
            if error.reason not in reasons:
                reasons.append(error.reason)
            which[bad] = reasons.index(error.reason)
            if len(bad) < len(rows):
                waiting.append(rows[which[rows] < 0])
    return BadRows(tuple(reasons), which)


@contextmanager
def naming_rows(
    batch: pa.RecordBatch | pa.Table,
    bad_rows: Callable[[Any], BadRows],
    first_row: int | None = None,
    key: Sequence[str] = (),
) -> Iterator[None]:
    """Raise ``BadRows.error`` for what ``bad_rows`` finds after a ``BadValuesError``."""
    try:
        yield
    except BadValuesError as error:
        bad = bad_rows(batch)
        # None where only the batch as a whole is too much.
        raise (bad.error(batch, first_row, key) if bad else error) from None


def refuse(reason: Reason, bad: pa.BooleanArray | Array) -> None:
    """Raise ``BadValuesError`` if any of ``bad`` is true; null counts as false."""
    if isinstance(bad, pa.Array):
        if not pc.any(bad).as_py():
            return
        bad = bad.fill_null(False).to_numpy(zero_copy_only=False)
    if bad.any():
        raise BadValuesError(reason, np.flatnonzero(bad))


OF_VALUES = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What Arrow raises for a value, or for its layout (a null in a dictionary). Types are checked before.

Memory that is short, a call that was interrupted or a name that is missing refuse no row.
"""


@contextmanager
def converting(column: str, to: str) -> Iterator[None]:
    """Refuse the rows with values that Arrow cannot convert; it does not say which they are.

    Args:
        to: the type, for people.

    Raises:
        BadValuesError: there is one at least.
    """
    try:
        yield
    except OF_VALUES:
        why, remedy = f"cannot be converted to {to}", "correct or cast them in Spark"
        reason = Reason(Code.NOT_CONVERTIBLE, column, why, remedy)
        raise BadValuesError(reason, None) from None  # Arrow's text shows the value


@contextmanager
def inside(parents: Callable[[], Array]) -> Iterator[None]:
    """For a check of elements: the rows that it refuses are then those of the lists.

    Args:
        parents: returns the row of each element.
    """
    try:
        yield
    except BadValuesError as error:
        if error.rows is not None:
            error.rows = np.unique(parents()[error.rows])
        raise


def parents_of(lists: pa.Array) -> Array:
    """The row of each flattened element."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths)


def check_text(array: pa.Array, column: str) -> None:
    """Refuse text with a NUL character, and bytes that are not UTF-8.

    Spark's strings can hold both (``cast(X'ff' as string)``), PostgreSQL's text and jsonb and many
    readers of JSON files neither.

    Raises:
        BadValuesError: of the column's rows.
    """
    data = bytes_of(array)
    # In signed bytes NUL is 0 and non-ASCII is negative: one pass settles plain ASCII.
    if data.size == 0 or data.view(np.int8).min() > 0:
        return
    if data.min() == 0:
        why = "hold a NUL character (0x00), which text cannot in most targets"
        remedy = "remove it in Spark with translate(), or write the column as binary"
        reason = Reason(Code.NUL_CHARACTER, column, why, remedy)
        refuse(reason, pc.match_substring(array.view(pa.binary()), b"\0"))
    check_utf8(array, column)


def check_utf8(array: pa.Array, column: str) -> None:
    """Refuse text that is not UTF-8; raises as ``check_text``."""
    data = bytes_of(array)
    if data.size and data.max() >= 0x80 and not _is_utf8(array):
        remedy = "decode it in Spark with decode(), or write the column as binary"
        reason = Reason(Code.ENCODING, column, "are not valid UTF-8", remedy)
        bad = [not _is_utf8(array.slice(row, 1)) for row in range(len(array))]
        refuse(reason, np.array(bad))


def _is_utf8(array: pa.Array) -> bool:
    try:
        array.drop_null().validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


_SOURCE = ("topic", "partition", "offset")
_SHOWN_CHARACTERS, _SHOWN_OF_ROW = 40, 200


def _named(batch: pa.RecordBatch | pa.Table, row: int, key: Sequence[str], hidden: str) -> str:
    """A row by its key, its place in a Kafka source, or the beginning of its columns.

    The column of ``hidden`` (a column, or a field within it) holds the value that is refused, and is
    not shown.
    """
    names = batch.schema.names
    hidden = hidden if hidden in names else re.split(r"[.\[{]", hidden)[0]
    for wanted in (tuple(key), _SOURCE, _SOURCE[1:]):
        if wanted and hidden not in wanted and all(names.count(name) == 1 for name in wanted):
            shown = [names.index(name) for name in wanted]
            break
    else:
        shown = [at for at, name in enumerate(names) if name != hidden]
    parts = [f"{names[at]}={_shown(batch.column(at)[row])}" for at in shown]
    return _cut(", ".join(parts), _SHOWN_OF_ROW) or "it has no other column"


def _shown(value: pa.Scalar) -> str:
    try:
        plain = value.as_py()
        return _cut(plain if isinstance(plain, str) else repr(plain), _SHOWN_CHARACTERS)
    except (ValueError, OverflowError, pa.ArrowException):  # no UTF-8, or before the year 1
        return "?"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
