"""Batches that are read ahead are the same, and nothing of it is left when the caller stops."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing

import pyarrow as pa
import pytest

from abs_core.errors import CorruptionError
from abs_sinks.s3.wal import Batches, reading_ahead


class Source:
    """Numbered batches, one row each; says what was read, and by which thread it was closed."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.read = 0
        self.closed_by: threading.Thread | None = None
        self._count, self._error = count, error

    def batches(self) -> Batches:
        try:
            for number in range(self._count):
                self.read += 1
                yield pa.record_batch({"id": [number]})
            if self._error is not None:
                raise self._error
        finally:
            self.closed_by = threading.current_thread()


def ids(batches: Generator[pa.RecordBatch, None, None]) -> list[int]:
    return [batch["id"][0].as_py() for batch in batches]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_same_batches_come_in_the_same_order(count: int) -> None:
    assert ids(reading_ahead(Source(count).batches(), 3)) == list(range(count))


def test_no_more_is_read_ahead_than_asked_for() -> None:
    source = Source(50)
    with closing(reading_ahead(source.batches(), 3)) as batches:
        for taken, _ in enumerate(batches, 1):
            assert source.read <= taken + 3


def test_an_error_comes_after_what_was_read_before_it() -> None:
    source = Source(5, CorruptionError("It is damaged."))
    taken: list[int] = []
    with pytest.raises(CorruptionError), closing(reading_ahead(source.batches(), 3)) as batches:
        taken.extend(batch["id"][0].as_py() for batch in batches)
    assert source.closed_by is not None


def test_a_caller_that_stops_leaves_no_thread_and_no_open_reader() -> None:
    source, before = Source(50), set(threading.enumerate())
    with closing(reading_ahead(source.batches(), 3)) as batches:
        next(batches)
    assert source.closed_by not in (None, threading.current_thread())
    assert source.read <= 5
    assert set(threading.enumerate()) <= before
