"""A table of the heap for values of eight bytes: numbers in one array, not one object each.

A key has a *slot*; the present value is in an array by slot. A logical copy only begins a new
*era*: the first write to a slot in an era saves its previous value. An older version is the present
with the values saved by later eras put back, the oldest last (rollback segments, as in
multi-version concurrency control). So a copy costs the same for any number of entries, a write pays
once per slot and era, and a background thread reads a version while the subtask writes: the
previous value is saved before a write is visible.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from abs_core.errors import RowError
from abs_embedded.state.codecs import ArrayCodec
from abs_embedded.state.contracts import Keys, StateTable, Values
from abs_embedded.state.keygroups import key_groups
from abs_embedded.state.savepoint import Entries

Slots = npt.NDArray[np.int64]

MIN_SPARSE = 1024
"""A table with fewer deletions than this is not built anew."""
_WORD, _RAW = struct.Struct("<q"), pa.binary(8)


@dataclass(slots=True)
class Words:
    """Values of eight bytes by slot, and which of them exist."""

    values: npt.NDArray[np.int64]
    there: npt.NDArray[np.bool_]

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

    def raw(self) -> list[bytes | None]:
        values: list[bytes | None] = self.array(_RAW).cast(pa.binary()).to_pylist()
        return values

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


@dataclass(slots=True, eq=False)
class Era:
    """The time between two copies: the previous value of each slot that was written in it.

    Args:
        before: of writes of arrays.
        singles: of writes of one key: slot, value, whether it existed.
    """

    number: int
    before: list[tuple[Slots, Words]] = field(default_factory=list)
    singles: list[tuple[int, int, bool]] = field(default_factory=list)
    next: Era | None = None

    def kept(self) -> tuple[Slots, Words]:
        """All saved values; of one slot always the same."""
        slots, values, there = np.array(tuple(self.singles), np.int64).reshape(-1, 3).T
        parts = [(slots, Words(values, there.astype(np.bool_))), *self.before]
        return np.concatenate([slots for slots, _ in parts]), Words(
            np.concatenate([words.values for _, words in parts]),
            np.concatenate([words.there for _, words in parts]),
        )

    def after(self) -> Iterator[Era]:
        era = self.next
        while era is not None:
            yield era
            era = era.next


class Store:
    """Slots of keys, and their present values. Slot 0 is unused and never has a value."""

    def __init__(self, max_parallelism: int, size: int = 1024) -> None:
        self.max_parallelism = max_parallelism
        self.slots: dict[bytes, int] = {}
        self.names: list[bytes] = [b""]
        self.words = Words(np.zeros(size, np.int64), np.zeros(size, np.bool_))
        self.stamps = np.zeros(size, np.int64)
        """The era in which a slot was last written."""
        self.era = Era(1)
        self.deletions = 0
        self._named = self._in_arrow([])
        self._view()

    def find(self, keys: Keys) -> Slots:
        """The slots of keys; 0 for a key without one."""
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

    def rebuilt(self, since: Version) -> Store:
        """This, or if more than half of the slots are deleted keys', one without them.

        Keys of ``since``, or written since then, keep a slot: increments to it, and to later
        copies, have to say that they are gone.
        """
        count = len(self.names)
        if since.store is not self or 2 * self.deletions < max(count, MIN_SPARSE):
            return self
        self.deletions = count - 1 - int(self.words.there.sum())
        if 2 * self.deletions < count:
            return self
        needed = self.stamps[:count] > since.era.number
        needed[: since.count] |= since.words().there
        at = np.flatnonzero(needed)
        other = Store(self.max_parallelism, 2 * len(at) + 1024)
        other.write(other.claim([self.names[slot] for slot in at.tolist()]), self.words.take(at))
        return other

    def named(self, count: int) -> pa.RecordBatch:
        """The keys of the first slots, and their key groups. Thread-safe."""
        keys = self._named
        if keys.num_rows < count:
            new = self._in_arrow(self.names[keys.num_rows : count])
            keys = self._named = pa.concat_batches([keys, new])
        return keys.slice(0, count)

    def _in_arrow(self, keys: list[bytes]) -> pa.RecordBatch:
        array = pa.array(keys, pa.large_binary())
        groups = key_groups([array], self.max_parallelism).astype(np.uint16)
        return pa.record_batch([array, pa.array(groups)], names=["key", "group"])

    def _view(self) -> None:
        """Views for one slot at a time: half of the time that arrays take."""
        self.values = self.words.values.data
        self.there = self.words.there.data
        self.stamp = self.stamps.data

    def _new(self, key: bytes) -> int:
        slot = len(self.names)
        if slot + 1 == len(self.stamps):  # one is always left over: see ``Version.words``
            self.words = Words(_doubled(self.words.values), _doubled(self.words.there))
            self.stamps = _doubled(self.stamps)
            self._view()
        self.names.append(key)
        self.slots[key] = slot  # last: from now on other threads find it
        return slot


@dataclass(frozen=True, slots=True)
class Version:
    """The values at the end of an era, with ``count`` slots. Thread-safe."""

    store: Store
    era: Era
    count: int

    def words(self) -> Words:
        """The values of all slots."""
        count, now = self.count, self.store.words
        there = now.there[: count + 1].copy()  # in this order, see ``Words.take``
        words = Words(now.values[: count + 1].copy(), there)
        for era in reversed(list(self.era.after())):  # what was kept first is put back last
            slots, before = era.kept()
            words.put(np.minimum(slots, count), before)  # those of later keys to the last place
        return Words(words.values[:count], words.there[:count])

    def get_many(self, keys: Keys) -> list[bytes | None]:
        at = self.store.find(keys)
        return self.words().take(np.where(at < self.count, at, 0)).raw()


@dataclass(frozen=True, slots=True)
class Copy:
    """A table at the moment of a copy; ``since`` is the last completed checkpoint's version."""

    table: ColumnTable
    version: Version
    since: Version

    def whole(self) -> Entries:
        words = self.version.words()
        return self._entries(np.flatnonzero(words.there), words)

    def changes(self) -> Entries:
        version, since = self.version, self.since
        if version.store is not since.store:  # it was built anew
            return self._entries(np.arange(1, version.count), version.words())
        written = np.zeros(version.count, np.bool_)
        for era in since.era.after():
            if era.number <= version.era.number:
                written[era.kept()[0]] = True
        return self._entries(np.flatnonzero(written), version.words())

    def merge(self) -> None:
        """Its checkpoint has completed."""
        self.table.base = self.version

    def _entries(self, at: Slots, words: Words) -> Entries:
        named = self.version.store.named(self.version.count).take(pa.array(at))
        values = words.take(at).array(_RAW)
        return Entries(self.table.name, named["key"], None, values, named["group"])


