"""A fake source: two lists of numbers in a folder, that grow; and the ways to damage their past.

A place in a list is how many lines lie before it and their digest, so a changed past is found.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from abs_core.errors import ReplayMismatchError
from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_testing.harness import Record

LISTS = ("left", "right")
BATCH = 5
"""Rows of a batch, at most."""
_SCHEMA = pa.schema([pa.field("value", pa.int64(), nullable=False)])

Place = tuple[int, str]


@dataclass(frozen=True)
class Numbers:
    """One list: a file with a number a line."""

    path: Path

    def read(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []

    def write(self, numbers: Sequence[int]) -> None:
        self.path.write_text("".join(f"{number}\n" for number in numbers))

    def at(self, count: int) -> Place:
        """The place after so many numbers."""
        return count, hashlib.sha256(repr(self.read()[:count]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FakeSource(Source):
    """Reads the lists in a folder.

    Args:
        closed: where it ends, if it was closed to what comes.
    """

    folder: Path
    closed: Offsets | None = None

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def initial(self) -> Offsets:
        return text({name: Numbers(self.folder / name).at(0) for name in LISTS})

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        left = limit.rows
        ends = {}
        for name, (begin, _) in places(start).items():
            there = len(Numbers(self.folder / name).read())
            there = there if self.closed is None else places(self.closed)[name][0]
            end = max(begin, there if left is None else min(there, begin + left))
            left = None if left is None else left - (end - begin)
            ends[name] = Numbers(self.folder / name).at(end)
        return text(ends)

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        ends = None if end is None else places(end)
        return [
            Split(name, text(begin), None if ends is None else text(ends[name]))
            for name, begin in places(start).items()
            if ends is None or begin[0] < ends[name][0]
        ]

    def open(self, split: Split) -> Reader:
        return FakeReader(Numbers(self.folder / split.source), split)

    def until_now(self) -> Source:
        return replace(self, closed=self.latest(self.initial(), Limit()))


class FakeReader(Reader):
    """Reads one list; looks at its past with every batch."""

    def __init__(self, numbers: Numbers, split: Split) -> None:
        self._numbers = numbers
        self._split = split
        self._at: Place = tuple(json.loads(split.start))
        self._end: Place | None = None if split.end is None else tuple(json.loads(split.end))
        self._most = BATCH

    def at_most(self, rows: int) -> bool:
        self._most = min(BATCH, rows)
        return True

    @property
    def position(self) -> Split:
        return replace(self._split, start=text(self._at))

    @property
    def finished(self) -> bool:
        return self._end is not None and self._at[0] >= self._end[0]

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        if self.finished:
            return None
        for place in (self._at, self._end or self._at):
            if self._numbers.at(place[0]) != place:
                raise ReplayMismatchError(f"{self._split.source} is not what it was.")
        most = self._at[0] + self._most
        if self._end is not None:
            most = min(most, self._end[0])
        found = self._numbers.read()[self._at[0] : most]
        if not found:
            time.sleep(timeout_seconds)
            return None
        self._at = self._numbers.at(self._at[0] + len(found))
        return pa.record_batch([pa.array(found, pa.int64())], schema=_SCHEMA)

    def close(self) -> None:
        """Nothing is held."""


class FakeSourceHarness:
    """An empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = itertools.count()

    @property
    def limits(self) -> Sequence[tuple[Limit, int]]:
        return [(Limit(rows=7), 7)]

    @property
    def damages(self) -> Mapping[str, Callable[[], None]]:
        left = Numbers(self._folder / LISTS[0])
        return {
            "a list is shortened": lambda: left.write(left.read()[:-1]),
            "a number is another": lambda: left.write([-1, *left.read()[1:]]),
            "a list is made anew": lambda: left.write(range(-100, 0)),
        }

    def new_source(self) -> Source:
        return FakeSource(self._folder)

    def add(self, rows: int) -> Sequence[Record]:
        added = list(itertools.islice(self._next, rows))
        for half, name in enumerate(LISTS):
            numbers = Numbers(self._folder / name)
            numbers.write([*numbers.read(), *added[half::2]])
        return added

    def records(self, batch: pa.RecordBatch) -> Sequence[Record]:
        found: list[int] = batch.column("value").to_pylist()
        return found


@contextmanager
def open_fake_source() -> Iterator[FakeSourceHarness]:
    """A harness on an empty folder, which goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        yield FakeSourceHarness(Path(folder))


def text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def places(offsets: Offsets) -> dict[str, Place]:
    return {name: (count, digest) for name, (count, digest) in json.loads(offsets).items()}
