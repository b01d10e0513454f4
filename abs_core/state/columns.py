"""A table of the heap whose values are eight bytes each: numbers in one array, not one object each.

A key has a *slot*; what is there at present stands in an array by slot. A logical copy only begins a
new *era*: the first write to a slot in an era keeps what the slot held before. An older version is the
present with what later eras kept put back, the oldest last (rollback segments, as in multi-version
concurrency control). So a copy costs the same for ten entries and ten million, a write pays once for
each slot and era, and a background thread reads a version while the subtask writes: whatever it sees of
a write, the value before was kept earlier.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abs_core.errors import RowError
from abs_core.state.contracts import ArrayCodec, Keys, Table, Values
from abs_core.state.savepoint import Entries

Slots = npt.NDArray[np.int64]

SPARSE_MIN = 1024
"""A table with fewer deletions than this is not built anew."""
_WORD = struct.Struct("<q")


@dataclass(slots=True)
class Words:
    """Values of eight bytes by slot, and which of them are there."""

    values: npt.NDArray[np.int64]
    there: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, size: int) -> Words:
        return cls(np.zeros(size, np.int64), np.zeros(size, np.bool_))

    @classmethod
    def of(cls, raw: Values) -> Words:
        """Raises ``RowError`` where a value is not eight bytes."""
        there = np.ones(len(raw), np.bool_)
        if not all(raw):
            there = np.fromiter((value is not None for value in raw), np.bool_, len(raw))
        words = [bytes(8) if value is None else value for value in raw]
        if not set(map(len, words)) <= {8}:  # each: a short and a long one add up, too
            raise RowError("A value of a state of 64-bit numbers is not eight bytes.")
        return cls(np.frombuffer(b"".join(words), "<i8").astype(np.int64), there)

    def take(self, at: npt.NDArray[Any]) -> Words:
        # In this order, `put` in the other: beside a writer no value is seen that never was.
        there = self.there[at]
        return Words(self.values[at], there)

    def put(self, at: Slots, new: Words) -> None:
        if new.there.all():
            self.values[at] = new.values
        else:  # a deleted value stays where it was: a reader may have seen that it is there
            self.values[at[new.there]] = new.values[new.there]
        self.there[at] = new.there

    def grown(self) -> Words:
        return Words(
            *(np.concatenate([one, np.zeros_like(one)]) for one in (self.values, self.there))
        )

    def raw(self) -> list[bytes | None]:
        found: list[bytes | None] = self.values.astype("<i8", copy=False).view("V8").tolist()
        if not self.there.all():
            return [v if t else None for v, t in zip(found, self.there.tolist(), strict=True)]
        return found

    def array(self, kind: pa.DataType) -> pa.Array:
        mask = None if self.there.all() else ~self.there
        return pa.array(self.values, pa.int64(), mask=mask).view(kind)

    @classmethod
    def from_array(cls, values: pa.Array) -> Words:
        there = np.ones(len(values), np.bool_)
        words = values.view(pa.int64())
        if values.null_count:
            there = values.is_valid().to_numpy(zero_copy_only=False)
            words = words.fill_null(0)
        return cls(words.to_numpy(), there)


class Era:
    """The time between two copies: for each slot that was written in it, what it held before."""

    __slots__ = ("before", "next", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.before: list[tuple[Slots, Words]] = []
        self.next: Era | None = None

    def after(self) -> Iterator[Era]:
        era = self.next
        while era is not None:
            yield era
            era = era.next


class Store:
    """Slots of keys, and what is there at present. Slot 0 is nobody's: there is never a value in it."""

    def __init__(self, size: int = 1024) -> None:
        self.slots: dict[bytes, int] = {}
        self.names: list[bytes] = [b""]
        self.words = Words.empty(size)
        self.stamps = np.zeros(size, np.int64)
        """The era in which a slot was last written."""
        self.era = Era(1)
        self.deletions = 0

    def find(self, keys: Keys) -> Slots:
        """0 where a key has none."""
        return np.fromiter(map(self.slots.get, keys, repeat(0)), np.int64, len(keys))

    def claim(self, keys: Keys) -> Slots:
        at = self.find(keys)
        if not at.all():
            for place in np.flatnonzero(at == 0).tolist():
                at[place] = self.slots.get(keys[place]) or self._new(keys[place])
        return at

    def write(self, at: Slots, new: Words) -> None:
        fresh = at[self.stamps[at] < self.era.number]
        if len(fresh):  # kept before it is overwritten: a reader of an older version looks later
            self.era.before.append((fresh, self.words.take(fresh)))
            self.stamps[fresh] = self.era.number
        self.words.put(at, new)
        if not new.there.all():
            self.deletions += len(at) - int(new.there.sum())

    def rebuilt(self) -> Store:
        """This, or where more than half of the slots are of deleted keys, one without them."""
        if 2 * self.deletions < max(len(self.names), SPARSE_MIN):
            return self
        alive = np.flatnonzero(self.words.there)
        self.deletions = len(self.names) - 1 - len(alive)
        if 2 * self.deletions < len(self.names):
            return self
        other = Store(2 * len(alive) + 1024)
        other.words.put(
            other.claim([self.names[slot] for slot in alive.tolist()]), self.words.take(alive)
        )
        return other

    def _new(self, key: bytes) -> int:
        slot = len(self.names)
        if slot == len(self.stamps):
            self.words = self.words.grown()
            self.stamps = np.concatenate([self.stamps, np.zeros_like(self.stamps)])
        self.names.append(key)
        self.slots[key] = slot  # last: from now on other threads find it
        return slot


