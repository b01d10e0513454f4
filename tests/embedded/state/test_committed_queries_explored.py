"""A committed answer is of one checkpoint, wherever the tasks move on while it is read: all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any, cast

import pyarrow as pa
import pytest

from abs_embedded.state.contracts import StateBackend, StateOwner, Version
from abs_embedded.state.keygroups import GroupRange, encode_keys
from abs_embedded.state.query import Published

KEYS = pa.array(range(16))
TASKS = 2
CHECKPOINTS = 2
"""So many are decided while the answer is made; each task hears of each in its own time."""
LOOKS = 7
"""Moments about one try: both are asked for their checkpoint, for values, and for it again."""


@dataclass
class Schedule:
    """When which task hears of the next checkpoint: after so many looks at any of them."""

    hears: list[tuple[int, int]]
    heard: list[int] = field(default_factory=lambda: [0] * TASKS)
    looks: int = 0

    def look(self) -> None:
        while self.hears and self.hears[0][0] <= self.looks:
            self.heard[self.hears.pop(0)[1]] += 1
        self.looks += 1


class Task:
    """A task's state, in which every key has the number of the checkpoint as its value."""

    def __init__(self, number: int, schedule: Schedule) -> None:
        self._number, self._schedule = number, schedule

    @property
    def committed(self) -> int:
        self._schedule.look()
        return self._schedule.heard[self._number]

    def read(self, state: str, keys: Sequence[bytes], version: Version) -> list[bytes]:
        self._schedule.look()
        return [b"%d" % self._schedule.heard[self._number] for _ in keys]

    def states(self) -> list[tuple[str, str]]:
        return [("n", "value:bytes")]


def published(kind: Callable[..., Published], schedule: Schedule) -> Published:
    return kind(
        [
            (
                StateOwner("job", "op", n, GroupRange.of(n, TASKS, 16), 16, 1, "r"),
                cast("StateBackend", Task(n, schedule)),
            )
            for n in range(TASKS)
        ]
    )


def schedules() -> Iterator[Schedule]:
    """All: both tasks hear of both checkpoints, each after any number of looks."""
    moments = list(combinations_with_replacement(range(LOOKS), CHECKPOINTS))
    for first in moments:
        for second in moments:
            yield Schedule(sorted([*((at, 0) for at in first), *((at, 1) for at in second)]))


def mixed(kind: Callable[..., Published]) -> list[Schedule]:
    """The schedules in which keys that are equal in every checkpoint are read unequal."""
    found = []
    for schedule in schedules():
        values = published(kind, schedule).read("n", [KEYS], Version.COMMITTED)
        if len(set(values.to_pylist())) != 1:
            found.append(schedule)
    return found


class ByTask(Published):
    """Each task answers by itself."""

    def read(self, state: str, columns: Sequence[pa.Array], version: Version) -> pa.Array:
        return self._read(state, encode_keys(columns), version)


class LooksBefore(Published):
    """Waits until all tasks have got to one checkpoint, and reads then."""

    def read(self, state: str, columns: Sequence[pa.Array], version: Version) -> pa.Array:
        while self._committed() is None:
            pass
        return self._read(state, encode_keys(columns), version)


class LooksAfter(Published):
    """Reads, and reads again where not all tasks have got to one checkpoint by then."""

    def read(self, state: str, columns: Sequence[pa.Array], version: Version) -> pa.Array:
        while True:
            values = self._read(state, encode_keys(columns), version)
            if self._committed() is not None:
                return values


def test_keys_that_are_equal_in_every_checkpoint_are_never_read_unequal() -> None:
    assert not mixed(Published)


@pytest.mark.parametrize("kind", [ByTask, LooksBefore, LooksAfter])
def test_an_answer_that_mixes_checkpoints_is_found(kind: Any) -> None:
    assert mixed(kind)
