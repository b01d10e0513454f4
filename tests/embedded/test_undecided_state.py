"""State in another system: what a failed checkpoint wrote there neither counts nor is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.postgres.address import Server
from abs_core.errors import UnavailableError
from abs_core.model import Committable
from abs_core.source import Split
from abs_embedded import Graph, Settings
from abs_embedded.context import TaskContext
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Emit, Operator, Row
from abs_embedded.state.codecs import INT64
from abs_embedded.state.contracts import (
    BlobRef,
    NewBackend,
    SnapshotStore,
    StateBackend,
    StateHandle,
    StateOwner,
    Version,
)
from abs_embedded.state.external import Changes, Entry, ExternalBackend
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.stores.postgres.mvcc import mvcc_backends
from abs_embedded.stores.postgres.opaque import opaque_backends
from abs_embedded.stores.postgres.two_phase import two_phase_backends
from abs_embedded.tables import TableReader, TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import count, tables

BACKENDS: dict[str, Callable[[Server], NewBackend]] = {
    "mvcc": mvcc_backends,
    "2pc": two_phase_backends,
    "opaque": opaque_backends,
}
Rule = Callable[[Bench, NewBackend], None]
PLACE = StateOwner("job", "count", 0, GroupRange(0, 128), 128)
KEYED = pa.schema([("id", pa.int64()), ("key", pa.int64())])
ROWS, BEFORE, FAILS = 400, 40, 200
"""How many rows there are, and how many are through when the first two checkpoints are asked for."""


class Versions:
    """Values by checkpoint: those of one that is committed count, with all that is of earlier ones."""

    format = "versions"

    def __init__(self) -> None:
        self.written: dict[tuple[str, Entry], dict[int, bytes | None]] = {}
        self.committed = -1

    def restore(self, handles: Sequence[StateHandle]) -> None:
        self.committed = max((handle.checkpoint for handle in handles), default=-1)

    def get(self, state: str, entries: Sequence[Entry]) -> Mapping[Entry, bytes]:
        found = {entry: self._value(state, entry) for entry in entries}
        return {entry: value for entry, value in found.items() if value is not None}

    def items(self, state: str, key: bytes) -> Mapping[Entry, bytes]:
        return self.get(state, [entry for name, entry in self.written if name == state])

    def scan(self, groups: GroupRange, state: str) -> Iterable[tuple[Entry, bytes]]:
        return self.items(state, b"").items()

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        for name, entries in changes.items():
            for entry, value in entries.items():
                self.written.setdefault((name, entry), {})[checkpoint] = value
        return ()

    def commit(self, checkpoint: int) -> None:
        self.committed = checkpoint

    def abort(self, checkpoint: int) -> None:
        for versions in self.written.values():
            versions.pop(checkpoint, None)

    def close(self) -> None:
        pass

    def _value(self, state: str, entry: Entry) -> bytes | None:
        versions = self.written.get((state, entry), {})
        newest = max((n for n in versions if n <= self.committed), default=None)
        return None if newest is None else versions[newest]


def in_memory() -> NewBackend:
    kept = Versions()

    def backend(store: SnapshotStore, place: StateOwner) -> ExternalBackend:
        return ExternalBackend(store, place, lambda _: kept)

    return backend


class Gated(TableSource):
    """Reads no further than to each gate until that is open; each time it is opened has its own."""

    def __init__(self, gates: Sequence[Sequence[tuple[int, Event]]]) -> None:
        super().__init__([pa.concat_tables(tables(ROWS))], 10)
        self.__dict__["gates"] = iter(gates)

    def open(self, split: Split) -> TableReader:
        reader = _Gated(self.tables[0], split, self.batch_rows)
        reader.gates = next(self.__dict__["gates"])
        return reader


class _Gated(TableReader):
    gates: Sequence[tuple[int, Event]]

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        at = int(self.position.start)
        if any(at >= stop and not gate.is_set() for stop, gate in self.gates):
            return None
        return super().read(timeout_seconds)


class Fails(Operator):
    """Passes rows on; fails when it is to copy this checkpoint, once all that is before it has."""

    def __init__(self, fails: int, persisted: Event) -> None:
        self._fails, self._persisted = fails, persisted

    def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
        emit(batch)

    def pre_commit(self, checkpoint: int) -> tuple[Committable, ...]:
        if checkpoint == self._fails:
            assert self._persisted.wait(60)
            raise RuntimeError("planted")
        return ()


def what_an_attempt_wrote_and_nobody_decided_never_counts_for_the_next(
    bench: Bench, backend: NewBackend
) -> None:
    """The checkpoint after the failed one falls earlier in the data than that one did."""
    committed = [Event(), Event(), Event()]
    persisted = Event()
    attempts: list[int] = []
    rows: list[int] = []

    def observe(what: str, task: Any, checkpoint: int) -> None:
        if what == "persisted" and task.operator == "count" and checkpoint == 1:
            persisted.set()
        if what == "committed" and checkpoint < len(committed):
            committed[checkpoint].set()

    def fails(context: TaskContext) -> Operator:
        attempts.append(1)
        if len(attempts) == 2:
            job.ask_savepoint()
        return Fails(1, persisted)

    def seen(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows.append(batch.num_rows)
        if len(attempts) == 1 and sum(rows) in {BEFORE, FAILS}:
            job.ask_savepoint()
        return batch

    gates = [
        [(BEFORE, committed[0]), (FAILS, committed[1])],
        [(BEFORE, committed[2])],
    ]
    built = Graph("undecided", parallelism=1)
    counted = built.source("rows", Gated(gates)).key_by("key")
    made = counted.process("count", count, SCHEMA, lambda c: {"count": c.value("count", INT64)})
    made.map("seen", seen).map("fails", lambda batch: batch).sink("out", bench.sink)
    built.nodes["fails"].make = fails
    job = bench.job(
        built,
        backend=backend,
        settings=Settings(interval=1e6),
        savepoints=bench.savepoints,
        observe=observe,
    )
    job.run()
    assert len(attempts) == 2
    bench.check(ROWS)


def a_barrier_that_comes_after_its_checkpoint_failed_stops_no_later_one(
    bench: Bench, backend: NewBackend
) -> None:
    """Whatever comes late of a failed checkpoint, the next ones do as if it had not been."""
    next_has_begun = Event()
    committed: list[int] = []

    def observe(what: str, task: Any, checkpoint: int) -> None:
        if what == "begin" and checkpoint == 1:
            next_has_begun.set()
        if what == "committed":
            committed.append(checkpoint)

    def hold(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert next_has_begun.wait(60)
        return batch

    def keep(row: Row, at: KeyedContext) -> list[Row]:
        at.states["last"].put(at.key, row["id"])
        return [row]

    class Declines(LocalSnapshotStore):
        def put(self, key: str, content: bytes) -> BlobRef:
            if key.startswith("0/early"):
                raise UnavailableError("planted")
            return super().put(key, content)

    def backends(store: SnapshotStore, place: StateOwner) -> StateBackend:
        return (HeapBackend if place.operator == "early" else backend)(store, place)

    bench.store = Declines(bench.store.folder)
    built = Graph("late", parallelism=1)
    early = built.source("rows", TableSource(tables(ROWS), 10)).key_by("key")
    early = early.process("early", keep, KEYED, lambda c: {"last": c.value("last", INT64)})
    early.map("hold", hold).key_by("key").process(
        "count", count, SCHEMA, lambda c: {"count": c.value("count", INT64)}
    ).sink("out", bench.sink)
    # Room for all: the barrier is to get as far as `hold`, which reads nothing yet.
    bench.job(built, backend=backends, observe=observe, restarts=0, capacity=1_000).run()
    assert committed
    assert 0 not in committed
    bench.check(ROWS)


RULES = (
    what_an_attempt_wrote_and_nobody_decided_never_counts_for_the_next,
    a_barrier_that_comes_after_its_checkpoint_failed_stops_no_later_one,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_state_elsewhere_keeps(rule: Rule, bench: Bench) -> None:
    rule(bench, in_memory())


@pytest.mark.services
@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_state_in_postgresql_keeps(rule: Rule, bench: Bench, database: str, kind: str) -> None:
    rule(bench, BACKENDS[kind](Server.at(database)))


def test_a_copy_whose_checkpoint_has_failed_is_not_written_any_more(bench: Bench) -> None:
    kept = Versions()
    backend = ExternalBackend(bench.store, PLACE, lambda _: kept)
    backend.table("n", "value:int64").put(b"k", b"1")
    copy = backend.snapshot(0)
    backend.notify_aborted(0)
    with pytest.raises(UnavailableError, match="failed already"):
        copy.persist()
    assert not kept.written
    backend.snapshot(1).persist()
    backend.notify_complete(1)
    assert kept.get("n", [(b"k", b"")]) == {(b"k", b""): b"1"}


def test_a_checkpoint_that_fails_while_it_is_written_is_ended_afterwards(bench: Bench) -> None:
    writing, failed, aborted = Event(), Event(), Event()
    early: list[bool] = []

    class Slow(Versions):
        def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
            writing.set()
            failed.wait(60)
            early.append(aborted.wait(0.2))
            return super().persist(checkpoint, changes)

        def abort(self, checkpoint: int) -> None:
            aborted.set()
            super().abort(checkpoint)

    kept = Slow()
    backend = ExternalBackend(bench.store, PLACE, lambda _: kept)
    backend.table("n", "value:int64").put(b"k", b"1")
    persisting = Thread(target=backend.snapshot(0).persist)
    persisting.start()
    assert writing.wait(60)
    failed.set()
    backend.notify_aborted(0)
    persisting.join()
    assert early == [False]
    assert not any(kept.written.values()), "nothing of it is left"


def test_state_that_is_queried_first_begins_once_and_before_any_read(bench: Bench) -> None:
    starting, asked = Event(), Event()
    began: list[int] = []

    class Slow(Versions):
        def restore(self, handles: Sequence[StateHandle]) -> None:
            began.append(1)
            starting.set()
            asked.wait(0.2)
            super().restore(handles)
            began.append(2)

        def get(self, state: str, entries: Sequence[Entry]) -> Mapping[Entry, bytes]:
            began.append(3)
            asked.set()
            return super().get(state, entries)

    backend = ExternalBackend(bench.store, PLACE, lambda _: Slow())
    table = backend.table("n", "value:int64")
    query = Thread(target=backend.read, args=("n", [b"k"], Version.COMMITTED))
    query.start()
    assert starting.wait(60)
    assert table.get(b"k") is None
    query.join()
    assert began == [1, 2, 3, 3]


@pytest.mark.services
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_run_that_has_decided_nothing_yet_restores_its_savepoint_again(
    bench: Bench, database: str, kind: str
) -> None:
    heap, one = HeapBackend(bench.store, PLACE), INT64.encode(1)
    heap.table("n", "value:int64").put(b"k", one)
    saved = heap.snapshot(3).savepoint(bench.savepoints)
    backends = BACKENDS[kind](Server.at(database))
    for _ in range(2):
        backend = backends(bench.store, PLACE)
        backend.restore([saved], bench.savepoints)
        assert backend.table("n", "value:int64").get(b"k") == one
        backend.close()
