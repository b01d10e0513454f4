"""Today's code reads what each release has written: registers, snapshots, segments are not lost.

One folder for each release (``make.py`` says how it came about). A test that fails here is no test to
be changed: what it reads lies with those who use that release. A format may get new fields, and a
reader then says what their absence means.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import Decided
from abs_clients.s3.objects import Objects
from abs_core.codec import (
    committable_from_json,
    committable_to_json,
    state_from_text,
    state_to_text,
)
from abs_core.model import HandleName, JobState
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, read_segment, verify
from abs_core.wal.contracts import name_of
from abs_embedded.snapshot import load, read_record
from abs_embedded.state.codecs import INT64, JSON, TEXT
from abs_embedded.state.contracts import NewBackend, StateHandle, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Mode
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.state.states import ListState, MapState, ValueState
from abs_embedded.state.timers import Timers
from abs_services import S3Service
from abs_sinks.kafka.ledger import handles_in_ledger
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_sinks.kafka.register.topic import StoredCells
from abs_sinks.s3.manifests import CommittedFile, ManifestName, Manifests
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.uploads import uploads_from_text
from abs_sources.files.cells import WriteOnceFolder
from abs_sources.files.log import SeenLog
from abs_sources.files.model import Pin
from abs_sources.kafka.offsets import TopicOffsets as Offsets
from tests.golden.make import (
    JOB,
    KEYS,
    REGISTER,
    committables,
    full_state,
    handle,
    new_state,
    write_segments,
)

HERE = Path(__file__).parent
RELEASES = sorted(path for path in HERE.iterdir() if (path / "state-full.json").exists())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


STATES = {"full": full_state(), "new": new_state()}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_read(release: Path, name: str) -> None:
    state = state_from_text((release / f"state-{name}.json").read_text(), "here")
    _is(state, STATES[name])


def test_a_register_file_is_read_and_changed(release: Path, tmp_path: Path) -> None:
    shutil.copy(release / "file-register.json", tmp_path / f"{JOB}.json")
    store = FileRegister(tmp_path)
    stored = store.load(JOB)
    assert stored is not None
    _is(stored.state, full_state())
    assert isinstance(store.compare_and_set(JOB, stored.version, new_state()), str)
    again = store.load(JOB)
    assert again is not None
    _is(again.state, new_state())


@pytest.mark.parametrize("how", ["whole", "chunks"])
def test_a_cell_in_kafka_is_read(release: Path, how: str) -> None:
    cells = StoredCells()
    for key, value in json.loads((release / f"kafka-cell-{how}.json").read_text()):
        cells.apply(key.encode(), value.encode())
    cell = cells.get(JOB, "the register's topic")
    assert cell is not None
    assert cell.version == "17-00112233aabbccdd"
    assert bool(cell.chunks) is (how == "chunks")
    _is(state_from_text(cell.text, "there"), full_state())


def test_the_ledger_of_kafka_is_read(release: Path) -> None:
    text = (release / "kafka-ledger.json").read_text()
    assert handles_in_ledger(JOB, text) == {handle(5, 0), handle(6, 1)}


def test_a_register_in_s3_is_read(release: Path) -> None:
    cell = RegisterObject.from_bytes((release / "s3-cell.json").read_bytes(), "s3://there")
    _is(cell.state, full_state())
    assert cell.manifests == ("1-0-15-2-00112233aabbccdd", "0-16-16-3-ffeeddccbbaa0011")
    assert cell.nonce == "feedfacecafebeef"


@pytest.mark.parametrize("cell", sorted(committables()))
def test_a_committable_is_read(release: Path, cell: str) -> None:
    written = json.loads((release / f"committable-{cell}.json").read_text())
    committable = committable_from_json(written)
    assert committable == committables()[cell]
    assert committable_from_json(json.loads(json.dumps(committable_to_json(committable)))) == (
        committable
    )


def test_what_committables_say_of_their_targets_is_read(release: Path) -> None:
    def extra(cell: str) -> dict[str, str]:
        written = json.loads((release / f"committable-{cell}.json").read_text())
        found = committable_from_json(written)
        if cell == "kafka-2pc":
            prepared = OpenTransaction.of(found)
            assert prepared is not None
            assert prepared.ending.producer_id == 4711
            assert (prepared.epoch, prepared.end_txn) == (12, 4)
            assert (prepared.timeout_ms, prepared.start_ms) == (60_000, 1_795_000_000_123)
            assert prepared.offsets == "orders-0 from 17 (5)"
            assert str(prepared.held_as).endswith(f":{10**18 - 1}:0:abcdef012345")
        return dict(found.extra)

    assert extra("kafka-2pc")["protocol"] == "2pc"
    uploads = uploads_from_text(extra("s3-2pc")["uploads"])
    assert [(u.key, u.upload_id, u.size, u.crc, u.etags, u.crcs) for u in uploads] == [
        ("out/day=1/part.x.parquet", "2~upl", 1234, "00ff" * 4, ("e1", "e2"), ("c1", "c2")),
        ("out/b.parquet", "up", 5, "0" * 16, ("e1",), ()),
    ]
    assert [u.key for u in uploads_from_text(extra("s3-idempotent")["uploads"])] == [
        "out/b.parquet"
    ]


def test_handle_names_are_read(release: Path) -> None:
    lines = (release / "handle-names.txt").read_text().splitlines()
    assert [HandleName.parse(line) for line in lines] == [c.handle for c in committables().values()]


@pytest.mark.services
def test_a_manifest_is_read(release: Path, store: S3Service, prefix: str) -> None:
    path = f"s3://{store.bucket}/{prefix}"
    options = S3Options.parse({"path": path, "endpoint": store.endpoint, "protocol": "idempotent"})
    name = (release / "manifest-name.txt").read_text().strip()
    key = options.state.key("manifests", f"job={JOB.replace('%', '!')}", name)
    assert Objects(options.bucket).put_if(key, (release / "manifest.json").read_bytes(), None)
    job = Manifests(options, JOB)
    assert job.all() == [name]
    assert job.read(name) == [
        CommittedFile("out/a.parquet", 17, "00ff00ff00ff00ff"),
        CommittedFile("out/b", 0, ""),
    ]


def test_a_manifests_name_is_read(release: Path) -> None:
    name = ManifestName.parse((release / "manifest-name.txt").read_text().strip())
    assert name is not None
    assert (name.level, name.first, name.last, name.generation) == (0, 7, 7, 3)


@pytest.mark.parametrize("compression", ["plain", "lz4", "zstd"])
def test_a_segment_is_read(release: Path, compression: str, tmp_path: Path) -> None:
    written = json.loads((release / "segment-committables.json").read_text())[compression]
    committable = committable_from_json(written)
    shutil.copy(release / f"segment-{compression}.arrows", tmp_path / name_of(committable.handle))
    store = FolderSegments(tmp_path)
    assert verify(store, committable.handle).rows == 6
    table = pa.Table.from_batches(read_segment(store, committable))
    assert table["id"].to_pylist() == list(range(6))
    assert table["value"].to_pylist() == ["v0", "v1", "v2", "v3", None, "v5"]


def test_a_segment_is_written_as_before(release: Path, tmp_path: Path) -> None:
    """Byte for byte: a task of an older release may verify what a task of this one wrote."""
    write_segments(tmp_path)
    for written in sorted(tmp_path.glob("segment-*.arrows")):
        assert written.read_bytes() == (release / written.name).read_bytes(), written.name


def test_winners_records_are_read(release: Path) -> None:
    decided = Decided.from_bytes((release / "winners.json").read_bytes())
    assert (decided.register, decided.job) == (REGISTER, JOB)
    assert (decided.generation, decided.epoch, decided.note) == (3, 7, "")
    assert decided.winners == (handle(7, 0), handle(7, 3))
    given_up = Decided.from_bytes((release / "winners-given-up.json").read_bytes())
    assert (given_up.generation, given_up.epoch, given_up.winners) == (4, -1, ())
    assert given_up.note == "given up by ann at 2026-11-23"


@pytest.mark.parametrize("kind", ["heap", "rocksdb", "savepoint"])
def test_a_snapshot_is_read(release: Path, kind: str, tmp_path: Path) -> None:
    shutil.copytree(release / f"snapshot-{kind}", tmp_path / "store")
    store = LocalSnapshotStore(tmp_path / "store")
    assert store.completed() == [5]
    record = read_record(store.record(5))
    assert (record.job, record.register, record.checkpoint) == ("job", REGISTER, 5)
    assert (record.max_parallelism, dict(record.sinks)) == (16, {"out": "target one", "old": ""})
    assert record.may_hold_pickles  # releases that did not note it may have kept some
    parts = load(record, store)
    for subtask, part in enumerate(parts["counts"]):
        assert part.state.lists.lists == (
            ("seen", Mode.UNION, (b"a", b"\0\xff")),
            ("splits", Mode.SPLIT, ()),
        )
        ((port, log),) = part.log
        assert (port, log.to_pylist()) == (0, [{"id": subtask, "value": "in flight"}])
    ((name, _, entries),) = parts["rows"][0].state.lists.lists
    assert name == "splits"
    assert [json.loads(entry) for entry in entries] == [
        ["rows-0", "17", "90", 1234],
        ["rows-1", "0", None, None],
    ]
    handles = [part.keyed for part in record.operators["counts"] if part.keyed is not None]
    # Of the same parallelism, and of another; a savepoint by either backend.
    for groups in ([GroupRange(0, 8), GroupRange(8, 16)], [GroupRange(0, 16)]):
        for backend in ("heap", "rocksdb") if kind == "savepoint" else (kind,):
            new: NewBackend = HeapBackend
            if backend == "rocksdb":
                new = RocksBackends(tmp_path / "rocks")
            found: dict[bytes, object] = {}
            for subtask, mine in enumerate(groups):
                place = StateOwner("job", "counts", subtask, mine, 16)
                found |= _keyed(new, store, place, handles)
            assert found == {
                KEYS[n]: (
                    100 + n,
                    [{"at": n}] * (2 if 8 <= n < 12 else 1),
                    [("page", 10 * n)],
                    [1000 + n],
                )
                for n in range(20)
            }


def _keyed(
    new: NewBackend, store: LocalSnapshotStore, place: StateOwner, handles: Sequence[StateHandle]
) -> dict[bytes, object]:
    """By key, what a subtask has of it."""
    backend = new(store, place)
    backend.restore(handles)
    counts = ValueState(backend, "count", INT64)
    events = ListState(backend, "events", JSON)
    visits = MapState(backend, "visits", TEXT, INT64)
    due: dict[bytes, list[int]] = {}
    for at, key in Timers(backend, "due").due(10**6):
        due.setdefault(key, []).append(at)
    found: dict[bytes, object] = {
        key: (counts.get(key), events.get(key), list(visits.items(key)), due[key])
        for key in KEYS
        if counts.get(key) is not None
    }
    backend.close()
    return found


def test_the_log_of_a_file_source_is_read(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release / "files-log", tmp_path / "log")
    log = SeenLog(WriteOnceFolder(tmp_path / "log"), "/data/in")
    offset = json.loads((release / "files-offset.json").read_text())
    log.refresh()
    assert offset == {"files": 3, "log": log.id}
    assert log.total == 3
    pins = [Pin("a.csv", 10, "111"), Pin("b/c.csv", 0, "222"), Pin("d.csv", 3, "333")]
    assert list(log.files(0, 3)) == pins
    assert set(log.seen) == {pin.path for pin in pins}


def test_offsets_of_the_kafka_source_are_read(release: Path) -> None:
    place = Offsets.parse((release / "kafka-offsets.json").read_text())
    assert place.ids == {"orders": "topic-id"}
    assert place.next == {("orders", 0): 12, ("orders", 1): 0}


def _is(found: JobState, expected: JobState) -> None:
    """The same, and written by today's code it is read as the same again."""
    assert found == expected
    assert state_from_text(state_to_text(found), "again") == expected
