"""One job's keyed state under test: backends, snapshot store, and expected content."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import xxhash

from abs_embedded.state.contracts import (
    NewBackend,
    Snapshot,
    SnapshotStore,
    StateBackend,
    StateOwner,
    StateTable,
)
from abs_embedded.state.contracts import StateHandle as Handle
from abs_embedded.state.keygroups import GroupRange, encode_key, key_group, owner
from abs_embedded.state.retention import sweep
from abs_embedded.state.savepoint import read

GROUPS = 16
FLAT, NESTED = "totals", "entries"
SHAPE_OF_NESTED = "map:bytes:bytes"
KEYS = tuple(encode_key(n) for n in range(24)) + tuple(encode_key(t) for t in ("", "a", "aa", "\0"))
SUBS = (b"", b"a", b"aa", b"b", b"\xff")

Flat = dict[bytes, bytes]
Deep = dict[tuple[bytes, bytes], bytes]


@dataclass
class Model:
    """The expected state, in two dictionaries."""

    flat: Flat = field(default_factory=dict)
    deep: Deep = field(default_factory=dict)

    def copy(self) -> Model:
        return Model(dict(self.flat), dict(self.deep))


@dataclass(frozen=True)
class StateSubject:
    """The subject of a check.

    Args:
        damage: changes a blob of the store directly: (store, key, content or None to delete).
        in_flight: checkpoints that may be between snapshot and completion.
        flat: the shape of the table; with ``value:int64`` values are hashed to eight bytes.
    """

    new_backend: NewBackend
    new_store: Callable[[], SnapshotStore]
    damage: Callable[[SnapshotStore, str, Callable[[bytes], bytes] | None], None]
    in_flight: int = 2
    flat: str = "value:bytes"


class StateCase:
    """Consecutive runs of the job, as a runtime would drive them.

    ``job`` is the job's key; external backends keep its state under it.
    """

    def __init__(self, subject: StateSubject, job: str, parallelism: int = 2) -> None:
        self.subject = subject
        self.store = subject.new_store()
        self.job = job
        self.shapes = {FLAT: subject.flat, NESTED: SHAPE_OF_NESTED}
        self.model = Model()
        self.register = "register"
        self.generation = 0
        self.checkpoint = 0
        self.backends: list[StateBackend] = []
        self.copies: dict[int, tuple[Model, list[Snapshot]]] = {}
        self.start(parallelism)

    # Runs

    def start(
        self, parallelism: int, source: SnapshotStore | None = None, *, old: bool = True
    ) -> None:
        """A new run, from the newest completed checkpoint (of ``source``, or the job's own store)."""
        if not old:
            self.close()
        self.generation += 1
        self.copies.clear()
        completed = (source or self.store).completed()
        places = [self.place(n, parallelism) for n in range(parallelism)]
        self.backends = [self.subject.new_backend(self.store, place) for place in places]
        if completed:
            handles = self.handles(completed[-1], source)
            for backend in self.backends:
                backend.restore(handles, source)

    def begin_anew(self, register: str) -> None:
        """Another job of the same name, independent of this one."""
        self.close()
        self.store, self.model, self.register = self.subject.new_store(), Model(), register
        self.generation = self.checkpoint = 0
        self.start(2)

    def crash(self, parallelism: int | None = None, expect: Model | None = None) -> None:
        """End the run abruptly, begin another, and set the expected state."""
        count = parallelism or len(self.backends)
        self.start(count, old=False)
        self.model = Model() if expect is None else expect.copy()

    def close(self) -> None:
        for _, snapshots in self.copies.values():
            for snapshot in snapshots:
                snapshot.close()
        for backend in self.backends:
            backend.close()
        self.backends = []

    def place(self, subtask: int, parallelism: int) -> StateOwner:
        groups = GroupRange.of(subtask, parallelism, GROUPS)
        return StateOwner(self.job, "op", subtask, groups, GROUPS, self.generation, self.register)

    # State

    def backend(self, key: bytes) -> StateBackend:
        return self.backends[owner(key_group(key, GROUPS), len(self.backends), GROUPS)]

    def value(self, text: bytes | None) -> bytes | None:
        """The table's value for this text."""
        if text is None or self.subject.flat == "value:bytes":
            return text
        return xxhash.xxh3_64_digest(text)

    def table(self, backend: StateBackend) -> StateTable:
        return backend.table(FLAT, self.shapes[FLAT])

    def put(self, texts: dict[bytes, bytes | None]) -> None:
        """Write in one batch per subtask; one key by itself."""
        entries = {key: self.value(text) for key, text in texts.items()}
        for backend in self.backends:
            mine = [key for key in entries if self.backend(key) is backend]
            table = self.table(backend)
            if len(mine) == 1:
                table.put(mine[0], entries[mine[0]])
            else:
                table.put_many(mine, [entries[key] for key in mine])
        _merge(self.model.flat, entries)

    def put_deep(self, entries: dict[tuple[bytes, bytes], bytes | None]) -> None:
        for backend in self.backends:
            mine = [(k, s) for k, s in entries if self.backend(k) is backend]
            backend.table(NESTED, SHAPE_OF_NESTED).put_many(
                [k for k, _ in mine], [entries[pair] for pair in mine], [s for _, s in mine]
            )
        _merge(self.model.deep, entries)

    def fill(self, text: str) -> None:
        """Write every key and sub-key."""
        self.put({key: text.encode() + key for key in KEYS})
        self.put_deep({(k, s): text.encode() + k + s for k in KEYS for s in SUBS})

    # Checkpoints

    def snapshot(self) -> int:
        """Take the logical copy in every subtask; returns its number."""
        self.checkpoint += 1
        snapshots = [backend.snapshot(self.checkpoint) for backend in self.backends]
        self.copies[self.checkpoint] = self.model.copy(), snapshots
        return self.checkpoint

    def persist(self, number: int) -> list[Handle]:
        handles = [snapshot.persist() for snapshot in self.copies[number][1]]
        for snapshot in self.copies[number][1]:
            snapshot.close()
        return handles

    def decide(self, number: int, handles: Sequence[Handle]) -> Model:
        """Write the completion record; returns the checkpoint's content."""
        record = json.dumps([handle.to_json() for handle in handles]).encode()
        self.store.complete(number, record, [ref for handle in handles for ref in handle.blobs])
        return self.copies[number][0]

    def notify(self, number: int) -> None:
        for backend in self.backends:
            backend.notify_complete(number)
        self.copies.pop(number, None)

    def abort(self, number: int) -> None:
        for snapshot in self.copies.pop(number)[1]:
            snapshot.close()
        for backend in self.backends:
            backend.notify_aborted(number)

    def complete(self) -> Model:
        """A whole checkpoint, from copy to notification."""
        number = self.snapshot()
        model = self.decide(number, self.persist(number))
        self.notify(number)
        return model

    def handles(self, number: int, store: SnapshotStore | None = None) -> list[Handle]:
        record = json.loads((store or self.store).record(number))
        return [Handle.from_json(value) for value in record]

    def savepoint(self) -> SnapshotStore:
        """A new store with a savepoint of the present state."""
        store = self.subject.new_store()
        number = self.snapshot()
        self.write_savepoint(store, self.copies[number][1])
        self.abort(number)
        return store

    def write_savepoint(self, store: SnapshotStore, snapshots: Sequence[Snapshot]) -> None:
        """Complete a savepoint in its own store."""
        handles = [snapshot.savepoint(store) for snapshot in snapshots]
        record = json.dumps([handle.to_json() for handle in handles]).encode()
        store.complete(self.checkpoint, record, [ref for h in handles for ref in h.blobs])

    def sweep(self, keep: int = 1) -> list[str]:
        return sweep(self.store, blobs_of, keep)

    # What must hold

    def holds(self, when: str) -> None:
        """Assert that the live state is the model's, by every read method."""
        for backend in self.backends:
            mine = [key for key in KEYS if self.backend(key) is backend]
            table, nested = self.table(backend), backend.table(NESTED, SHAPE_OF_NESTED)
            expected = [self.model.flat.get(key) for key in mine]
            _same(dict(zip(mine, table.get_many(mine), strict=True)), mine, expected, when)
            _same(dict(zip(mine, map(table.get, mine), strict=True)), mine, expected, when)
            pairs = [(key, sub) for key in mine for sub in SUBS]
            got = nested.get_many([k for k, _ in pairs], [s for _, s in pairs])
            deep = [self.model.deep.get(pair) for pair in pairs]
            _same(dict(zip(pairs, got, strict=True)), pairs, deep, when)
            for key in mine:
                wanted = [(s, self.model.deep[key, s]) for s in SUBS if (key, s) in self.model.deep]
                entries = list(nested.items(key))
                assert entries == wanted, (
                    f"{when}: the entries of {key!r} are {entries}, not {wanted}"
                )

    def holds_each_once(self, when: str) -> None:
        """Assert that a savepoint has each entry of the model exactly once, and no other."""
        store, seen = self.savepoint(), set()
        for handle in self.handles(store.completed()[-1], store):
            for entries in read(store, handle.blobs, GroupRange(0, GROUPS)):
                subs: Iterable[bytes | None] = entries.subs or [None] * len(entries.keys)
                for key, sub, value in zip(entries.keys, subs, entries.values, strict=True):
                    assert (key, sub) not in seen, f"{when}: {key!r}, {sub!r} is there twice"
                    assert key_group(key, GROUPS) in handle.groups, f"{when}: {key!r} is elsewhere"
                    seen.add((key, sub))
                    wanted = (
                        self.model.flat.get(key) if sub is None else self.model.deep.get((key, sub))
                    )
                    assert value == wanted, f"{when}: {key!r}, {sub!r} is {value!r}, not {wanted!r}"
        expected = {(key, None) for key in self.model.flat} | set(self.model.deep)
        assert seen == expected, f"{when}: {len(expected - seen)} entries are missing"


def blobs_of(record: bytes) -> list[str]:
    """The blobs' keys in a completion record of this check."""
    handles = [Handle.from_json(value) for value in json.loads(record)]
    return [ref.key for handle in handles for ref in handle.blobs]


def _merge(model: dict, entries: dict) -> None:  # type: ignore[type-arg]
    for key, value in deepcopy(entries).items():
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def _same(actual: dict, keys: list, expected: list, when: str) -> None:  # type: ignore[type-arg]
    wrong = [(k, actual[k], e) for k, e in zip(keys, expected, strict=True) if actual[k] != e]
    assert not wrong, (
        f"{when}: {len(wrong)} entries differ, such as (key, found, wanted) {wrong[0]}"
    )
