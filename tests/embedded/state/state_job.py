"""A process that takes checkpoints until it is killed; says each number once it is completed.

Every key holds the number of the checkpoint that it is part of, so a torn restore shows.
Arguments: backend (heap, rocksdb), folder of the store, folder for RocksDB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from abs_embedded.state.contracts import NewBackend, StateBackend, StateHandle, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, encode_key
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.retention import sweep
from abs_embedded.state.rocks import RocksBackends, Tuning

KEYS = [encode_key(n) for n in range(300)]
PLACE = StateOwner("job", "op", 0, GroupRange(0, 16), 16)


def opened(kind: str, store: LocalSnapshotStore, work: Path) -> StateBackend:
    """A backend with what the newest completed checkpoint holds."""
    new: NewBackend = HeapBackend
    if kind == "rocksdb":
        new = RocksBackends(work, Tuning(memtable=1 << 16, cache=1 << 20))
    backend = new(store, PLACE)
    if completed := store.completed():
        backend.restore([StateHandle.from_json(json.loads(store.record(completed[-1])))])
    return backend


def main(kind: str, folder: str, work: str) -> None:
    store = LocalSnapshotStore(folder)
    backend = opened(kind, store, Path(work))
    table = backend.table("count", "value:bytes")
    number = max(store.completed(), default=0)
    while True:
        number += 1
        # Half of the keys; the other half is part of every second checkpoint's increment only.
        for half in (0, 1):
            if half == 0 or number % 2 == 0:
                table.put_many(KEYS[half::2], [b"%d" % number] * len(KEYS[half::2]))
        snapshot = backend.snapshot(number)
        table.put_many(KEYS, [b"not in it"] * len(KEYS))
        handle = snapshot.persist()
        snapshot.close()
        table.put_many(KEYS[::2], [b"%d" % number] * len(KEYS[::2]))
        table.put_many(KEYS[1::2], [b"%d" % (number - number % 2)] * len(KEYS[1::2]))
        store.complete(number, json.dumps(handle.to_json()).encode(), handle.blobs)
        print(number, flush=True)
        backend.notify_complete(number)
        sweep(store, lambda r: [b.key for b in StateHandle.from_json(json.loads(r)).blobs], keep=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
