"""Protocol wal: many small tasks become few files; segments are never taken for data."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from abs_clients.s3.client import client
from abs_clients.s3.objects import Objects
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator
from abs_core.errors import CorruptionError, NotPreparedError, UnavailableError
from abs_core.events import Event, Swept
from abs_core.model import Wrote
from abs_core.wal import Seal, SegmentWriter, read_segment, verify
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import SEGMENTS, S3Segments
from abs_sinks.s3.testing import FolderHarness
from abs_sinks.s3.uploads import Uploads
from abs_testing.case import Case, raises, rows

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
JOBS = ("a", "a.b", "..", "a%25b", "a@1", "a-b")


@pytest.fixture
def protocol() -> str:
    return "wal"


def test_many_tasks_become_one_file(harness: FolderHarness, case: Case) -> None:
    parts = [rows(10 * task, 2) for task in range(12)]
    run = case.run()
    shares = run.tasks(0, *parts)
    assert harness.keys() == []
    run.commit(0, shares)
    assert len(harness.keys()) == 1
    case.finished(*parts, when="after an epoch of twelve tasks")


def test_segments_that_became_the_epochs_files_are_not_told_of_as_left_behind(
    harness: FolderHarness,
    case: Case,
) -> None:
    run = case.run()
    events: list[Event] = []
    run.coordinator = Coordinator(run.who, run.store, run.committer, observe=events.append)
    loser = run.attempt(0).write(*rows(0, 2)).pre_commit()
    assert loser.committable is not None
    run.commit(0, run.tasks(0, rows(0, 2), rows(10, 2)))
    assert S3Segments(harness.options).list(None) == []
    assert [event for event in events if isinstance(event, Swept)] == [
        Swept(run.who.job, (str(loser.committable.handle),))
    ]


@contextmanager
def requests(options: S3Options) -> Iterator[Counter[str]]:
    """What this process's clients send in the block, by the API's name of the call."""
    calls: Counter[str] = Counter()

    def count(event_name: str, **_: Any) -> None:
        calls[event_name.rpartition(".")[2]] += 1

    clients = [client(options.server, once=once) for once in (False, True)]
    for each in clients:
        each.meta.events.register("before-send.s3", count)
    try:
        yield calls
    finally:
        for each in clients:
            each.meta.events.unregister("before-send.s3", count)


@pytest.mark.parametrize("count", [1, 5])
def test_to_abort_segments_no_object_is_listed(harness: FolderHarness, count: int) -> None:
    store = S3Segments(harness.options)
    run = Case(harness).run()
    shares = run.tasks(0, *(rows(10 * task, 2) for task in range(count)))
    wrote = [share.committable for share in shares if isinstance(share, Wrote)]
    handles = [committable.handle for committable in wrote if committable is not None]
    assert len(store.list(run.who.job)) == count
    committer = harness.new_sink().committer()
    with requests(harness.options) as calls:
        committer.abort(handles)
    assert calls["ListObjectsV2"] == 0, calls
    assert calls.total() > 0, "the requests are seen at all"
    with requests(harness.options) as looks:
        assert store.list(run.who.job) == [], "and they are gone"
    assert looks["ListObjectsV2"] > 0, "a listing is counted"


def test_a_large_epoch_becomes_files_of_the_target_size(harness: FolderHarness) -> None:
    harness.use(
        replace(harness.options, targetfilesize=1 << 20, rowgroupsize=1 << 20, compression="none")
    )
    case = Case(harness)
    parts = [[(n, f"{n:0100d}") for n in range(at, at + 12_000)] for at in (0, 20_000, 40_000)]
    case.run().epoch(0, *parts)
    assert 2 < len(harness.keys()) < 6
    case.finished(*parts, when="after a large epoch")


def test_a_segment_larger_than_a_part_is_an_upload_that_appears_whole(
    harness: FolderHarness,
) -> None:
    options = replace(harness.options, partsize=5 << 20)
    store = S3Segments(options)
    schema = pa.schema([("id", pa.int64())])
    batch = pa.record_batch([pa.array(range(1 << 20))], schema=schema)
    writer = SegmentWriter(store, TASK.handle, schema)
    writer.write(batch)
    assert store.list("job") == []
    assert len(harness.uploads()) == 1, "it is found by a sweep while it is written"
    seal = writer.finish()
    assert isinstance(seal, Seal)
    assert verify(store, TASK.handle) == seal
    (entry,) = store.list("job")
    assert entry.size > seal.length
    assert pa.Table.from_batches(read_segment(store, seal.committable())).num_rows == 1 << 20
    assert list(Uploads(options).list(options.path.folder)) == []
    store.delete([TASK.handle])
    assert store.open(TASK.handle) is None


def test_a_segment_that_is_swept_while_it_is_sealed_is_an_error_and_is_not_there(
    harness: FolderHarness,
) -> None:
    """As by a newer run, just before the request that completes its upload."""
    options = replace(harness.options, partsize=5 << 20)
    store = S3Segments(options, unsealed=True)
    batch = pa.record_batch({"id": pa.array(range(1 << 20))})
    writer = SegmentWriter(store, TASK.handle, batch.schema)
    writer.write(batch)
    assert [entry.sealed for entry in store.list("job")] == [False]

    def sweep(**_: Any) -> None:
        store.delete([TASK.handle])

    clients = [client(options.server, once=once).meta.events for once in (False, True)]
    for events in clients:
        events.register_first("before-send.s3.CompleteMultipartUpload", sweep)
    try:
        error = raises(UnavailableError, writer.finish)
    finally:
        for events in clients:
            events.unregister("before-send.s3.CompleteMultipartUpload", sweep)
    assert "is unknown after it was completed" in error.what
    assert store.open(TASK.handle) is None
    assert store.list("job") == []


def test_a_damaged_segment_decides_nothing(harness: FolderHarness, case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, rows(0, 3))
    (entry,) = S3Segments(harness.options).list("job")
    key = SEGMENTS.key(harness.options, entry.handle)
    body = Objects(harness.options.bucket).get(key)
    assert body is not None
    flipped = bytes([body.data[50] ^ 0xFF])
    Objects(harness.options.bucket).put(key, body.data[:50] + flipped + body.data[51:])
    with pytest.raises(CorruptionError, match="not those that were written"):
        run.commit(0, shares)
    S3Segments(harness.options).delete([entry.handle])
    with pytest.raises(NotPreparedError):
        run.commit(0, shares)
    assert harness.uploads() == [], "what was composed in part is discarded"
    case.run().epoch(0, rows(0, 3))
    case.finished(rows(0, 3), when="after a segment was damaged, and lost")


@pytest.mark.parametrize("job", JOBS)
def test_a_segments_key_reads_back(harness: FolderHarness, job: str) -> None:
    handle = replace(TASK, job=job).handle
    key = SEGMENTS.key(harness.options, handle)
    assert SEGMENTS.handle_of(key) == handle
    assert "/_abs/" in key
    assert not key.endswith((".parquet", ".json", ".csv", ".arrow", ".arrows"))


LIMITED = """
import resource, sys
from abs_core.errors import RefusedError
from abs_core.model import HandleName
from abs_core.wal import verify
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import S3Segments

path, endpoint = sys.argv[1:3]
store = S3Segments(S3Options.parse({"path": path, "endpoint": endpoint, "region": "us-east-1"}))
handle = HandleName.parse(sys.argv[3])
verify(store, handle)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
try:
    verify(store, handle)
except RefusedError as error:
    assert "cannot be written" in error.what, error
    assert "ulimit -f" in error.remedy, error
else:
    raise SystemExit("not refused")
"""


def test_a_copy_of_a_segment_that_may_not_grow_is_told(
    harness: FolderHarness, given: Mapping[str, str]
) -> None:
    run = Case(harness).run()
    share = run.attempt(0).write(*rows(0, 200)).pre_commit()
    assert share.committable is not None
    handle = str(share.committable.handle)
    place = [harness.path, given["endpoint"], handle]
    command = [sys.executable, "-c", LIMITED, *place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
