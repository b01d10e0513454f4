"""What a consent gives up, in records of the source: told with the epochs, before a person consents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from abs_core.errors import ProtocolError, UnavailableError
from abs_spark.checkpoint.spark_files import offsets


@contextmanager
def counting_left_out(checkpoint: str | None) -> Iterator[None]:
    """Add to an error whose remedy gives up epochs how many records the source had in them."""
    try:
        yield
    except ProtocolError as error:
        if error.left_out is not None:
            first, last = error.left_out
            number = records_in(checkpoint, first, last)
            if number is not None:
                epochs = "this epoch" if first == last else "these epochs"
                error.remedy += f" The source had at most {number} records in {epochs}."
        raise


def records_in(checkpoint: str | None, first: int, last: int) -> int | None:
    """How many records the source had in these epochs, at most; None if the checkpoint does not tell.

    It tells for a source with offsets by partition (Kafka): of these, transactions take some, too.
    """
    if not checkpoint:
        return None
    try:
        before, after = (offsets(checkpoint, epoch) for epoch in (first - 1, last))
    except (UnavailableError, ValueError):
        return None
    begins, ends = _by_partition(before), _by_partition(after)
    if begins is None or not ends or (first > 0 and not begins):
        return None
    return sum(end - begins.get(place, 0) for place, end in ends.items())


def _by_partition(sources: tuple[Any, ...]) -> dict[tuple[int, str, str], int] | None:
    """The offset of each partition of each topic of each source; None: one has others."""
    positions: dict[tuple[int, str, str], int] = {}
    for number, document in enumerate(sources):
        topics = document.values() if isinstance(document, dict) else [None]
        if not all(isinstance(of, dict) and all(map(str.isdecimal, of)) for of in topics):
            return None
        positions |= {
            (number, topic, partition): int(offset)
            for topic, of in document.items()
            for partition, offset in of.items()
        }
    return positions
