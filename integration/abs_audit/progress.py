"""How far an audit is: what it does now, how many records it has read, and how long it still takes.

``streamed`` counts Arrow batches while duckdb reads them as a relation.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

MIN_SHARE = 0.01
"""The share of a step that must be done before the time left is estimated."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a running audit.

    Args:
        step: what is done now, for people.
        records: read in this step; 0 where the step's database reads files by itself.
        share: of this step that is done, 0 to 1; None if nobody knows.
        seconds: since the step began.
    """

    step: str
    records: int
    share: float | None
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """Until the step ends, if it goes on as fast as it did; None if nobody knows."""
        if self.share is None or self.share < MIN_SHARE:
            return None
        return self.seconds * (1 - min(self.share, 1.0)) / self.share

    def __str__(self) -> str:
        read = f", {self.records:,} records" if self.records else ""
        share = "" if self.share is None else f", {min(self.share, 1.0):.0%}"
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        return f"{self.step}{read}{share}{left}"


class Meter:
    """Counts for one audit; ``now`` may be called by any thread.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step, self._since, self._of = "starting", clock(), 0
        self._records = 0
        self._connection: DuckDBPyConnection | None = None

    def begin(self, step: str, connection: DuckDBPyConnection, *, of: int = 0) -> None:
        """A step begins.

        Args:
            connection: runs the step's queries, and knows how far they are if it reads files by itself.
            of: how many records the step is likely to read; 0: nobody knows.
        """
        self._step, self._since, self._of = step, self._clock(), of
        self._records, self._connection = 0, connection

    def count(self, records: int) -> None:
        self._records += records

    def now(self) -> Progress:
        """This moment."""
        share = self._records / self._of if self._of and self._records else self._of_query()
        return Progress(self._step, self._records, share, self._clock() - self._since)

    def _of_query(self) -> float | None:
        try:
            percent = -1.0 if self._connection is None else self._connection.query_progress()
        except duckdb.Error:  # the audit has just closed it
            return None
        return percent / 100 if percent > 0 else None


_METER: ContextVar[Meter | None] = ContextVar("abs_audit_meter", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """What is read inside is counted by ``meter``."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


def meter_here() -> Meter:
    """The meter of this context, or one that nobody looks at."""
    return _METER.get() or Meter()


@contextlib.contextmanager
def streamed(
    connection: DuckDBPyConnection, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[DuckDBPyRelation]:
    """A relation that can be scanned once and consumes the batches during the scan.

    An exception of ``batches`` crosses Arrow's C interface as text only, and duckdb raises another
    one inside the context; this raises the original.
    """
    failures: list[Exception] = []
    meter = meter_here()  # duckdb's threads, which call ``watched``, do not have this context

    def watched() -> Generator[pa.RecordBatch, None, None]:
        try:
            for batch in batches:
                yield batch
                meter.count(batch.num_rows)
        except Exception as error:
            failures.append(error)
            raise

    source = watched()
    try:
        yield connection.from_arrow(pa.RecordBatchReader.from_batches(schema, source))
    except Exception:
        if failures:
            raise failures[0] from None
        raise
    finally:
        source.close()  # a scan that broke off leaves it in the middle
