"""A check's place: adds rows to it, and reads ranges and splits of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import pyarrow as pa

from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_testing.harness import Record, SourceHarness, SourceOpener

PATIENCE = 20.0
"""Seconds to wait for an expected row."""
_LOOK = 0.25
_SOON = 3.0


class SourceCase:
    """A place that nothing else has used, with new sources on it: each stands for a new process.

    Args:
        harness: on an empty place.
        opener: for checks that need several places.
    """

    def __init__(self, harness: SourceHarness, opener: SourceOpener) -> None:
        self.harness = harness
        self._opener = opener

    @contextmanager
    def another(self) -> Iterator[SourceCase]:
        """A case on another place."""
        with self._opener() as harness:
            yield SourceCase(harness, self._opener)

    def source(self) -> Source:
        return self.harness.new_source()

    def latest(self, start: Offsets, limit: Limit | None = None) -> Offsets:
        """The latest offsets, by a new source."""
        return self.source().latest(start, Limit() if limit is None else limit)

    def filled(self, rows: int = 40) -> tuple[Offsets, Offsets, Sequence[Record]]:
        """Adds rows to the empty place: its beginning, its end, and the rows."""
        start = self.source().initial()
        added = self.harness.add(rows)
        return start, self.latest(start), added

    def by_split(self, start: Offsets, end: Offsets) -> dict[Split, list[Record]]:
        """The rows of each split of a range, planned by a new source and read by others."""
        return {split: self.read(split) for split in self.source().splits(start, end)}

    def rows(self, start: Offsets, end: Offsets, source: Source | None = None) -> list[Record]:
        """The rows of a range."""
        source = source or self.source()
        return [row for split in source.splits(start, end) for row in self.read(split)]

    def read(self, split: Split, source: Source | None = None) -> list[Record]:
        """The rows of a split that has an end, read by a new source if none is given."""
        with self.opened([split], source) as (reader,):
            return [row for batch in self.batches(reader) for row in self.harness.records(batch)]

    @contextmanager
    def opened(
        self, splits: Iterable[Split], source: Source | None = None
    ) -> Iterator[list[Reader]]:
        """Readers of these splits, of a new source if none is given; closed at the end."""
        source = source or self.source()
        with ExitStack() as stack:
            yield [stack.enter_context(closing(source.open(split))) for split in splits]

    def batches(self, reader: Reader) -> Iterator[pa.RecordBatch]:
        """The batches with rows of a reader, to the end of its split."""
        give_up = time.monotonic() + PATIENCE
        while not reader.finished:
            assert time.monotonic() < give_up, f"no end of a split in {PATIENCE:g} s"
            batch = reader.read(_LOOK)
            if batch is not None and batch.num_rows:
                yield batch

    def drain(self, readers: Sequence[Reader], rows: int) -> list[Record]:
        """Read so many rows of splits without an end; none may follow."""
        records: list[Record] = []
        give_up = time.monotonic() + PATIENCE
        while len(records) < rows:
            assert time.monotonic() < give_up, (
                f"{len(records)} of {rows} rows came in {PATIENCE:g} s"
            )
            records += self._look(readers)
        return records + self._look(readers)

    def whatever_comes(self, readers: Sequence[Reader]) -> list[Record]:
        """The first rows that come out of splits without an end, if any come soon."""
        give_up = time.monotonic() + min(PATIENCE, _SOON)
        records: list[Record] = []
        while not records and time.monotonic() < give_up:
            records = self._look(readers)
        return records

    def _look(self, readers: Sequence[Reader]) -> list[Record]:
        batches = [reader.read(_LOOK / len(readers)) for reader in readers]
        return [
            row for batch in batches if batch is not None for row in self.harness.records(batch)
        ]


def as_engine(offsets: Offsets) -> Offsets:
    """The same offsets, written as an engine's log might write them: with other blanks."""
    return json.dumps(json.loads(offsets), sort_keys=True, indent=1)


def equal(rows: Sequence[Record], expected: Sequence[Record], where: str) -> None:
    """Assert the same rows, each as often. Only splits keep an order, not ranges."""
    missing, extra = Counter(expected) - Counter(rows), Counter(rows) - Counter(expected)
    shown = [str(row) for row in [*missing, *extra][:3]]
    wrong = f"{missing.total()} rows are missing and {extra.total()} too many {where}"
    assert missing == extra, f"{wrong}: {', '.join(shown)}"