@dataclass(frozen=True, slots=True)
class Version:
    """What was there at the end of an era. May be read by any thread.

    Args:
        count: so many slots there were.
    """

    store: Store
    era: Era
    count: int

    def words(self, at: Slots) -> Words:
        at = np.where(at < self.count, at, 0)
        found = self.store.words.take(at)
        kept = [before for era in self.era.after() for before in tuple(era.before)]
        if kept:
            position = np.full(self.count + 1, -1)
            position[at] = np.arange(len(at))
            for slots, before in reversed(kept):  # what was kept first is put back last
                here = position[np.minimum(slots, self.count)]
                mine = here >= 0
                found.put(here[mine], before.take(mine))
        return found

    def get_many(self, keys: Keys) -> list[bytes | None]:
        at, back = np.unique(self.store.find(keys), return_inverse=True)
        return self.words(at).take(back).raw()

    def names(self, at: Slots) -> list[bytes]:
        names = self.store.names
        return [names[slot] for slot in at.tolist()]


@dataclass(frozen=True, slots=True)
class Copy:
    """A table at the moment of a copy.

    Args:
        since: what the last completed checkpoint holds.
    """

    table: ColumnTable
    version: Version
    since: Version

    def whole(self) -> Entries:
        every = np.arange(1, self.version.count)
        words = self.version.words(every)
        return self._entries(every[words.there], words.take(words.there))

    def changes(self) -> Entries:
        version, since = self.version, self.since
        if version.store is not since.store:  # it was built anew: without those that were deleted
            every = np.arange(1, version.count)
            entries = self._entries(every, version.words(every))
            slots, count = version.store.slots, version.count
            names = since.store.names[1 : since.count]
            gone = [name for name in names if slots.get(name, count) >= count]
            return Entries(
                self.table.name,
                [*entries.keys, *gone],
                None,
                [*entries.values, *[None] * len(gone)],
            )
        written = [
            slots
            for era in since.era.after()
            if era.number <= version.era.number
            for slots, _ in era.before
        ]
        at = np.unique(np.concatenate([np.zeros(0, np.int64), *written]))
        return self._entries(at, version.words(at))

    def merge(self) -> None:
        """Its checkpoint has completed."""
        self.table.base = self.version

    def _entries(self, at: Slots, words: Words) -> Entries:
        return Entries(self.table.name, self.version.names(at), None, words.raw())


class ColumnTable(Table):
    """64-bit numbers by key. See ``Table``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = Store()
        self.base = self._close()
        """What the last completed checkpoint holds."""

    # One key at a time is what a function pays for each of its rows: no arrays, if it can be helped.

    def get(self, key: bytes) -> bytes | None:
        slot = self.store.slots.get(key)
        words = self.store.words
        if slot is None or not words.there.item(slot):
            return None
        return _WORD.pack(words.values.item(slot))

    def put(self, key: bytes, value: bytes | None) -> None:
        store = self.store
        slot = store.slots.get(key, 0)
        if value and len(value) == 8 and store.stamps.item(slot) == store.era.number:
            store.words.values[slot] = _WORD.unpack(value)[0]
            store.words.there[slot] = True
        else:
            self.put_many([key], [value])

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        store = self.store
        at = store.find(keys)
        return store.words.take(at).raw()

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        new = Words.of(values)
        self.store.write(self.store.claim(keys), new)

    def get_array(self, keys: Keys, codec: ArrayCodec[Any]) -> pa.Array:
        return self.store.words.take(self.store.find(keys)).array(codec.type)

    def put_array(self, keys: Keys, values: pa.Array, codec: ArrayCodec[Any]) -> None:
        self.store.write(self.store.claim(keys), Words.from_array(values))

    def fold_array(
        self, keys: Keys, codec: ArrayCodec[Any], fold: Callable[[pa.Array], pa.Array]
    ) -> pa.Array:
        at = self.store.claim(keys)  # once, for both ways
        folded = fold(self.store.words.take(at).array(codec.type))
        self.store.write(at, Words.from_array(folded))
        return folded

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        value = self.get(key)
        return [] if value is None else [(b"", value)]

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        names = self.store.names
        values = self.store.words.take(np.arange(len(names))).raw()
        for name, value in zip(names, values, strict=True):
            if value is not None:
                yield name, b"", value

    def load(self, names: Sequence[Any], values: Values) -> None:
        """Apply entries that are no change: restored ones."""
        self.put_many(names, values)
        self.base = self._close()

    def committed(self, keys: Keys) -> list[bytes | None]:
        """As of the last completed checkpoint. From any thread."""
        return self.base.get_many(keys)

    def freeze(self) -> Copy:
        """What is there now; may take as long as there are entries, where most of them are deleted."""
        self.store = self.store.rebuilt()
        return Copy(self, self._close(), self.base)

    def thaw(self) -> None:
        """Checkpoints have failed: nothing to do, the next copy has what changed since the base."""

    def _close(self) -> Version:
        store = self.store
        version = Version(store, store.era, len(store.names))
        store.era.next = store.era = Era(store.era.number + 1)
        return version
