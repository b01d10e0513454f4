"""The contract check of state backends catches each planted bug, by the rule that it breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import ConfigError, CorruptionError
from abs_embedded.state import heap, local_store, savepoint
from abs_embedded.state.columns import ColumnTable, Copy, Era, Slots, Store, Version, Words
from abs_embedded.state.contracts import SnapshotStore, StateHandle, Values
from abs_embedded.state.contracts import Version as Which
from abs_embedded.state.heap import Base, Frozen, HeapBackend, HeapSnapshot, HeapTable, Layer
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.shapes import Shaped
from abs_embedded.testing import check_failures as failures
from abs_embedded.testing import check_queries as queries
from abs_embedded.testing import check_state as rules
from abs_embedded.testing.check_queries import one_query_reads_one_checkpoint
from abs_embedded.testing.check_state import Rule, check_state
from abs_embedded.testing.state_case import StateSubject
from tests.planted import Bug, Plant, planted

from .conftest import damage


def the_copy_is_the_live_state(plant: Plant) -> None:
    """The frozen layer stays the open one."""

    def freeze(self: HeapTable) -> Frozen:
        self.layers = (self.layers[0], *self.layers)
        return Frozen(self, self.layers[:-2])

    plant(HeapTable, "freeze", freeze)


def values_are_looked_up_when_persisted(plant: Plant) -> None:
    """The copy holds the names of what changed, and not the values."""
    entries = heap._entries

    def late(table: HeapTable, layer: Layer) -> savepoint.Entries:
        found = entries(table, layer)
        return replace(found, values=table.get_many(found.keys, found.subs))

    plant(heap, "_entries", late)


def older_layers_win(plant: Plant) -> None:
    joined = heap.joined
    plant(heap, "joined", lambda layers: joined([*reversed(layers)]))


def increments_without_deletions(plant: Plant) -> None:
    entries = heap._entries
    plant(
        heap,
        "_entries",
        lambda table, layer: entries(table, {k: v for k, v in layer.items() if v is not None}),
    )


def a_failed_checkpoint_is_forgotten(plant: Plant) -> None:
    """What was frozen for it goes with it."""

    def thaw(self: HeapTable) -> None:
        self.layers = (self.layers[0], self.base)

    plant(HeapTable, "thaw", thaw)


def increments_to_the_last_copy(plant: Plant) -> None:
    """An increment holds what changed since the last copy, completed or not."""
    plant(HeapTable, "thaw", lambda self: None)

    plant(Frozen, "changes", lambda self: heap._entries(self.table, self.layers[0]))


def deletions_are_not_merged(plant: Plant) -> None:
    def settle(self: HeapTable, layer: Layer) -> None:
        self.base.update({k: v for k, v in layer.items() if v is not None})

    plant(HeapTable, "settle", settle)


def the_base_is_forgotten(plant: Plant) -> None:
    """The handle of an increment names the increment only."""
    plant(Base, "of", lambda handle: Base((), 0))


def key_groups_are_ignored(plant: Plant) -> None:
    """Each subtask restores all there is."""
    read = savepoint.read
    plant(heap, "read", lambda store, blobs, _: read(store, blobs, GroupRange(0, 1 << 15)))


def keys_of_others_are_kept(plant: Plant) -> None:
    plant(GroupRange, "check", lambda self, groups: None)


def half_of_the_key_groups_is_left_out(plant: Plant) -> None:
    read = savepoint.read
    plant(heap, "read", lambda s, b, groups: read(s, b, GroupRange(groups.start, groups.stop - 1)))


def only_one_handle_is_restored(plant: Plant) -> None:
    plant(heap, "overlapping", lambda handles, *_: list(handles)[:1])


def unclaimed_state_is_dropped(plant: Plant) -> None:
    tables, table = HeapBackend.tables, HeapBackend.table

    def asked(self: HeapBackend, name: str, shape: str) -> HeapTable | ColumnTable:
        self.__dict__.setdefault("asked", set()).add(name)
        return table(self, name, shape)

    def claimed(self: HeapBackend) -> list[HeapTable | ColumnTable]:
        return [t for t in tables(self) if t.name in self.__dict__.get("asked", ())]

    plant(HeapBackend, "table", asked)
    plant(HeapBackend, "tables", claimed)


def a_dropped_state_stays_in_the_base(plant: Plant) -> None:
    drop = HeapBackend.drop

    def careless(self: HeapBackend, name: str) -> None:
        base = self._base
        drop(self, name)
        self._base = base

    plant(HeapBackend, "drop", careless)


def a_restored_savepoint_is_a_base(plant: Plant) -> None:
    """A checkpoint names blobs that lie in another store."""
    restore = HeapBackend.restore

    def careless(
        self: HeapBackend, handles: Sequence[StateHandle], source: SnapshotStore | None = None
    ) -> None:
        restore(self, handles, source)
        self._base = Base.of(handles[0])

    plant(HeapBackend, "restore", careless)


def blobs_are_not_checked(plant: Plant) -> None:
    plant(local_store, "checked", lambda ref, content: content or b"")


def committed_is_live(plant: Plant) -> None:
    read = HeapBackend.read
    plant(HeapBackend, "read", lambda self, name, keys, _: read(self, name, keys, Which.LIVE))


def committed_is_the_last_copy(plant: Plant) -> None:
    snapshot = HeapBackend.snapshot

    def early(self: HeapBackend, checkpoint: int) -> HeapSnapshot:
        taken = snapshot(self, checkpoint)
        for part in taken.parts:
            if isinstance(part, Frozen):
                part.table.base.update(part.layers[0])
        return taken

    plant(HeapBackend, "snapshot", early)


def sub_keys_outlive_their_entries(plant: Plant) -> None:
    def items(self: HeapTable, key: bytes) -> list[tuple[bytes, bytes]]:
        return [(s, self.get_many([key], [s])[0] or b"") for s in sorted(self._subs.get(key, ()))]

    def index(self: HeapTable, names: Sequence[tuple[bytes, bytes]], values: Values) -> None:
        for key, sub in names:
            self._subs.setdefault(key, set()).add(sub)

    plant(HeapTable, "items", items)
    plant(HeapTable, "_index", index)


def shapes_are_not_compared(plant: Plant) -> None:
    def declare(self: Any, name: str, shape: str) -> None:
        self._shapes[name] = shape

    plant(Shaped, "declare", declare)


def empty_is_absent(plant: Plant) -> None:
    get_many = HeapTable.get_many
    plant(HeapTable, "get_many", lambda *given: [value or None for value in get_many(*given)])


# In columns


def overwritten_values_are_not_kept(plant: Plant) -> None:
    def write(self: Store, at: Slots, new: Words) -> None:
        fresh = at[self.stamps[at] < self.era.number]
        self.era.before.append((fresh[:0], self.words.take(fresh[:0])))
        self.stamps[fresh] = self.era.number
        self.words.put(at, new)

    plant(Store, "write", write)


def single_values_are_not_kept(plant: Plant) -> None:
    """A write of one key by itself keeps nothing of what it overwrites."""

    def put(self: ColumnTable, key: bytes, value: bytes | None) -> None:
        self.store.words.put(
            self.store.claim([key]), Words.from_array(pa.array([value], pa.binary(8)))
        )

    plant(ColumnTable, "put", put)


def values_are_kept_after_they_are_overwritten(plant: Plant) -> None:
    write = Store.write

    def late(self: Store, at: Slots, new: Words) -> None:
        self.words.put(at, new)
        write(self, at, new)

    plant(Store, "write", late)


def later_eras_are_put_back_last(plant: Plant) -> None:
    after = Era.after
    plant(Era, "after", lambda self: reversed(list(after(self))))


def an_era_has_no_end(plant: Plant) -> None:
    def close(self: ColumnTable) -> Version:
        return Version(self.store, self.store.era, len(self.store.names))

    plant(ColumnTable, "_close", close)


def changes_of_a_column_are_those_since_the_last_copy(plant: Plant) -> None:
    freeze = ColumnTable.freeze

    def newest(self: ColumnTable) -> Copy:
        copy = freeze(self)
        self.__dict__["last"], since = copy.version, self.__dict__.get("last", copy.since)
        return replace(copy, since=since)

    plant(ColumnTable, "freeze", newest)


def deleted_numbers_are_still_there(plant: Plant) -> None:
    put = Words.put

    def only_new(self: Words, at: Slots, new: Words) -> None:
        put(self, at[new.there], new.take(new.there))

    plant(Words, "put", only_new)


def committed_numbers_are_the_present_ones(plant: Plant) -> None:
    plant(ColumnTable, "committed", ColumnTable.get_many)


CAUGHT_IN_COLUMNS: dict[Bug, Rule] = {
    overwritten_values_are_not_kept: rules.a_copy_is_not_changed_by_later_writes,
    single_values_are_not_kept: failures.a_failed_checkpoint_is_part_of_the_next,
    values_are_kept_after_they_are_overwritten: rules.a_copy_is_not_changed_by_later_writes,
    later_eras_are_put_back_last: queries.a_query_tells_live_from_committed,
    an_era_has_no_end: rules.a_copy_is_not_changed_by_later_writes,
    changes_of_a_column_are_those_since_the_last_copy: failures.a_failed_checkpoint_is_part_of_the_next,
    deleted_numbers_are_still_there: rules.what_is_put_is_got,
    committed_numbers_are_the_present_ones: queries.a_query_tells_live_from_committed,
}


def nobody_says_moving(plant: Plant) -> None:
    """The old number is told until the merge is over."""
    merging = HeapBackend.notify_complete

    def hidden(self: Any) -> int:
        told: int = self.told
        return told

    def tell(self: Any, number: int | None) -> None:
        self.told = self.told if number is None else number

    def slow(self: HeapBackend, checkpoint: int) -> None:
        for snapshot in (self._pending[checkpoint],):
            for part in snapshot.parts:
                part.merge()
            time.sleep(0.02)
        merging(replaced(self, checkpoint), checkpoint)

    def replaced(self: HeapBackend, checkpoint: int) -> HeapBackend:
        self._pending[checkpoint].parts.clear()
        return self

    plant(HeapBackend, "committed", property(hidden, tell))
    plant(HeapBackend, "notify_complete", slow)


def the_committed_number_stays(plant: Plant) -> None:
    plant(HeapBackend, "committed", property(lambda self: 1, lambda self, n: None))


CAUGHT: dict[Bug, Rule] = {
    the_copy_is_the_live_state: rules.a_copy_is_not_changed_by_later_writes,
    values_are_looked_up_when_persisted: rules.a_copy_is_not_changed_while_it_is_persisted,
    older_layers_win: rules.increments_add_up_to_the_whole,
    increments_without_deletions: rules.increments_add_up_to_the_whole,
    a_failed_checkpoint_is_forgotten: failures.a_failed_checkpoint_is_part_of_the_next,
    increments_to_the_last_copy: failures.a_failed_checkpoint_is_part_of_the_next,
    deletions_are_not_merged: rules.increments_add_up_to_the_whole,
    the_base_is_forgotten: rules.increments_add_up_to_the_whole,
    key_groups_are_ignored: rules.each_key_is_kept_once_over_a_rescale,
    keys_of_others_are_kept: rules.a_key_of_another_subtask_is_refused,
    half_of_the_key_groups_is_left_out: rules.what_was_restored_is_what_was_saved,
    only_one_handle_is_restored: rules.each_key_is_kept_once_over_a_rescale,
    unclaimed_state_is_dropped: rules.a_state_that_nobody_asks_for_is_carried_along,
    a_dropped_state_stays_in_the_base: rules.a_state_that_nobody_asks_for_can_be_dropped,
    a_restored_savepoint_is_a_base: rules.a_savepoint_can_be_read_by_every_backend,
    blobs_are_not_checked: failures.damage_is_named,
    committed_is_live: queries.a_query_tells_live_from_committed,
    committed_is_the_last_copy: queries.a_query_tells_live_from_committed,
    sub_keys_outlive_their_entries: rules.what_is_put_is_got,
    shapes_are_not_compared: rules.a_state_is_refused_under_another_shape,
    empty_is_absent: rules.what_is_put_is_got,
    nobody_says_moving: one_query_reads_one_checkpoint,
    the_committed_number_stays: one_query_reads_one_checkpoint,
}


@pytest.mark.parametrize(
    ("bug", "flat"),
    [
        *((bug, "value:bytes") for bug in CAUGHT),
        *((bug, "value:int64") for bug in CAUGHT_IN_COLUMNS),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_check_catches(
    bug: Bug,
    flat: str,
    new_store: Callable[[], LocalSnapshotStore],
) -> None:
    subject = StateSubject(HeapBackend, new_store, damage, flat=flat)
    rule = {**CAUGHT, **CAUGHT_IN_COLUMNS}[bug]
    check_state(subject, [rule])
    with planted(bug, by=(AssertionError, ConfigError, CorruptionError, KeyError)):
        check_state(subject, [rule])
