"""Retention of snapshots, and deletion of unreferenced blobs.

Increments share blobs, so a blob is deleted only once no kept record names it. Remains of a failed
checkpoint, or of a process that died before its record, are found by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from abs_embedded.state.contracts import SnapshotStore


def sweep(
    store: SnapshotStore, blobs_of: Callable[[bytes], Iterable[str]], keep: int = 2
) -> list[str]:
    """Retire all but the newest ``keep`` (at least 1) checkpoints; delete and return unnamed blobs.

    A blob of a checkpoint newer than the newest completed one is never touched: it may be in
    flight. A snapshot in flight may build on an older checkpoint: keep one more than may be in
    flight at once. (With too few, ``complete`` refuses the snapshot.) ``blobs_of`` has the keys
    that a record names. Raises CorruptionError, without deleting, if a kept record is damaged.
    """
    completed = store.completed()
    kept = completed[-max(1, keep) :]
    if not kept:
        return []
    named = {key for checkpoint in kept for key in blobs_of(store.record(checkpoint))}
    for checkpoint in completed[: -len(kept)]:
        store.retire(checkpoint)
    dead = [key for key in store.blobs() if key not in named and _number(key) <= kept[-1]]
    store.delete(dead)
    return dead


def _number(key: str) -> int:
    return int(key.partition("/")[0])
