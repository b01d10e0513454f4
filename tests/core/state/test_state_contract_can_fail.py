"""The contract check of state backends catches each planted bug, by the rule that it breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from abs_core.errors import CorruptionError
from abs_core.state import heap, savepoint
from abs_core.state.contracts import SnapshotStore, StateHandle, Version
from abs_core.state.heap import Base, HeapBackend, HeapSnapshot, HeapTable, Interval
from abs_core.state.keygroups import GroupRange
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.testing import check_state as rules
from abs_core.testing.check_state import Rule, check_state
from abs_core.testing.state_case import StateSubject

from .conftest import damage


def no_undo(patch: pytest.MonkeyPatch) -> None:
    """The copy is the live state."""
    patch.setattr(HeapTable, "at", lambda self, keys, after: self.get_many(keys))


def undo_of_the_last_write(patch: pytest.MonkeyPatch) -> None:
    """The undo is kept at each write, not at the first of an interval."""
    write = HeapTable.write

    def again(self: HeapTable, keys: Sequence[Any], values: Sequence[bytes | None]) -> None:
        for key in keys:
            self._old.pop(key, None)
        write(self, keys, values)

    patch.setattr(HeapTable, "write", again)


def undo_after_the_write(patch: pytest.MonkeyPatch) -> None:
    """The entry changes before its old value is kept."""

    def late(self: HeapTable, keys: Sequence[Any], values: Sequence[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            old = self.live.get(key)
            self.load([key], [value])
            threading.Event().wait(0.0001)  # a reader comes between
            self._old.setdefault(key, old)

    patch.setattr(HeapTable, "write", late)


def increments_without_deletions(patch: pytest.MonkeyPatch) -> None:
    entries = HeapSnapshot._entries
    patch.setattr(
        HeapSnapshot,
        "_entries",
        lambda self, table, keys, *, deletions: entries(self, table, keys, deletions=False),
    )


def increments_to_the_last_copy(patch: pytest.MonkeyPatch) -> None:
    """An increment holds what changed since the last copy, completed or not."""
    changes = HeapSnapshot._changes

    def last(self: HeapSnapshot, since: Interval) -> Iterator[savepoint.Entries]:
        *_, newest = since.until(self.after)
        return changes(self, newest)

    patch.setattr(HeapSnapshot, "_changes", last)


def the_base_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The handle of an increment names the increment only."""
    write = HeapSnapshot._write
    patch.setattr(HeapSnapshot, "_write", lambda s, store, _, e: write(s, store, Base(), e))


def key_groups_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Each subtask restores all there is."""
    read = savepoint.read
    patch.setattr(heap, "read", lambda store, blobs, _: read(store, blobs, GroupRange(0, 1 << 15)))


def half_of_the_key_groups_is_left_out(patch: pytest.MonkeyPatch) -> None:
    read = savepoint.read
    patch.setattr(
        heap, "read", lambda s, b, groups: read(s, b, GroupRange(groups.start, groups.stop - 1))
    )


def only_one_handle_is_restored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heap, "overlapping", lambda handles, *_: list(handles)[:1])


def unclaimed_state_is_dropped(patch: pytest.MonkeyPatch) -> None:
    tables, table = HeapBackend.tables, HeapBackend.table

    def asked(self: HeapBackend, name: str, shape: str) -> HeapTable:
        self.__dict__.setdefault("asked", set()).add(name)
        return table(self, name, shape)

    def claimed(self: HeapBackend) -> list[HeapTable]:
        return [t for t in tables(self) if t.name in self.__dict__.get("asked", ())]

    patch.setattr(HeapBackend, "table", asked)
    patch.setattr(HeapBackend, "tables", claimed)


def a_restored_savepoint_is_a_base(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint names blobs that lie in another store."""
    restore = HeapBackend.restore

    def careless(
        self: HeapBackend, handles: Sequence[StateHandle], source: SnapshotStore | None = None
    ) -> None:
        restore(self, handles, source)
        self._base = Base.of(handles[0])

    patch.setattr(HeapBackend, "restore", careless)


def blobs_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("abs_core.state.local_store.checked", lambda ref, content: content or b"")


def committed_is_live(patch: pytest.MonkeyPatch) -> None:
    read = HeapBackend.read
    patch.setattr(
        HeapBackend, "read", lambda self, name, keys, _: read(self, name, keys, Version.LIVE)
    )


def committed_is_the_last_copy(patch: pytest.MonkeyPatch) -> None:
    snapshot = HeapBackend.snapshot

    def early(self: HeapBackend, checkpoint: int) -> HeapSnapshot:
        taken = snapshot(self, checkpoint)
        self._committed = taken.after
        return taken

    patch.setattr(HeapBackend, "snapshot", early)


def sub_keys_outlive_their_entries(patch: pytest.MonkeyPatch) -> None:
    def items(self: HeapTable, key: bytes) -> list[tuple[bytes, bytes]]:
        return [(s, self.live.get((key, s), b"")) for s in sorted(self._subs.get(key, ()))]

    def index(self: HeapTable, names: Sequence[tuple[bytes, bytes]]) -> None:
        for key, sub in names:
            self._subs.setdefault(key, set()).add(sub)

    patch.setattr(HeapTable, "items", items)
    patch.setattr(HeapTable, "_index", index)


def shapes_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def declare(self: Any, name: str, shape: str) -> None:
        self._shapes[name] = shape

    patch.setattr("abs_core.state.shapes.Shapes.declare", declare)


def empty_is_absent(patch: pytest.MonkeyPatch) -> None:
    get_many = HeapTable.get_many
    patch.setattr(
        HeapTable, "get_many", lambda *given: [value or None for value in get_many(*given)]
    )


CAUGHT: dict[Callable[[pytest.MonkeyPatch], None], Rule] = {
    no_undo: rules.a_copy_is_not_changed_by_later_writes,
    undo_of_the_last_write: rules.a_copy_is_not_changed_by_later_writes,
    undo_after_the_write: rules.a_copy_is_not_changed_while_it_is_persisted,
    increments_without_deletions: rules.increments_add_up_to_the_whole,
    increments_to_the_last_copy: rules.a_failed_checkpoint_is_part_of_the_next,
    the_base_is_forgotten: rules.increments_add_up_to_the_whole,
    key_groups_are_ignored: rules.each_key_is_kept_once_over_a_rescale,
    half_of_the_key_groups_is_left_out: rules.what_was_restored_is_what_was_saved,
    only_one_handle_is_restored: rules.each_key_is_kept_once_over_a_rescale,
    unclaimed_state_is_dropped: rules.a_state_that_nobody_asks_for_is_carried_along,
    a_restored_savepoint_is_a_base: rules.a_savepoint_can_be_read_by_every_backend,
    blobs_are_not_checked: rules.damage_is_named,
    committed_is_live: rules.a_query_tells_live_from_committed,
    committed_is_the_last_copy: rules.a_query_tells_live_from_committed,
    sub_keys_outlive_their_entries: rules.what_is_put_is_got,
    shapes_are_not_compared: rules.a_state_is_refused_under_another_shape,
    empty_is_absent: rules.what_is_put_is_got,
}


@pytest.mark.parametrize("bug", CAUGHT, ids=lambda bug: bug.__name__)
def test_the_check_catches(
    bug: Callable[[pytest.MonkeyPatch], None],
    new_store: Callable[[], LocalSnapshotStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = StateSubject(HeapBackend, new_store, damage)
    rule = CAUGHT[bug]
    check_state(subject, [rule])
    bug(monkeypatch)
    with pytest.raises((AssertionError, CorruptionError)):
        check_state(subject, [rule])
