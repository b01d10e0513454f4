"""The sources of the simulation: with an end, endless, and with splits that pause and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from abs_core.barriers.elements import Batch
from abs_core.source import Limit, Reader, Source, Split


@dataclass(frozen=True)
class Lines(Source):
    """A source of fixed batches, in some splits."""

    splits_: tuple[tuple[Batch, ...], ...]
    schema = None

    def initial(self) -> str:
        return "0"

    def latest(self, start: str, limit: Limit) -> str:
        return "end"

    def splits(self, start: str, end: str | None) -> list[Split]:
        return [Split(str(n), "0", str(len(s))) for n, s in enumerate(self.splits_)]

    def open(self, split: Split) -> _LinesReader:
        return _LinesReader(self.splits_[int(split.source)], split)

    def due(self) -> Sequence[tuple[Batch, ...]]:
        """What must be in the target."""
        return self.splits_


class Phase(Enum):
    """Of the data outside, in a history whose splits pause."""

    PAUSED = auto()
    """Each split has its data up to its pause. Time goes by, and who has nothing to read gets idle."""
    BACK = auto()
    """Event time has got past the pause everywhere. Each split has one batch more; no time goes by."""
    GOING_ON = auto()
    """All have read that, and nobody is idle any more: from now on nothing may be late."""


@dataclass(slots=True)
class Journal:
    """What is known of the sources of a history, whatever the runtime knows.

    Args:
        lives: how many processes there were.
        asked: how often a source was asked where it begins.
        first: by source and split, the first batch that anybody has read.
        placed: a record was decided that had the last splits, read to their end or not.
        ticks: of the clock that tells how long a split has had no data.
        awaited: the event time that all windows must get to while splits pause.
    """

    lives: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    placed: bool = False
    phase: Phase = Phase.PAUSED
    ticks: int = 0
    awaited: int = 0

    def clock(self) -> float:
        self.ticks += self.phase is Phase.PAUSED
        return self.ticks


@dataclass(frozen=True)
class Endless(Lines):
    """As a topic that is read from its end on: it begins later whenever it is asked, and it grows.

    Its last split comes after the first life.
    """

    id_: str
    journal: Journal

    def initial(self) -> str:
        self.journal.asked[self.id_] += 1
        return str(min(self.journal.asked[self.id_] - 1, 2))

    def splits(self, start: str, end: str | None) -> list[Split]:
        *begun, late = super().splits("0", None)
        begun = [replace(s, start=str(min(int(start), int(s.end or 0)))) for s in begun]
        return begun if self.journal.lives < 2 else [*begun, late]

    def resumed(self, left: Sequence[Split]) -> list[Split]:
        late = self.splits("0", None)[len(self.splits_) - 1 :]
        known = self.journal.placed or {split.source for split in left} >= {s.source for s in late}
        return [*left] if known else [*left, *late]

    def open(self, split: Split) -> _LinesReader:
        return _NotingReader(self, split)

    def due(self) -> list[tuple[Batch, ...]]:
        """What must be in the target: all from the first batch on that anybody has read."""
        *begun, late = self.splits_
        read = [self.journal.first.get((self.id_, str(n)), len(b)) for n, b in enumerate(begun)]
        rest = [batches[first:] for batches, first in zip(begun, read, strict=True)]
        return [*rest, () if self.journal.lives < 2 else late]


class _LinesReader(Reader):
    def __init__(self, batches: tuple[Batch, ...], split: Split) -> None:
        self._batches = batches
        self._split = split
        self.at = int(split.start)

    @property
    def position(self) -> Split:
        return Split(self._split.source, str(self.at), self._split.end)

    @property
    def finished(self) -> bool:
        return self.at >= len(self._batches)

    def read(self, timeout_seconds: float) -> Batch | None:
        self.at += 1
        return self._batches[self.at - 1]

    def close(self) -> None:
        pass


class _NotingReader(_LinesReader):
    def __init__(self, source: Endless, split: Split) -> None:
        super().__init__(source.splits_[int(split.source)], split)
        self._source, self._name = source, split.source

    def read(self, timeout_seconds: float) -> Batch | None:
        first, key = self._source.journal.first, (self._source.id_, self._name)
        first[key] = min(first.get(key, self.at), self.at)
        return super().read(timeout_seconds)


@dataclass(frozen=True)
class Pausing(Lines):
    """As partitions without an end, of which some have nothing for a while; see ``Phase``.

    Args:
        pauses: by split, its first batch that comes later.
    """

    pauses: tuple[int, ...]
    journal: Journal

    def splits(self, start: str, end: str | None) -> list[Split]:
        return [replace(split, end=None) for split in super().splits("0", None)]

    def open(self, split: Split) -> PausingReader:
        return PausingReader(self, split)

    def there(self, split: int) -> int:
        """How many batches the split has by now."""
        if self.journal.phase is Phase.GOING_ON:
            return len(self.splits_[split])
        return self.pauses[split] + (self.journal.phase is Phase.BACK)


class PausingReader(_LinesReader):
    def __init__(self, source: Pausing, split: Split) -> None:
        self._number = int(split.source)
        super().__init__(source.splits_[self._number], split)
        self._source = source

    @property
    def back(self) -> bool:
        """Whether what came first after the pause was read."""
        return self.at > self._source.pauses[self._number]

    def read(self, timeout_seconds: float) -> Batch | None:
        return super().read(0) if self.at < self._source.there(self._number) else None
