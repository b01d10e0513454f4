"""Packs files into splits as Spark's scans do: small files together, a big file over several.

A pure function of the pins and options: the same range is always cut in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abs_sources.files.model import Piece, Pin

OPEN_COST = 4 << 20
"""What opening a file counts for, in bytes (``spark.sql.files.openCostInBytes``)."""


def pack(
    pins: Sequence[Pin], most: int, least_splits: int, divisible: Callable[[Pin], bool]
) -> list[tuple[Piece, ...]]:
    """The pieces of each split, in the order of the files.

    Args:
        most: approximate bytes of a split; an indivisible file may have more.
        least_splits: if there is enough to read.
        divisible: whether reading can begin in the middle of this file.
    """
    total = sum(pin.size + OPEN_COST for pin in pins)
    target = max(1, min(most, max(OPEN_COST, -(-total // least_splits))))
    splits: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    filled = 0
    for pin in pins:
        for piece in _pieces(pin, target if divisible(pin) else pin.size):
            cost = piece.end - piece.start + OPEN_COST
            if current and filled + cost > target:
                splits.append(tuple(current))
                current, filled = [], 0
            current.append(piece)
            filled += cost
    return [*splits, tuple(current)] if current else splits


def _pieces(pin: Pin, target: int) -> list[Piece]:
    if pin.size <= target:
        return [Piece(pin, 0, pin.size)]
    count = -(-pin.size // target)
    step = -(-pin.size // count)
    return [Piece(pin, start, min(start + step, pin.size)) for start in range(0, pin.size, step)]
