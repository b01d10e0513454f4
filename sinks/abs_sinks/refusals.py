"""Errors for what a target cannot hold: ``MisfitError`` for types, ``RowError`` for values.

Errors do not show values: they may be personal data.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.buffers import bytes_of
from abs_core.errors import RowError


class MisfitError(Exception):
    """One type does not fit another: reason and remedy. Never leaves a sink."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy


def refuse(column: str, array: pa.Array, bad: pa.Array, why: str, remedy: str) -> None:
    """Raise a ``RowError`` if any of ``bad`` is true.

    Args:
        bad: booleans, one per value of ``array``; null counts as false.
        why: the end of "3 of 100 values ...".
    """
    count = pc.sum(bad).as_py()
    if count:
        raise row_error(column, f"{count} of {len(array)} values {why}", remedy)


def row_error(column: str, what: str, remedy: str) -> RowError:
    """The error for values of one column."""
    return RowError(f'Column "{column}": {what}.', remedy=f"{remedy}.")


def check_text(array: pa.Array, column: str) -> None:
    """Refuse text with a NUL character, and bytes that are not UTF-8.

    Spark's strings can hold both (``cast(X'ff' as string)``), PostgreSQL's text and jsonb and many
    readers of JSON files neither.

    Raises:
        RowError: names the column, and how many values hold a NUL.
    """
    data = bytes_of(array)
    # In signed bytes NUL is 0 and non-ASCII is negative: one pass settles plain ASCII.
    if data.size == 0 or data.view(np.int8).min() > 0:
        return
    if data.min() == 0:
        nul = pc.match_substring(array.view(pa.binary()), b"\0")
        refuse(
            column,
            array,
            nul,
            "hold a NUL character (0x00), which text cannot in most targets",
            "remove it in Spark with translate(), or write the column as binary",
        )
    if data.max() >= 0x80:
        try:
            array.drop_null().validate(full=True)
        except pa.ArrowInvalid as error:
            raise row_error(
                column,
                "a value is not valid UTF-8",
                "decode it in Spark with decode(), or write the column as binary",
            ) from error
