"""The format ``abs-counting``: a source of numbers, for tests of the Spark adaptor alone.

``path`` is a folder; the size in bytes of the file ``count`` in it is how many numbers there are, from
0 on. Offsets are ``{"next": n}``. Options: ``path``, ``rows`` (a limit), ``bounded`` (whether it can be
closed to what comes later).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_spark.datasource.readable import ReadableDataSource

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("word", pa.string())])


def place(number: int) -> Offsets:
    return json.dumps({"next": number})


def number_at(place: Offsets) -> int:
    return int(json.loads(place)["next"])


class CountingReader(Reader):
    def __init__(self, split: Split) -> None:
        self._next = number_at(split.start)
        self._end = number_at(split.end or place(0))

    @property
    def position(self) -> Split:
        return Split("numbers", place(self._next), place(self._end))

    @property
    def finished(self) -> bool:
        return self._next >= self._end

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        if self.finished:
            return None
        until = min(self._next + 7, self._end)
        numbers = list(range(self._next, until))
        self._next = until
        # Large strings: what is told to Spark is not what the batches have.
        words = pa.array([f"w{n}" for n in numbers], pa.large_string())
        return pa.record_batch([words, pa.array(numbers)], names=["word", "n"])

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class CountingSource(Source):
    folder: Path
    schema: pa.Schema = SCHEMA

    def count(self) -> int:
        return (self.folder / "count").stat().st_size

    def initial(self) -> Offsets:
        return place(0)

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        first = number_at(start)
        most = self.count() if limit.rows is None else first + limit.rows
        return place(max(first, min(self.count(), most)))

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        assert end is not None
        first, last = number_at(start), number_at(end)
        middle = (first + last) // 2
        cuts = [(first, middle), (middle, last)]
        return [Split("numbers", place(a), place(b)) for a, b in cuts if a < b]

    def open(self, split: Split) -> Reader:
        return CountingReader(split)

    def committed(self, end: Offsets) -> None:
        (self.folder / "committed").write_text(end)

    def seen(self) -> Offsets | None:
        return place(self.count())


@dataclass(frozen=True)
class ClosableCountingSource(CountingSource):
    closed_at: int | None = None

    def count(self) -> int:
        return super().count() if self.closed_at is None else self.closed_at

    def until_now(self) -> Source:
        return replace(self, closed_at=self.count())


def _source(given: Mapping[str, str]) -> CountingSource:
    kind = ClosableCountingSource if given.get("bounded") == "true" else CountingSource
    return kind(Path(given["path"]))


class CountingDataSource(ReadableDataSource):
    @classmethod
    def name(cls) -> str:
        return "abs-counting"

    @classmethod
    def stored_schema(cls, given: Mapping[str, str]) -> pa.Schema:
        return SCHEMA

    @classmethod
    def open_stream(cls, given: Mapping[str, str], schema: pa.Schema) -> tuple[Source, Limit]:
        return _source(given), Limit(rows=int(given["rows"]) if "rows" in given else None)

    @classmethod
    def open_batch(cls, given: Mapping[str, str], schema: pa.Schema) -> Source:
        return _source(given)


__all__ = ["CountingDataSource"]
