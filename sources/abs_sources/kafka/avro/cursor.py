"""Reads one value of each of many byte strings at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""An array of numpy, of any number type."""

PADDING = 16
"""Bytes that must follow the last byte string: a number may be read beyond its end."""


class Cursor:
    """Places in a buffer, one for each value that is read next.

    A byte string that is not what its schema says is noted in ``bad`` and goes on at its end, so that
    the others are read in the same steps; what is read of it has no meaning.

    Args:
        data: the bytes, with ``PADDING`` behind them.
        at, end: of each value, its place and the end of its byte string.
        rows: of each value, the row that it belongs to.
        bad: what is wrong, by row; filled by this class.
    """

    def __init__(
        self, data: Array, at: Array, end: Array, rows: Array, bad: dict[int, str]
    ) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.rows = rows
        self.bad = bad

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: Array) -> Cursor:
        """A cursor of its own for some of the values; ``put`` brings its places back."""
        return Cursor(self.data, self.at[which], self.end[which], self.rows[which], self.bad)

    def put(self, which: Array, part: Cursor) -> None:
        self.at[which] = part.at

    def repeated(self, counts: Array, width: int) -> Cursor:
        """A cursor for so many values of ``width`` bytes, which lie side by side at each place."""
        total = np.repeat(np.cumsum(counts) - counts, counts)
        number = np.arange(int(counts.sum())) - total
        at = np.repeat(self.at, counts) + number * width
        return Cursor(
            self.data, at, np.repeat(self.end, counts), np.repeat(self.rows, counts), self.bad
        )

    def listed(self, counts: Array, skip: Callable[[memoryview, int], int]) -> tuple[Cursor, Array]:
        """A cursor for so many values of any size, which lie side by side at each place.

        It moves this one behind them.

        Args:
            skip: finds the end of a value.

        Returns:
            the cursor, and how many values of each list it has: fewer than ``counts`` where one
            cannot be skipped, which is the last and fails to be read.
        """
        data = memoryview(self.data)
        places: list[int] = []
        taken = np.zeros(len(self), np.int64)
        for row, (end, count) in enumerate(zip(self.end.tolist(), counts.tolist(), strict=True)):
            before, at = len(places), int(self.at[row])
            try:
                for _ in range(count):
                    places.append(at)
                    at = skip(data, at)
                    if at > end:
                        break
            except (IndexError, ValueError):
                at = end
            taken[row] = len(places) - before
            self.at[row] = min(at, end)
        starts = np.array(places, np.int64)
        owners = np.repeat(np.arange(len(self)), taken)
        return Cursor(self.data, starts, self.end[owners], self.rows[owners], self.bad), taken

    def fail(self, which: Array, why: str) -> None:
        """Note that these values cannot be read; ``which`` is a mask or indices."""
        for row in self.rows[which].tolist():
            self.bad.setdefault(row, why)
        self.at[which] = self.end[which]

    def number(self) -> Array:
        """Numbers in zigzag in base 128, of 64 bits."""
        byte = self.data[self.at]
        value = (byte & 0x7F).astype(np.uint64)
        self.at = self.at + 1
        more = np.flatnonzero(byte >= 0x80)
        shift = 7
        while more.size:
            byte = self.data[np.minimum(self.at[more], len(self.data) - 1)]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[more] += 1
            if shift == 63 and (byte > 1).any():
                self.fail(more[byte > 1], "a number in it has more than 64 bits")
                break
            more = more[byte >= 0x80]
            shift += 7
        self._check()
        return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64)

    def fixed(self, size: int) -> Array:
        """The bytes of values of one size: shape (values, size)."""
        index = self.at[:, None] + np.arange(size)
        values = self.data[np.minimum(index, len(self.data) - 1)]
        self.at = self.at + size
        self._check()
        return values

    def texts(self, lengths: Array) -> tuple[Array, Array]:
        """Bytes of these lengths: where each begins and the last ends, and the bytes."""
        wrong = (lengths < 0) | (lengths > self.end - self.at)
        if wrong.any():
            self.fail(wrong, "a text in it is longer than the record")
            lengths = np.where(wrong, 0, lengths)
        ends = np.concatenate(([0], np.cumsum(lengths)))
        index = np.repeat(self.at - ends[:-1], lengths) + np.arange(ends[-1])
        self.at = self.at + lengths
        return ends.astype(np.int32), self.data[index]

    def _check(self) -> None:
        over = self.at > self.end
        if over.any():
            self.fail(over, "it ends within a value")
