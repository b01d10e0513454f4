"""The heap backend: entries in memory, with O(1) copies and incremental, asynchronous snapshots.

Tables of 64-bit numbers are columns (``columns.py``). Any other table is a base and *layers* over
it, as in a log-structured merge tree (O'Neil et al. 1996), all in memory. Writes go to the open
layer; a read takes the newest layer that has the entry. A logical copy freezes the open layer, and
opens an empty one. It costs the same for any number of entries, and a write pays nothing for it. A
frozen layer never changes, so a background thread reads it while the subtask writes.

The frozen layers that are not yet part of a completed checkpoint are the increment. When it
completes its layers are merged into the base, which alone is committed; when it fails they go back
to the open layer, so the next one has them. Once the blobs of increments outweigh the base's, or
are too many, the next snapshot is written whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal

from abs_core.errors import UnavailableError
from abs_embedded.state.columns import ColumnTable
from abs_embedded.state.contracts import (
    BlobRef,
    Keys,
    SnapshotStore,
    StateHandle,
    StateOwner,
    StateTable,
    Values,
    Version,
)
from abs_embedded.state.savepoint import FORMAT, Entries, overlapping, read, write
from abs_embedded.state.shapes import Shaped

MAX_CHAIN = 20
"""A snapshot that would need more increments than this is written whole."""

ABSENT: Literal[False] = False
"""What a layer does not have; None is an entry that it deletes."""

Layer = dict[Any, bytes | None]


class HeapTable(StateTable):
    """Entries by name: the key, or in a nested state (key, sub-key). See ``StateTable``."""

    def __init__(self, name: str, *, nested: bool) -> None:
        self.name = name
        self.nested = nested
        self.base: Layer = {}
        self.layers: tuple[Layer, ...] = ({}, self.base)
        """The open one, the frozen ones from the newest on, the base. Exchanged as a whole."""
        self._subs: dict[bytes, set[bytes]] = {}

    def get(self, key: bytes) -> bytes | None:
        for layer in self.layers:
            value = layer.get(key, ABSENT)
            if value is not ABSENT:
                return value
        return None

    def put(self, key: bytes, value: bytes | None) -> None:
        # Not by `put_many`: this is what a function pays for each of its rows.
        self.layers[0][key] = value

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        names = _names(keys, subs)
        first, *others = self.layers
        values: list[Any] = list(map(first.get, names, repeat(ABSENT)))
        for layer in others:
            if all(values):  # none is absent; nor deleted, nor empty
                return values
            for at, value in enumerate(values):
                if value is ABSENT:
                    values[at] = layer.get(names[at], ABSENT)
        return [None if value is ABSENT else value for value in values]

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        self._put(self.layers[0], _names(keys, subs), values)

    def load(self, entries: Entries) -> None:
        """Load restored entries, which are no change."""
        layer: Layer = {}
        self._put(layer, _names(entries.keys, entries.subs), entries.values)
        self.settle(layer)

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        subs = sorted(self._subs.get(key, ()))
        values = self.get_many([key] * len(subs), subs)
        return [(sub, value) for sub, value in zip(subs, values, strict=True) if value is not None]

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        for (key, sub), value in joined(self.layers).items():
            if value is not None:
                yield key, sub, value

    def committed(self, keys: Keys) -> Values:
        """Values as of the last completed checkpoint. Thread-safe."""
        return list(map(self.base.get, keys))

    def freeze(self) -> Frozen:
        """Freeze the layers over the base."""
        frozen = Frozen(self, self.layers[:-1])
        self.layers = ({}, *self.layers)
        return frozen

    def thaw(self) -> None:
        """Merge all frozen layers back into the open one."""
        self.layers = (joined(self.layers[:-1]), self.base)

    def settle(self, layer: Layer) -> None:
        self.base.update(layer)
        if not all(layer.values()):
            for name in [name for name, value in layer.items() if value is None]:
                del self.base[name]

    def _put(self, layer: Layer, names: Sequence[Any], values: Values) -> None:
        layer.update(zip(names, values, strict=True))
        if self.nested:
            self._index(names, values)

    def _index(self, names: Iterable[tuple[bytes, bytes]], values: Values) -> None:
        """Maintain the sub-keys of each key."""
        for (key, sub), value in zip(names, values, strict=True):
            if value is not None:
                self._subs.setdefault(key, set()).add(sub)
            elif key in self._subs:
                self._subs[key].discard(sub)
                if not self._subs[key]:
                    del self._subs[key]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A table at the moment of a copy: these layers, over its base."""

    table: HeapTable
    layers: tuple[Layer, ...]

    def whole(self) -> Entries:
        # The base may be taking in layers meanwhile, but only such as are among these.
        entries = joined((*self.layers, self.table.base))
        return _entries(self.table, {k: v for k, v in entries.items() if v is not None})

    def changes(self) -> Entries:
        layers = self.layers
        return _entries(self.table, layers[0] if len(layers) == 1 else joined(layers))

    def merge(self) -> None:
        """Its checkpoint has completed: merge these layers into the base."""
        table = self.table
        at = next(n for n, layer in enumerate(table.layers) if layer is self.layers[0])
        for layer in reversed(table.layers[at:-1]):
            table.settle(layer)
        table.layers = (*table.layers[:at], table.base)


