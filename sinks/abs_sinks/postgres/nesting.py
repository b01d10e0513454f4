"""Converts nested lists to the form of PostgreSQL's arrays: dimensions, and leaves in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_list
from abs_clients.buffers import Array
from abs_sinks.refusals import Code, Reason, refuse


@dataclass(frozen=True, slots=True)
class Unnested:
    """The rows of a column of (nested) lists.

    Args:
        sizes: shape (rows, depth): the length of each dimension; 0 in all where a row is empty or
            null.
        leaves: the elements of all rows, row by row, inner dimension fastest.
        row_of: for each leaf, its row.
    """

    sizes: Array
    leaves: pa.Array
    row_of: Array

    @property
    def offsets(self) -> Array:
        """The start of each row's leaves, and the end of the last: shape (rows + 1,)."""
        counts = np.bincount(self.row_of, minlength=len(self.sizes))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def unnest(array: pa.Array, column: str) -> Unnested:
    """Convert (nested) lists.

    Raises:
        RowError: the lists are not rectangular: inner lists of one value differ in length, one is
            NULL, or all are empty (their number would be lost).
    """
    rows = len(array)
    row_of = np.arange(rows)
    sizes: list[Array] = []
    while is_list(array.type):
        if sizes and array.null_count:
            missing = array.is_null().to_numpy(zero_copy_only=False)
            _refuse(column, "hold an inner list that is NULL", row_of[missing], rows)
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        size = np.zeros(rows, np.int32)
        size[row_of] = lengths
        if (size[row_of] != lengths).any():
            other = row_of[size[row_of] != lengths]
            _refuse(column, "hold inner lists that differ in length", other, rows)
        if sizes and not lengths.all():
            _refuse(column, "hold inner lists that are empty", row_of[lengths == 0], rows)
        sizes.append(size)
        row_of = np.repeat(row_of, lengths)
        array = array.flatten()
    return Unnested(np.stack(sizes, axis=1), array, row_of)


def _refuse(column: str, what: str, wrong: Array, rows: int) -> None:
    why = f"{what}, which a PostgreSQL array of more than one dimension cannot hold"
    bad = np.isin(np.arange(rows), wrong)
    refuse(Reason(Code.NOT_RECTANGULAR, column, why, "make the column jsonb"), bad)
