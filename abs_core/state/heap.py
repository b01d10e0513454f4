"""The heap backend: entries in dictionaries; copy on write by entry, incremental, asynchronous.

Time is cut into *intervals* by the snapshots. The first write to an entry within an interval keeps what
the entry was before (its undo). A logical copy therefore is: open a new interval. It costs the same for
ten entries and ten million. What an entry was when a snapshot was taken is: the undo of the first later
interval that has one, else what it is now. A background thread may read this while the subtask writes:
a writer keeps the undo before it changes the entry, a reader looks at the entry before the undo.

What changed since the last completed checkpoint is the keys of the intervals since then: an increment.
Once the increments outweigh the base, the next snapshot is written whole: chains stay short. Failed
checkpoints in a row add up: the undo of each interval is held until a checkpoint completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from abs_core.state.contracts import (
    BlobRef,
    Keys,
    Place,
    SnapshotStore,
    StateHandle,
    Table,
    Values,
    Version,
)
from abs_core.state.savepoint import CHUNK, FORMAT, Entries, overlapping, read, write
from abs_core.state.shapes import Shapes

CHAIN_MAX = 20
"""A snapshot that would need more increments than this is written whole."""

Old = dict[Any, bytes | None]


class Interval:
    """What entries were before their first write between two snapshots, by state; then the next one."""

    __slots__ = ("next", "old")

    def __init__(self) -> None:
        self.old: dict[str, Old] = {}
        self.next: Interval | None = None

    def until(self, end: Interval | None) -> Iterator[Interval]:
        """This interval and those after it, up to, and not including, ``end``."""
        at: Interval | None = self
        while at is not None and at is not end:
            yield at
            at = at.next


class HeapTable(Table):
    """Entries by name: the key, or in a nested state (key, sub-key). See ``Table``."""

    def __init__(self, name: str, opened: Interval, *, nested: bool) -> None:
        self.name = name
        self.nested = nested
        self.live: dict[Any, bytes] = {}
        self._subs: dict[bytes, set[bytes]] = {}
        self.enter(opened)

    def enter(self, interval: Interval) -> None:
        """From now on undo goes to this interval."""
        self._old = interval.old.setdefault(self.name, {})

    def get(self, key: bytes) -> bytes | None:
        return self.live.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        # Not by `put_many`: this is what a function pays for each of its rows.
        if key not in self._old:
            self._old[key] = self.live.get(key)
        if value is None:
            self.live.pop(key, None)
        else:
            self.live[key] = value

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        return list(map(self.live.get, keys if subs is None else zip(keys, subs, strict=True)))

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        self.write(keys if subs is None else list(zip(keys, subs, strict=True)), values)

    def write(self, names: Sequence[Any], values: Sequence[bytes | None]) -> None:
        """Keep the undo, then change: a reader in another thread looks in the other order."""
        live, old = self.live, self._old
        fresh = [name for name in names if name not in old]
        old.update(zip(fresh, map(live.get, fresh), strict=True))
        self.load(names, values)

    def load(self, names: Sequence[Any], values: Sequence[bytes | None]) -> None:
        """Apply entries that are no change: restored ones."""
        live = self.live
        if None not in values:
            live.update(zip(names, values, strict=True))  # type: ignore[arg-type]
        else:
            for name, value in zip(names, values, strict=True):
                if value is None:
                    live.pop(name, None)
                else:
                    live[name] = value
        if self.nested:
            self._index(names)

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        return [(sub, self.live[key, sub]) for sub in sorted(self._subs.get(key, ()))]

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        for (key, sub), value in list(self.live.items()):
            yield key, sub, value

    def at(self, names: Sequence[Any], after: Interval) -> Values:
        """What the entries were when ``after`` was opened. From any thread."""
        found = self.get_many(names)
        for interval in reversed(list(after.until(None))):
            old = interval.old.get(self.name)
            if old:
                found = [
                    old.get(k, v) if k in old else v for k, v in zip(names, found, strict=True)
                ]
        return found

    def _index(self, names: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep the sub-keys of each key."""
        for key, sub in names:
            if (key, sub) in self.live:
                self._subs.setdefault(key, set()).add(sub)
            elif key in self._subs:
                self._subs[key].discard(sub)
                if not self._subs[key]:
                    del self._subs[key]


@dataclass(frozen=True, slots=True)
class Base:
    """The blobs of a completed snapshot: the first ``whole`` hold it all, the others are increments."""

    blobs: tuple[BlobRef, ...] = ()
    whole: int = 0

    @property
    def is_heavy(self) -> bool:
        """Whether to begin anew: reading the increments would cost more than reading a whole one."""
        sizes = [ref.size for ref in self.blobs]
        increments = sizes[self.whole :]
        return len(increments) >= CHAIN_MAX or sum(increments) > sum(sizes[: self.whole])

    @classmethod
    def of(cls, handle: StateHandle) -> Base:
        return cls(handle.blobs, int(dict(handle.extra).get("whole", len(handle.blobs))))


NO_BASE = Base()


