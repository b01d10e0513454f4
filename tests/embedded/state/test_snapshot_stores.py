"""The local snapshot store keeps the contract; a writer that is killed leaves nothing half-written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.errors import CorruptionError, RefusedError
from abs_embedded.state import local_store
from abs_embedded.state.contracts import SnapshotStore
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.retention import sweep
from abs_embedded.testing.check_snapshot_store import check_snapshot_store
from tests.planted import planted

from .conftest import Change, damage


def damage_record(store: SnapshotStore, checkpoint: int, change: Change) -> None:
    assert isinstance(store, LocalSnapshotStore)
    assert change is not None
    path = store.folder / "complete" / f"{checkpoint}.record"
    path.write_bytes(change(path.read_bytes()))


def test_a_local_store_keeps_the_contract(new_store: Callable[[], LocalSnapshotStore]) -> None:
    assert len(check_snapshot_store(new_store, damage, damage_record)) == 8


def test_a_store_that_forgets_to_check_is_caught(
    new_store: Callable[[], LocalSnapshotStore],
) -> None:
    checks_nothing = (local_store, "checked", lambda ref, content: content or b"")
    with planted(checks_nothing, match="CorruptionError was not raised"):
        check_snapshot_store(new_store, damage, damage_record)


def test_a_store_that_renames_its_record_over_another_is_caught(
    new_store: Callable[[], LocalSnapshotStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(AssertionError, match="a record is written once"):
        check_snapshot_store(new_store, damage, damage_record)


def test_a_blob_that_was_cut_off_is_swept_and_never_read(
    new_store: Callable[[], LocalSnapshotStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()

    def die(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        (store.folder / "blobs/1/op.0").mkdir(parents=True)
        with pytest.raises(KeyboardInterrupt):
            store.put("1/op.0/a", b"a")
    (left,) = store.blobs()
    assert left.startswith("1/op.0/a.")
    store.complete(1, b"", [])
    assert sweep(store, lambda _: ()) == [left]
    assert not store.blobs()


def test_a_sweep_never_touches_what_is_newer_than_the_newest_record(
    new_store: Callable[[], LocalSnapshotStore],
) -> None:
    store = new_store()
    for n in range(1, 5):
        store.put(f"{n}/op.0/a", b"a")
    assert sweep(store, lambda _: ()) == [], "nothing is completed: all may be in flight"
    store.complete(2, b"", [])
    store.complete(3, b"2/op.0/a", [])
    assert sweep(store, lambda record: record.decode().split(), keep=1) == ["1/op.0/a", "3/op.0/a"]
    assert store.completed() == [3]
    assert store.blobs() == ["2/op.0/a", "4/op.0/a"]


def test_a_sweep_leaves_no_empty_folders(new_store: Callable[[], LocalSnapshotStore]) -> None:
    store = new_store()
    for key in ("1/a", "1/op.0/a", "1/op.0/b", "1/op.1/deep/a", "2/a", "2/op.0/a"):
        store.put(key, b"a")
    store.complete(2, b"2/a", [])
    sweep(store, lambda record: record.decode().split())
    assert [path.name for path in (store.folder / "blobs").iterdir()] == ["2"]
    assert [path.name for path in (store.folder / "blobs/2").iterdir()] == ["a"]
    store.delete(["2/a"])
    assert store.put("2/a", b"a").key in store.blobs()


def test_a_sweep_over_a_damaged_record_deletes_nothing(
    new_store: Callable[[], LocalSnapshotStore],
) -> None:
    store = new_store()
    store.put("1/op.0/a", b"a")
    store.complete(1, b"1/op.0/a", [])
    damage_record(store, 1, lambda content: content[:-1])
    with pytest.raises(CorruptionError):
        sweep(store, lambda record: record.decode().split())
    assert store.blobs() == ["1/op.0/a"]


def test_a_folder_that_cannot_be_used_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match="Not a directory"):
        LocalSnapshotStore(tmp_path / "file").put("1/op.0/a", b"")
    monkeypatch.setattr(os, "fsync", forbid)
    with pytest.raises(RefusedError, match="not permitted"):
        LocalSnapshotStore(tmp_path / "folder").put("1/op.0/a", b"")
