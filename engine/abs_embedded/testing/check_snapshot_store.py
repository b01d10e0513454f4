"""Checks a snapshot store: content or an error that names its damage; each record once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from abs_core.errors import CorruptionError, ProtocolError
from abs_embedded.state.contracts import BlobRef, SnapshotStore
from abs_testing.case import check_all, raises

Change = Callable[[bytes], bytes] | None
Damage = Callable[[SnapshotStore, str, Change], None]
RECORD = b'{"any": "bytes"}\n\x00\xff'


def check_snapshot_store(
    new_store: Callable[[], SnapshotStore], damage: Damage, damage_record: Callable[..., None]
) -> list[str]:
    """Run every rule on an empty store; returns the rules' names.

    Raises AssertionError with the name of a broken rule.

    Args:
        damage: changes or deletes a blob directly: (store, key, change or None).
        damage_record: the same for a completion record: (store, checkpoint, change or None).
    """
    return check_all(
        {
            "what is put comes back": lambda: _round_trip(new_store()),
            "deletion is told and can be repeated": lambda: _delete(new_store()),
            "damage of a blob is named": lambda: _damaged_blob(new_store(), damage),
            "a record is written once": lambda: _once(new_store()),
            "of two records one wins": lambda: _race(new_store()),
            "a record never names a blob that is not there": lambda: _missing(new_store(), damage),
            "damage of a record is named": lambda: _damaged_record(new_store(), damage_record),
            "a retired checkpoint is gone": lambda: _retire(new_store()),
        }
    )


def _round_trip(store: SnapshotStore) -> None:
    assert list(store.blobs()) == [], "a new store has blobs"
    contents = {
        "1/op.0/a": b"",
        "1/op.0/b.arrow": b"x" * 300_000,
        "12/op-x.1/c_=": bytes(range(256)),
    }
    refs = {key: store.put(key, content) for key, content in contents.items()}
    for key, content in contents.items():
        assert store.put(key, content) == refs[key], "the same content has another reference"
        assert refs[key].key == key
        assert refs[key].size == len(content)
        assert store.get(refs[key]) == content, f"{key} came back as something else"
    assert list(store.blobs()) == sorted(contents), "blobs() does not list what there is"
    raises(ProtocolError, lambda: store.put("../1/x", b""))
    raises(ProtocolError, lambda: store.put("x/y", b""))


def _delete(store: SnapshotStore) -> None:
    ref, kept = store.put("1/op.0/a", b"a"), store.put("1/op.0/b", b"b")
    for _ in range(2):
        store.delete([ref.key, "9/op.0/never"])
    assert ref.key in str(raises(CorruptionError, lambda: store.get(ref)))
    assert store.get(kept) == b"b", "another blob was deleted, too"
    assert list(store.blobs()) == [kept.key]


def _damaged_blob(store: SnapshotStore, damage: Damage) -> None:
    ref = store.put("3/op.0/a", b"0123456789")
    changes: list[Change] = [lambda c: c[:-1], lambda c: c + b"x", lambda c: b"X" + c[1:], None]
    for change in changes:
        damage(store, ref.key, change)
        error = raises(CorruptionError, lambda: store.get(ref))
        assert ref.key in str(error), f"the error does not name the blob: {error}"
        store.put(ref.key, b"0123456789")
    assert store.get(ref) == b"0123456789"


def _once(store: SnapshotStore) -> None:
    assert list(store.completed()) == [], "a new store has records"
    blob = store.put("7/op.0/a", b"a")
    for _ in range(2):  # a reply was lost: the same record again is no error
        store.complete(7, RECORD, [blob])
    raises(ProtocolError, lambda: store.complete(7, b"another", []))
    assert store.record(7) == RECORD, "the record came back as something else"
    store.complete(10, b"", [])
    store.complete(9, b"", [])
    assert list(store.completed()) == [7, 9, 10], "completed() does not list what there is"
    assert list(store.blobs()) == [blob.key], "a record counts as a blob"


def _race(store: SnapshotStore) -> None:
    def complete(n: int) -> bool:
        try:
            store.complete(1, b"record %d" % n, [])
        except ProtocolError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = [n for n, done in enumerate(pool.map(complete, range(6))) if done]
    assert len(won) == 1, f"{len(won)} of 6 different records were written"
    assert store.record(1) == b"record %d" % won[0], "the record is not the winner's"


def _missing(store: SnapshotStore, damage: Damage) -> None:
    there, gone = store.put("1/op.0/a", b"a"), store.put("1/op.0/b", b"b")
    damage(store, gone.key, None)
    shorter = replace(there, size=2)
    for refs in ([there, gone], [shorter], [BlobRef("5/op.0/never", 1, "xxh3_128:0")]):
        raises(CorruptionError, lambda refs=refs: store.complete(2, RECORD, refs))  # type: ignore[misc]
    assert list(store.completed()) == [], "a record was written that names what is not there"


def _damaged_record(store: SnapshotStore, damage_record: Callable[..., None]) -> None:
    store.complete(4, RECORD, [])
    for change in (lambda c: c[:-1], lambda c: b"", lambda c: c.replace(b"any", b"ANY")):
        store.retire(4)
        store.complete(4, RECORD, [])
        damage_record(store, 4, change)
        assert "4" in str(raises(CorruptionError, lambda: store.record(4)))
    raises(CorruptionError, lambda: store.record(5))


def _retire(store: SnapshotStore) -> None:
    blob = store.put("1/op.0/a", b"a")
    store.complete(1, RECORD, [blob])
    for _ in range(2):
        store.retire(1)
    assert list(store.completed()) == [], "a retired checkpoint is listed"
    assert store.get(blob) == b"a", "its blob went with it"
