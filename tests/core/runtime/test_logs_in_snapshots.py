"""What was in the channels comes back from a snapshot as it was."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from abs_core.model import Committable
from abs_core.runtime.context import TaskState
from abs_core.runtime.elements import TaskId
from abs_core.runtime.snapshot import Record, load, persist
from abs_core.runtime.task import Copy
from abs_core.state.contracts import Place, Snapshot
from abs_core.state.keygroups import GroupRange
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.state.operator_state import Contents

NUMBERS = pa.record_batch({"n": [1, 2]})
NEVER_NULL = pa.record_batch(
    [pa.array([3])], schema=pa.schema([pa.field("n", pa.int64(), nullable=False)])
)
NAMES = pa.record_batch({"name": pa.array(["a", "b"]).dictionary_encode()})
OTHERS = pa.record_batch({"name": pa.array(["c", "a"]).dictionary_encode()})


def test_batches_of_several_schemas_come_back_in_the_order_of_their_input(tmp_path: Path) -> None:
    """What comes out of a union, or of a function, need not be of one schema."""
    store, place = LocalSnapshotStore(tmp_path), Place("job", "op", 0, GroupRange.of(0, 1, 8), 8)
    state: TaskState[Snapshot] = TaskState(None, Contents())
    log = ((1, NUMBERS), (0, NAMES), (1, NEVER_NULL), (1, NUMBERS), (0, OTHERS), (1, NAMES))
    handles: tuple[Committable, ...] = ()
    part = persist(Copy(TaskId("op", 0), 0, 5, state, log, handles), store, place, whole=False)
    assert len({ref.key for ref in part.blobs}) == len(part.blobs)
    record = Record("job", "register", 5, {"op": [part]}, {}, (), 8)
    found = load(record, store)["op"][0].log
    ports = {port: [batch for at, batch in found if at == port] for port in (0, 1)}
    assert ports == {0: [NAMES, OTHERS], 1: [NUMBERS, NEVER_NULL, NUMBERS, NAMES]}
