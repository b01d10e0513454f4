"""What was in the channels comes back from a snapshot as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from abs_core.barriers.elements import Copy, TaskId
from abs_core.errors import ConfigError
from abs_core.model import Committable
from abs_embedded import Graph, Restore
from abs_embedded.context import TaskState
from abs_embedded.snapshot import Record, load, persist, read_record
from abs_embedded.state.contracts import Snapshot, StateOwner
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Contents
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

NUMBERS = pa.record_batch({"n": [1, 2]})
NEVER_NULL = pa.record_batch(
    [pa.array([3])], schema=pa.schema([pa.field("n", pa.int64(), nullable=False)])
)
NAMES = pa.record_batch({"name": pa.array(["a", "b"]).dictionary_encode()})
OTHERS = pa.record_batch({"name": pa.array(["c", "a"]).dictionary_encode()})


def test_batches_of_several_schemas_come_back_in_the_order_of_their_input(tmp_path: Path) -> None:
    """What comes out of a union, or of a function, need not be of one schema."""
    store, place = (
        LocalSnapshotStore(tmp_path),
        StateOwner("job", "op", 0, GroupRange.of(0, 1, 8), 8),
    )
    state: TaskState[Snapshot] = TaskState(None, Contents())
    log = ((1, NUMBERS), (0, NAMES), (1, NEVER_NULL), (1, NUMBERS), (0, OTHERS), (1, NAMES))
    handles: tuple[Committable, ...] = ()
    part = persist(Copy(TaskId("op", 0), 0, 5, state, log, handles), store, place, whole=False)
    assert len({ref.key for ref in part.blobs}) == len(part.blobs)
    record = Record("job", "register", 5, {"op": [part]}, {}, (), 8)
    found = load(record, store)["op"][0].log
    ports = {port: [batch for at, batch in found if at == port] for port in (0, 1)}
    assert ports == {0: [NAMES, OTHERS], 1: [NUMBERS, NEVER_NULL, NUMBERS, NAMES]}


ROWS = 2_000


@pytest.mark.parametrize("after", ["renamed", "a source"])
def test_records_on_the_way_to_what_is_there_no_more_are_lost_by_consent_only(
    tmp_path: Path, after: str
) -> None:
    """Consent to lose state is none: a map has no state, and its channel is full."""
    bench, stop = Bench(tmp_path), Event()
    table = pa.table({"id": range(ROWS), "value": ["x"] * ROWS}, SCHEMA)

    def graph(id_: str, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Graph:
        built = Graph("changed")
        rows = built.source("rows", TableSource([table], 10)).map(id_, function)
        if id_ == "new" and after == "a source":
            rows = rows.union("both", built.source("old", TableSource([table.slice(0, 0)])))
        rows.sink("out", bench.sink)
        return built

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        stop.wait(0.02)
        return batch

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and checkpoint > 2:
            stop.set()

    bench.job(graph("old", slow), "unaligned", observe=observe).run(stop=stop)
    newest = read_record(bench.store.record(bench.store.completed()[-1]))
    assert newest.operators["old"][0].log, "the test needs records on the way"
    changed = bench.job(graph("new", lambda batch: batch), "unaligned")
    with pytest.raises(ConfigError, match="records that were on their way to old"):
        changed.run(Restore(drop_state=True))
    aligned = bench.job(graph("old", lambda batch: batch))
    aligned.run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(ROWS))
