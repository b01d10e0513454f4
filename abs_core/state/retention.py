"""Which snapshots are kept, and which blobs nobody can ask for any more.

Increments share blobs, so a blob goes only once no kept record names it. What a failed checkpoint, or a
process that died between its blobs and its record, left behind is found by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from abs_core.state.contracts import SnapshotStore


def sweep(
    store: SnapshotStore, blobs_of: Callable[[bytes], Iterable[str]], keep: int = 2
) -> list[str]:
    """Retire all but the newest ``keep`` checkpoints; delete the blobs that none of these names.

    A blob of a checkpoint that is newer than the newest completed one is never touched: it may be in
    flight. A snapshot in flight may build on an older checkpoint than the newest one: keep one more
    than may be in flight at once. (Where it was too few, ``complete`` refuses the snapshot.)

    Args:
        blobs_of: the keys that a completion record names.
        keep: at least 1.

    Returns:
        the keys that were deleted.

    Raises:
        CorruptionError: the record of a kept checkpoint is damaged; nothing was deleted.
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