class HeapSnapshot:
    """A moment: all entries as they were when ``after`` was opened. See ``Snapshot``.

    Args:
        since: the interval from which on changes are written; None: write all.
        base: what was before ``since``.
    """

    def __init__(
        self,
        backend: HeapBackend,
        checkpoint: int,
        since: Interval | None,
        base: Base,
        after: Interval,
    ) -> None:
        self._backend = backend
        self._checkpoint = checkpoint
        self._since = since
        self._base = base
        self._tables = list(backend.tables())
        self._states = tuple(backend.states())
        self.after = after
        self.handle: StateHandle | None = None

    def persist(self) -> StateHandle:
        store = self._backend.store
        if self._since is None or self._base.is_heavy:
            self.handle = self._write(store, NO_BASE, self._whole())
        else:
            self.handle = self._write(store, self._base, self._changes(self._since))
        return self.handle

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        return self._write(store, NO_BASE, self._whole())

    def close(self) -> None:
        self._since = None  # the intervals go with it

    def _write(self, store: SnapshotStore, base: Base, entries: Iterable[Entries]) -> StateHandle:
        place = self._backend.place
        written = write(store, place, self._checkpoint, self._states, entries)
        whole = base.whole or len(written.blobs)
        blobs = base.blobs + written.blobs
        return replace(written, blobs=blobs, extra=(("whole", str(whole)),))

    def _whole(self) -> Iterator[Entries]:
        for table in self._tables:
            keys = dict.fromkeys(list(table.live))
            for interval in self.after.until(None):
                keys |= dict.fromkeys(list(interval.old.get(table.name, ())))
            yield from self._entries(table, list(keys), deletions=False)

    def _changes(self, since: Interval) -> Iterator[Entries]:
        for table in self._tables:
            keys: dict[Any, None] = {}
            for interval in since.until(self.after):
                keys |= dict.fromkeys(interval.old.get(table.name, ()))
            yield from self._entries(table, list(keys), deletions=True)

    def _entries(self, table: HeapTable, keys: list[Any], *, deletions: bool) -> Iterator[Entries]:
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            values = table.at(part, self.after)
            if not deletions:
                part = [key for key, value in zip(part, values, strict=True) if value is not None]
                values = [value for value in values if value is not None]
            if table.nested:
                firsts, subs = [key for key, _ in part], [sub for _, sub in part]
                yield Entries(table.name, firsts, subs, values)
            else:
                yield Entries(table.name, part, None, values)


class HeapBackend:
    """Keyed state of one subtask in memory. See ``StateBackend``; writes the format ``arrow``.

    Args:
        store: where snapshots go.
        place: whose state it is.
    """

    def __init__(self, store: SnapshotStore, place: Place) -> None:
        self.store = store
        self.place = place
        self._shapes = Shapes()
        self._tables: dict[str, HeapTable] = {}
        self._open = self._committed = Interval()
        self._base: Base | None = None
        self._pending: dict[int, HeapSnapshot] = {}

    def table(self, name: str, shape: str) -> HeapTable:
        self._shapes.declare(name, shape)
        return self._entries(name)

    def tables(self) -> Iterable[HeapTable]:
        return self._tables.values()

    def states(self) -> Sequence[tuple[str, str]]:
        return self._shapes.all()

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        mine = overlapping(handles, self.place, [FORMAT])
        for handle in mine:
            self._shapes.restore(handle.states)
            for entries in read(source or self.store, handle.blobs, self.place.groups):
                names: Sequence[Any] = entries.keys
                if entries.subs is not None:
                    names = list(zip(entries.keys, entries.subs, strict=True))
                self._entries(entries.state).load(names, entries.values)
        # A base is what holds exactly these groups, in this store: a savepoint is its owner's.
        if source is None and len(mine) == 1 and mine[0].groups == self.place.groups:
            self._base = Base.of(mine[0])

    def snapshot(self, checkpoint: int) -> HeapSnapshot:
        following = Interval()
        self._open.next = following
        self._open = following
        for table in self._tables.values():
            table.enter(following)
        since = None if self._base is None else self._committed
        base = self._base or NO_BASE
        self._pending[checkpoint] = HeapSnapshot(self, checkpoint, since, base, following)
        return self._pending[checkpoint]

    def notify_complete(self, checkpoint: int) -> None:
        snapshot = self._pending.pop(checkpoint, None)
        if snapshot is None or snapshot.handle is None:
            return
        self._committed, self._base = snapshot.after, Base.of(snapshot.handle)
        self._pending = {n: s for n, s in self._pending.items() if n > checkpoint}

    def notify_aborted(self, checkpoint: int) -> None:
        # Its interval stays in the chain, so the next increment has its changes.
        self._pending.pop(checkpoint, None)

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        self._shapes.check_query(name)
        table = self._tables.get(name)
        if table is None:  # it was empty when it was saved, and nobody has asked for it yet
            return [None] * len(keys)
        return table.get_many(keys) if version is Version.LIVE else table.at(keys, self._committed)

    def close(self) -> None:
        self._tables.clear()
        self._pending.clear()

    def _entries(self, name: str) -> HeapTable:
        if name not in self._tables:
            self._tables[name] = HeapTable(name, self._open, nested=self._shapes.is_nested(name))
        return self._tables[name]
