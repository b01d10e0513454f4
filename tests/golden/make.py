"""Writes the golden files: every format that is kept longer than a process, as one release writes it.

    python tests/golden/make.py tests/golden/VERSION

Run it with the code of the release, when it is released. The files are never made again:
they stand for what lies in the registers and stores of those who use that release. A release that
writes a format differently gets a folder of its own, beside the older ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa

from abs_clients.kafka.attempts import NO_DECISION, Decided
from abs_core.codec import committable_to_json, state_to_text
from abs_core.model import Committable, Decision, HandleName, JobState, Recent
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, SegmentWriter
from abs_core.wal.contracts import name_of
from abs_embedded.snapshot import DurablePart, Record
from abs_embedded.state.codecs import INT64, JSON, TEXT
from abs_embedded.state.contracts import NewBackend, StateBackend, StateOwner
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, encode_key, key_groups
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.operator_state import Contents, Mode
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.state.savepoint import ipc_bytes
from abs_embedded.state.states import ListState, MapState, ValueState
from abs_embedded.state.timers import Timers
from abs_sinks.kafka import ledger
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_sinks.kafka.register.topic import records_of
from abs_sinks.s3 import manifests
from abs_sinks.s3.manifests import CommittedFile, Manifests
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import RegisterObject
from abs_sinks.s3.uploads import Upload, uploads_to_text
from abs_sources.files.cells import WriteOnceFolder
from abs_sources.files.log import SeenLog
from abs_sources.files.model import Pin
from abs_sources.kafka.offsets import TopicOffsets as Offsets

REGISTER = "0123456789abcdef"
JOB = "orders%20of%20today@2026-11-23"
ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("value", pa.string())])


def handle(epoch: int, partition: int, attempt: str = "c0ffee") -> HandleName:
    return HandleName(REGISTER, JOB, 3, epoch, partition, attempt)


def committables() -> dict[str, Committable]:
    """One of each sink and protocol that names handles."""
    held = HandleName(REGISTER, JOB, 3, 10**18 - 1, 0, "abcdef012345")
    prepared = OpenTransaction(held, 4711, 12, 4, 60_000, 1_795_000_000_123, "orders-0 from 17 (5)")
    upload = Upload(
        "out/day=1/part.x.parquet", "2~upl", 1234, "00ff00ff00ff00ff", ("e1", "e2"), ("c1", "c2")
    )
    older = Upload("out/b.parquet", "up", 5, "0" * 16, ("e1",))
    lean = (("protocol", "idempotent"), ("uploads", uploads_to_text([older])))
    return {
        "postgres-2pc": Committable(handle(7, 0), 3, "xxh3_64:0011223344556677"),
        "postgres-wal": Committable(handle(7, 1), 2, "rows:2", (("protocol", "wal"),)),
        "kafka-2pc": Committable(handle(7, 2), 5, "xxh3_64:8899aabbccddeeff", prepared.extra),
        "kafka-idempotent": Committable(handle(7, 3), 1, "rows:1", (("protocol", "idempotent"),)),
        "segment": Committable(
            handle(7, 4), 4, "xxh3_128:" + "1" * 32, (("length", "640"), ("protocol", "wal"))
        ),
        "s3-2pc": Committable(
            handle(7, 5),
            9,
            "crc64nvme:" + "2" * 16,
            (("protocol", "2pc"), ("uploads", uploads_to_text([upload, older]))),
        ),
        "s3-idempotent": Committable(handle(7, 6), 1, "crc64nvme:" + "3" * 16, lean),
    }


def full_state() -> JobState:
    """A state with something in every field."""
    there = committables()
    return JobState(
        register=REGISTER,
        job=JOB,
        target="postgresql:7301234567890123456/orders/public.orders",
        lineage="5f2c1c1e-8d0b-4b5e-9d57-0a3c5f1b2d3e",
        generation=3,
        run="f0000000-0000-0000-0000-00000000000f",
        superseded=("run-1", "run-2"),
        frontier=6,
        open=(
            Decision("5f2c1c1e-8d0b-4b5e-9d57-0a3c5f1b2d3e", 7, 3, tuple(there.values())),
            Decision("an older lineage", 90, 2, ()),
        ),
        recent=(Recent(5, None, 12), Recent(6, "sha256:" + "a" * 64, 0), Recent(7, None, 25)),
        abandoned=(9, 11),
    )


def new_state() -> JobState:
    """The state of a job that has decided nothing yet."""
    return JobState(REGISTER, JOB, "kafka:cluster/orders", "lineage", 1, "run-1")


def write_registers(folder: Path) -> None:
    (folder / "state-full.json").write_text(state_to_text(full_state()))
    (folder / "state-new.json").write_text(state_to_text(new_state()))
    store = FileRegister(folder / "file-register")
    version = store.compare_and_set(JOB, None, new_state())
    assert isinstance(version, str)
    store.compare_and_set(JOB, version, full_state())
    # Under a name that every file system has.
    (folder / "file-register" / f"{JOB}.json").rename(folder / "file-register.json")
    rmtree(folder / "file-register")
    text = state_to_text(full_state())
    for name, limit in (("whole", 1 << 20), ("chunks", 700)):
        records = records_of(JOB, "17-00112233aabbccdd", text, limit)
        shown = [[key.decode(), None if v is None else v.decode()] for key, v in records]
        (folder / f"kafka-cell-{name}.json").write_text(json.dumps(shown, indent=1))
    names = {str(handle(5, 0)), str(handle(6, 1))}
    listed_as_committed = ledger.to_text({n for n in map(HandleName.parse, names) if n is not None})
    (folder / "kafka-ledger.json").write_text(listed_as_committed)
    listed = ("1-0-15-2-00112233aabbccdd", "0-16-16-3-ffeeddccbbaa0011")
    (folder / "s3-cell.json").write_bytes(
        RegisterObject(full_state(), listed, "feedfacecafebeef").to_bytes()
    )
    for name, committable in committables().items():
        written = json.dumps(committable_to_json(committable), sort_keys=True)
        (folder / f"committable-{name}.json").write_text(written)
    lines = [str(c.handle) for c in committables().values()]
    (folder / "handle-names.txt").write_text("\n".join(lines) + "\n")


class Kept:
    """What manifests are put into."""

    def __init__(self, options: S3Options) -> None:
        self.there: dict[str, bytes] = {}

    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        self.there[key] = data
        return "etag"


def write_manifest(folder: Path) -> None:
    setattr(manifests, "Objects", Kept)  # noqa: B010 - a release's own code, without a server
    options = S3Options.parse({"path": "s3://bucket/out", "protocol": "idempotent"})
    job = Manifests(options, JOB)
    files = [CommittedFile("out/a.parquet", 17, "00ff00ff00ff00ff"), CommittedFile("out/b", 0, "")]
    (name,) = job.add((), full_state(), 7, files)
    kept: Any = job._objects
    (folder / "manifest.json").write_bytes(next(iter(kept.there.values())))
    (folder / "manifest-name.txt").write_text(name + "\n")


def write_segments(folder: Path) -> None:
    told = {}
    for number, compression in enumerate((None, "lz4", "zstd")):
        store, name = FolderSegments(folder / "segments"), handle(7, number, "5e9")
        writer = SegmentWriter(store, name, ROWS, compression=compression)
        for first in (0, 3):
            ids = list(range(first, first + 3))
            batch = {"id": ids, "value": [f"v{n}" if n != 4 else None for n in ids]}
            writer.write(pa.RecordBatch.from_pydict(batch, schema=ROWS))
        seal = writer.finish()
        assert seal is not None
        named = compression or "plain"
        told[named] = committable_to_json(seal.committable())
        (folder / "segments" / name_of(name)).rename(folder / f"segment-{named}.arrows")
    (folder / "segment-committables.json").write_text(json.dumps(told, indent=1))
    (folder / "segments").rmdir()


def write_winners(folder: Path) -> None:
    decided = Decided(REGISTER, JOB, 3, 7, (handle(7, 0), handle(7, 3)))
    (folder / "winners.json").write_bytes(decided.to_bytes())
    given_up = Decided(REGISTER, JOB, 4, NO_DECISION, (), "given up by ann at 2026-11-23")
    (folder / "winners-given-up.json").write_bytes(given_up.to_bytes())


KEYS = [encode_key(f"k{n}") for n in range(20)]


def fill(backend: StateBackend, groups: GroupRange, begin: int, end: int) -> None:
    """State of the keys from ``begin`` to ``end`` that are in these key groups."""
    of = key_groups([pa.array(KEYS, pa.binary())], 16)
    mine = [n for n in range(begin, end) if groups.start <= of[n] < groups.stop]
    keys = [KEYS[n] for n in mine]
    ValueState(backend, "count", INT64).put_many(keys, [100 + n for n in mine])
    ListState(backend, "events", JSON).append_many(keys, [{"at": n} for n in mine])
    visits = MapState(backend, "visits", TEXT, INT64)
    visits.put_many(keys, ["page"] * len(keys), [10 * n for n in mine])
    Timers(backend, "due").register_many(keys, [1000 + n for n in mine])


def write_snapshots(folder: Path) -> None:
    for name in ("heap", "rocksdb", "savepoint"):
        store = LocalSnapshotStore(folder / f"snapshot-{name}")
        new: NewBackend = HeapBackend
        if name == "rocksdb":
            new = RocksBackends(folder / "rocks")
        parts = []
        for subtask, groups in enumerate((GroupRange(0, 8), GroupRange(8, 16))):
            backend = new(store, StateOwner("job", "counts", subtask, groups, 16))
            fill(backend, groups, 0, 12)
            first = backend.snapshot(4)
            first.persist()
            first.close()
            backend.notify_complete(4)
            fill(backend, groups, 8, 20)  # a second snapshot, which is an increment to the first
            taken = backend.snapshot(5)
            keyed = taken.savepoint(store) if name == "savepoint" else taken.persist()
            taken.close()
            log = pa.RecordBatch.from_pydict({"id": [subtask], "value": ["in flight"]}, schema=ROWS)
            ref = store.put(f"5/counts.{subtask}-abcdef-log0.0.arrow", ipc_bytes([log], ROWS))
            lists = Contents((("seen", Mode.UNION, (b"a", b"\0\xff")), ("splits", Mode.SPLIT, ())))
            parts.append(DurablePart(keyed, lists, ((0, ref),)))
            backend.close()
        places = [json.dumps(["rows-0", "17", "90", 1234]), json.dumps(["rows-1", "0", None, None])]
        source = Contents((("splits", Mode.SPLIT, tuple(place.encode() for place in places)),))
        record = Record(
            "job",
            REGISTER,
            5,
            {"counts": parts, "rows": [DurablePart(None, source, ())]},
            {"out": "target one", "old": ""},
            tuple(committables().values()),
            16,
        )
        store.complete(5, record.to_bytes(), record.blobs)


def write_sources(folder: Path) -> None:
    log = SeenLog(WriteOnceFolder(folder / "files-log"), "/data/in")
    assert log.id
    log.append([Pin("a.csv", 10, "111"), Pin("b/c.csv", 0, "222")])
    log.fold()
    log.append([Pin("d.csv", 3, "333")])
    (folder / "files-offset.json").write_text(json.dumps({"files": 3, "log": log.id}))
    place = Offsets({"orders": "topic-id"}, {("orders", 0): 12, ("orders", 1): 0})
    (folder / "kafka-offsets.json").write_text(place.text)


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    write_registers(folder)
    write_manifest(folder)
    write_segments(folder)
    write_winners(folder)
    write_snapshots(folder)
    write_sources(folder)
    (folder / "rocks").rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
