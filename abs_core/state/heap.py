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
from dataclasses import dataclass
from typing import Any

from abs_core.state.contracts import (
    BlobRef,
    Nested,
    Place,
    SnapshotStore,
    StateHandle,
    Table,
    Version,
)
from abs_core.state.savepoint import CHUNK, FORMAT, Entries, blob_prefix, overlapping, read, write
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


class HeapTable:
    """Entries by key (bytes; in a nested state: a pair). See ``Table``."""

    def __init__(self, name: str, opened: Interval) -> None:
        self.name = name
        self.live: dict[Any, bytes] = {}
        self.enter(opened)

    def enter(self, interval: Interval) -> None:
        """From now on undo goes to this interval."""
        self._old = interval.old.setdefault(self.name, {})

    def get(self, key: Any) -> bytes | None:
        return self.live.get(key)

    def get_many(self, keys: Sequence[Any]) -> list[bytes | None]:
        return list(map(self.live.get, keys))

    def put(self, key: Any, value: bytes | None) -> None:
        # Not by `put_many`: this is what a function pays for each of its rows.
        if key not in self._old:
            self._old[key] = self.live.get(key)
        if value is None:
            self.live.pop(key, None)
        else:
            self.live[key] = value

    def put_many(self, keys: Sequence[Any], values: Sequence[bytes | None]) -> None:
        live, old = self.live, self._old
        fresh = [key for key in keys if key not in old]
        old.update(zip(fresh, map(live.get, fresh), strict=True))
        if None not in values:
            live.update(zip(keys, values, strict=True))  # type: ignore[arg-type]
            return
        for key, value in zip(keys, values, strict=True):
            if value is None:
                live.pop(key, None)
            else:
                live[key] = value

    def load(self, keys: Iterable[Any], values: Iterable[bytes | None]) -> None:
        """Apply restored entries: they are no change."""
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self.live.pop(key, None)
            else:
                self.live[key] = value

    def at(self, keys: Sequence[Any], after: Interval) -> list[bytes | None]:
        """What the entries were when ``after`` was opened. From any thread."""
        found = self.get_many(keys)
        for interval in reversed(list(after.until(None))):
            old = interval.old.get(self.name)
            if old:
                found = [old.get(k, v) if k in old else v for k, v in zip(keys, found, strict=True)]
        return found


class HeapNested:
    """A nested state over a table of pairs; keeps the sub-keys of each key. See ``Nested``."""

    def __init__(self, table: HeapTable) -> None:
        self._table = table
        self._subs: dict[bytes, set[bytes]] = {}
        for key, sub in table.live:
            self._subs.setdefault(key, set()).add(sub)

    def get_many(self, keys: Sequence[bytes], subs: Sequence[bytes]) -> list[bytes | None]:
        return self._table.get_many(list(zip(keys, subs, strict=True)))

    def put_many(
        self, keys: Sequence[bytes], subs: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        self._table.put_many(list(zip(keys, subs, strict=True)), values)
        for key, sub, value in zip(keys, subs, values, strict=True):
            if value is not None:
                self._subs.setdefault(key, set()).add(sub)
            elif key in self._subs:
                self._subs[key].discard(sub)
                if not self._subs[key]:
                    del self._subs[key]

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        live = self._table.live
        return [(sub, live[key, sub]) for sub in sorted(self._subs.get(key, ()))]

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        for (key, sub), value in list(self._table.live.items()):
            yield key, sub, value


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
        prefix = blob_prefix(self._checkpoint, place)
        new = write(store, prefix, entries, place.max_parallelism)
        whole = (("whole", str(base.whole or len(new))),)
        blobs = base.blobs + new
        return StateHandle(FORMAT, self._checkpoint, place.groups, self._states, blobs, whole)

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
        nested = self._backend.is_nested(table.name)
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            values = table.at(part, self.after)
            if not deletions:
                part = [key for key, value in zip(part, values, strict=True) if value is not None]
                values = [value for value in values if value is not None]
            if nested:
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
        self._nested: dict[str, HeapNested] = {}
        self._open = self._committed = Interval()
        self._base: Base | None = None
        self._pending: dict[int, HeapSnapshot] = {}

    def table(self, name: str, shape: str) -> Table:
        self._shapes.declare(name, shape, nested=False)
        return self._entries(name)

    def nested(self, name: str, shape: str) -> Nested:
        self._shapes.declare(name, shape, nested=True)
        if name not in self._nested:
            self._nested[name] = HeapNested(self._entries(name))
        return self._nested[name]

    def tables(self) -> Iterable[HeapTable]:
        return self._tables.values()

    def is_nested(self, name: str) -> bool:
        return self._shapes.is_nested(name)

    def states(self) -> Sequence[tuple[str, str]]:
        return self._shapes.all()

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        mine = overlapping(handles, self.place, [FORMAT])
        for handle in mine:
            self._shapes.restore(handle.states)
            for entries in read(source or self.store, handle.blobs, self.place.groups):
                keys: Iterable[Any] = entries.keys
                if entries.subs is not None:
                    keys = zip(entries.keys, entries.subs, strict=True)
                self._entries(entries.state).load(keys, entries.values)
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

    def read(self, name: str, keys: Sequence[bytes], version: Version) -> Sequence[bytes | None]:
        self._shapes.check_query(name)
        table = self._tables.get(name)
        if table is None:  # it was empty when it was saved, and nobody has asked for it yet
            return [None] * len(keys)
        return table.get_many(keys) if version is Version.LIVE else table.at(keys, self._committed)

    def close(self) -> None:
        self._tables.clear()
        self._nested.clear()
        self._pending.clear()

    def _entries(self, name: str) -> HeapTable:
        if name not in self._tables:
            self._tables[name] = HeapTable(name, self._open)
        return self._tables[name]