class ColumnTable(StateTable):
    """64-bit numbers by key. See ``StateTable``."""

    def __init__(self, name: str, max_parallelism: int) -> None:
        self.name = name
        self.store = Store(max_parallelism)
        self.base = self._close()
        """What the last completed checkpoint holds."""

    # One key at a time is what a function pays for each of its rows: no arrays, if it can be helped.

    def get(self, key: bytes) -> bytes | None:
        store = self.store
        slot = store.slots.get(key, 0)
        return _WORD.pack(store.values[slot]) if store.there[slot] else None

    def put(self, key: bytes, value: bytes | None) -> None:
        store = self.store
        slot = store.slots.get(key)
        if slot is None or value is None or len(value) != 8:
            self.put_many([key], [value])
            return
        era = store.era
        if store.stamp[slot] != era.number:
            era.singles.append((slot, store.values[slot], bool(store.there[slot])))
            store.stamp[slot] = era.number
        store.values[slot] = _WORD.unpack(value)[0]
        store.there[slot] = True

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        # From any thread: a slot is of this store, and its words are looked up after it.
        store = self.store
        at = store.find(keys)
        return store.words.take(at).raw()

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        try:
            new = Words.from_array(pa.array(values, _RAW))
        except pa.ArrowInvalid as error:
            raise RowError("A value of a state of 64-bit numbers is not eight bytes.") from error
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

    def load(self, entries: Entries) -> None:
        """Load restored entries, which are no change."""
        self.put_many(entries.keys, entries.values)
        self.base = self._close()

    def committed(self, keys: Keys) -> list[bytes | None]:
        """Values as of the last completed checkpoint. Thread-safe."""
        return self.base.get_many(keys)

    def freeze(self) -> Copy:
        """Take a copy; linear in the entries if most of them are deleted."""
        self.store = self.store.rebuilt(self.base)
        return Copy(self, self._close(), self.base)

    def thaw(self) -> None:
        """Merge the eras since the base, whose versions nobody asks for any more.

        Of each slot only the value that the oldest era saved is needed, so that failed checkpoints
        do not add up. Readers of the base go on with the old eras, which nobody changes.
        """
        store, base = self.store, self.base
        if base.store is not store:
            return  # no version leads to the eras of a store that was built anew
        kept = [era.kept() for era in base.era.after()]
        slots, first = np.unique(np.concatenate([at for at, _ in kept]), return_index=True)
        values = np.concatenate([words.values for _, words in kept])[first]
        there = np.concatenate([words.there for _, words in kept])[first]
        merged = Era(store.era.number, [(slots, Words(values, there))])
        store.stamps[slots] = merged.number  # or the next write would save a newer value
        base.era.next = store.era = merged

    def _close(self) -> Version:
        store = self.store
        version = Version(store, store.era, len(store.names))
        store.era.next = store.era = Era(store.era.number + 1)
        return version


def _doubled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)])
