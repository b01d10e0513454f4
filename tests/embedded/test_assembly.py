"""What a region holds is closed, once, whatever way it ends; also one that never came to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from abs_core.contracts import Task, Writer
from abs_core.errors import ConfigError, CorruptionError, UnavailableError
from abs_core.source import Split
from abs_embedded import Graph
from abs_embedded.context import TaskContext
from abs_embedded.operators import Operator
from abs_embedded.state.codecs import INT64
from abs_embedded.state.contracts import SnapshotStore, StateHandle, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.tables import TableReader, TableSource
from abs_testing.fakes import FakeSink
from abs_testing.fakes.writers import TwoPhaseWriter
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import count, graph, tables


class Counted:
    """Makes backends, and counts how often each is closed; some cannot restore."""

    def __init__(self, unable: frozenset[int] = frozenset()) -> None:
        self.opened: list[HeapBackend] = []
        self.closed: Counter[int] = Counter()
        self.unable = unable

    def __call__(self, store: SnapshotStore, place: StateOwner) -> HeapBackend:
        counted = self

        class Backend(HeapBackend):
            def restore(
                self, handles: Sequence[StateHandle], source: SnapshotStore | None = None
            ) -> None:
                if place.subtask in counted.unable:
                    raise CorruptionError("planted")
                super().restore(handles, source)

            def close(self) -> None:
                counted.closed[id(self)] += 1
                super().close()

        self.opened.append(Backend(store, place))
        return self.opened[-1]

    def check(self, opened: int) -> None:
        assert len(self.opened) == opened
        assert self.closed == {id(backend): 1 for backend in self.opened}


def second_fails(make: Any) -> Any:
    """Of two tasks, the second cannot be made, when its state is there already."""

    def making(context: TaskContext) -> Operator:
        operator: Operator = make(context)
        if context.task.subtask == 1:
            raise ConfigError("planted", remedy="none: it is planted.")
        return operator

    return making


def test_what_was_opened_is_closed_if_a_later_task_cannot_be_made(bench: Bench) -> None:
    backends, built = Counted(), graph(bench.sink, rows=300)
    built.nodes["count"].make = second_fails(built.nodes["count"].make)
    with pytest.raises(ConfigError, match="planted"):
        bench.job(built, backend=backends).run()
    backends.check(2)


def test_what_was_opened_is_closed_if_a_later_task_cannot_be_restored(bench: Bench) -> None:
    bench.job(graph(bench.sink, rows=300)).run()
    backends = Counted(frozenset({1}))
    with pytest.raises(CorruptionError, match="planted"):
        bench.job(graph(bench.sink, rows=300), backend=backends).run()
    backends.check(2)


@dataclass(frozen=True)
class HeldBack(TableSource):
    """Its last batches come only after something has happened."""

    until: Event = field(default_factory=Event)

    def open(self, split: Split) -> TableReader:
        return HeldBackReader(self, split)


class HeldBackReader(TableReader):
    def __init__(self, source: HeldBack, split: Split) -> None:
        super().__init__(source.tables[int(split.source)], split, source.batch_rows)
        self._until = source.until

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        last = self._end - self._at <= self._batch_rows
        return None if last and not self._until.is_set() else super().read(timeout_seconds)


def test_a_region_that_cannot_be_restored_is_closed_once(bench: Bench) -> None:
    backends = Counted()

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        if committed.is_set():
            backends.unable = frozenset({1})
            raise RuntimeError("planted")
        return batch

    committed = Event()
    built = Graph("counting", parallelism=2)
    rows = built.source("rows", HeldBack(tables(2_000), 20, committed)).key_by("key")
    counted = rows.process("count", count, SCHEMA, lambda c: {"count": c.value("count", INT64)})
    counted.map("fails", fail).sink("out", bench.sink)

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.set()

    with pytest.raises(CorruptionError, match="planted"):
        bench.job(built, backend=backends, observe=observe).run()
    backends.check(4)


class CountedReader(TableReader):
    closed: int

    def close(self) -> None:
        self.closed += 1


@dataclass(frozen=True)
class HalfGone(TableSource):
    """Its last split cannot be opened any more."""

    readers: Any = None

    def open(self, split: Split) -> TableReader:
        if int(split.source) == len(self.tables) - 1:
            raise UnavailableError("planted")
        reader = CountedReader(self.tables[int(split.source)], split, self.batch_rows)
        reader.closed = 0
        self.readers.append(reader)
        return reader


def test_readers_are_closed_if_a_later_split_cannot_be_opened(bench: Bench) -> None:
    readers: list[CountedReader] = []
    built = Graph("half")
    built.source("rows", HalfGone(tables(40), 10, readers=readers)).sink("out", bench.sink)
    with pytest.raises(UnavailableError, match="planted"):
        bench.job(built).run()
    assert [reader.closed for reader in readers] == [1, 1, 1]


class Failing(TwoPhaseWriter):
    """Cannot pre-commit."""

    aborted = 0

    def pre_commit(self) -> None:
        raise UnavailableError("planted")

    def abort(self) -> None:
        Failing.aborted += 1
        super().abort()


class FailingSink(FakeSink):
    def writer(self, task: Task) -> Writer:
        return Failing(self._target, task)


def test_a_writer_that_fails_to_pre_commit_is_aborted(bench: Bench) -> None:
    built = graph(FailingSink(bench.target, "2pc", "append"), rows=300, parallelism=1)
    with pytest.raises(UnavailableError, match="planted"):
        bench.job(built, restarts=0).run()
    assert Failing.aborted == 1
