"""Reads the rest of a split that has an end, so that nobody waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from abs_core.errors import UnavailableError
from abs_core.patience import Patience
from abs_core.patience.slow_writes import writing
from abs_core.source import Reader

_WAIT_SECONDS = 1.0


def rest_of(
    reader: Reader, patience: Patience, ended: Callable[[], bool]
) -> Iterator[pa.RecordBatch]:
    """The rest's batches that have rows, until ``ended``.

    Records that count for nothing give no rows for a long time; they are progress, too.

    Raises:
        UnavailableError: no progress within ``patience``.
        AbsError: as ``Reader.read``.
    """
    while not ended():
        with writing(patience):
            batch = _next(reader, patience.seconds, ended)
        if batch is not None:
            yield batch


def _next(reader: Reader, seconds: float, ended: Callable[[], bool]) -> pa.RecordBatch | None:
    """The next batch; None after progress without rows."""
    give_up, before = time.monotonic() + seconds, reader.position
    while not ended():
        batch = reader.read(_WAIT_SECONDS)
        if batch is not None and batch.num_rows:
            return batch
        if reader.position != before:
            return None
        if time.monotonic() > give_up and not ended():
            raise UnavailableError(
                f"{before.source}: no records arrived for {seconds:g} s, at {before.start} of a range "
                f"that ends at {before.end}.",
                remedy="check the source system (Kafka: that the partition has a leader); the next "
                "start reads the rest again.",
            )
    return None