def joined(layers: Sequence[Layer]) -> Layer:
    """The merged entries of these layers, newest first."""
    entries: Layer = {}
    for layer in reversed(layers):
        entries.update(layer)
    return entries


def _names(keys: Keys, subs: Keys | None) -> Sequence[Any]:
    return keys if subs is None else list(zip(keys, subs, strict=True))


@dataclass(frozen=True, slots=True)
class Base:
    """The blobs of a completed snapshot: ``whole`` full ones, then increments."""

    blobs: tuple[BlobRef, ...]
    whole: int

    @property
    def is_heavy(self) -> bool:
        """Whether to write a whole snapshot: the increments outweigh it."""
        sizes = [ref.size for ref in self.blobs]
        increments = sizes[self.whole :]
        return len(increments) >= MAX_CHAIN or sum(increments) > sum(sizes[: self.whole])

    @classmethod
    def of(cls, handle: StateHandle) -> Base:
        return cls(handle.blobs, int(dict(handle.extra).get("whole", len(handle.blobs))))


class HeapSnapshot:
    """The frozen layers of each table, over the base. See ``Snapshot``.

    ``base`` has the blobs of the tables' bases; None: write all.
    """

    def __init__(self, backend: HeapBackend, checkpoint: int, base: Base | None) -> None:
        self._backend = backend
        self._checkpoint = checkpoint
        self._base = base
        self._states = tuple(backend.states())
        self.parts = [table.freeze() for table in backend.tables()]
        self.handle: StateHandle | None = None

    def persist(self) -> StateHandle:
        store, base = self._backend.store, self._base
        if base is None or base.is_heavy:
            self.handle = self.savepoint(store)
        else:
            new = self._write(store, (part.changes() for part in self.parts))
            extra = (("whole", str(base.whole or len(new.blobs))),)
            self.handle = replace(new, blobs=base.blobs + new.blobs, extra=extra)
        return self.handle

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        return self._write(store, (part.whole() for part in self.parts))

    def close(self) -> None:
        """The tables own the layers, and free them when the checkpoint is over."""

    def _write(self, store: SnapshotStore, entries: Iterable[Entries]) -> StateHandle:
        return write(store, self._backend.place, self._checkpoint, self._states, entries)


def _entries(table: HeapTable, layer: Layer) -> Entries:
    values = list(layer.values())
    if table.nested:
        return Entries(table.name, [key for key, _ in layer], [sub for _, sub in layer], values)
    return Entries(table.name, list(layer), None, values)


class HeapBackend(Shaped):
    """Keyed state of one subtask in memory. See ``StateBackend``; writes the format ``arrow``."""

    def __init__(self, store: SnapshotStore, place: StateOwner) -> None:
        super().__init__(store, place)
        self._tables: dict[str, HeapTable | ColumnTable] = {}
        self._base: Base | None = None
        self._pending: dict[int, HeapSnapshot] = {}
        self._closed = False

    def is_private(self) -> bool:
        return True

    def table(self, name: str, shape: str) -> HeapTable | ColumnTable:
        self.declare(name, shape)
        return self._entries(name)

    def tables(self) -> Iterable[HeapTable | ColumnTable]:
        return self._tables.values()

    def drop(self, name: str) -> None:
        self.forget(name)
        self._tables.pop(name, None)
        self._base = None  # its blobs have the entries, and increments to them would

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        mine = overlapping(handles, self.place, [FORMAT])
        self.committed = mine[0].checkpoint
        for handle in mine:
            self.declare_restored(handle.states)
            for entries in read(source or self.store, handle.blobs, self.place.groups):
                self._entries(entries.state).load(entries)
        # A base is what holds exactly these groups, in this store: a savepoint is its owner's.
        if source is None and len(mine) == 1 and mine[0].groups == self.place.groups:
            self._base = Base.of(mine[0])

    def snapshot(self, checkpoint: int) -> HeapSnapshot:
        self._pending[checkpoint] = HeapSnapshot(self, checkpoint, self._base)
        return self._pending[checkpoint]

    def notify_complete(self, checkpoint: int) -> None:
        snapshot = self._pending.pop(checkpoint, None)
        if snapshot is None or snapshot.handle is None:
            return
        self.committed = None
        for part in snapshot.parts:
            part.merge()
        self.committed = checkpoint
        self._base = Base.of(snapshot.handle)
        self._pending = {n: s for n, s in self._pending.items() if n > checkpoint}

    def notify_aborted(self, checkpoint: int) -> None:
        # While others are pending its layers stay where they are: the next snapshot has them, too.
        if self._pending.pop(checkpoint, None) is not None and not self._pending:
            for table in self.tables():
                table.thaw()

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        self.check_query(name)
        table = self._tables.get(name)
        if table is None:  # it was empty when it was saved, and nobody has asked for it yet
            if self._closed:
                raise UnavailableError(f"The state {name!r} was closed.", remedy="ask again.")
            return [None] * len(keys)
        return table.get_many(keys) if version is Version.LIVE else table.committed(keys)

    def close(self) -> None:
        self._closed = True  # first: who finds no table looks at it
        self._tables.clear()
        self._pending.clear()

    def _entries(self, name: str) -> HeapTable | ColumnTable:
        if name not in self._tables:
            if self.is_of_numbers(name):
                self._tables[name] = ColumnTable(name, self.place.max_parallelism)
            else:
                self._tables[name] = HeapTable(name, nested=self.is_nested(name))
        return self._tables[name]
