"""What promises to be durable is on disk when its call returns: its bytes, its name, its folders."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import abs_core.durable
import abs_core.wal.folder
import abs_sinks.lake.folder
from abs_cli.trail import noted
from abs_clients.delta.evolve import put_version
from abs_core.model import HandleName, JobState, Outcome
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, SegmentWriter
from abs_embedded.state import local_store
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_services.lasting import changing_state
from abs_services.native.lifecycle import write_private
from abs_sinks.lake.folder import FolderStore, StagedFile
from abs_sinks.s3.partfile import UploadPool
from abs_sinks.s3.uploads import Upload
from abs_sources.files.cells import WriteOnceFolder
from abs_spark.checkpoint.ownfile import OwnFile
from abs_spark.sink_spec import _id_of
from tests.core.power_cut import watched
from tests.planted import Defect, planted
from tests.roots import FOLDERS

ROOT = Path(__file__).parents[2]
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")
BATCH = pa.record_batch({"a": pa.array([1, 2, 3])})


def register(folder: Path) -> None:
    store = FileRegister(folder / "of" / "jobs")
    version = store.compare_and_set("job", None, STATE)
    assert isinstance(version, str)
    store.compare_and_set("job", version, STATE)


def segment(folder: Path) -> None:
    name = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
    writer = SegmentWriter(FolderSegments(folder / "wal"), name, BATCH.schema)
    writer.write(BATCH)
    writer.finish()


def data_file(folder: Path) -> None:
    name = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
    store = FolderStore(folder / "table")
    staged = store.begin(UploadPool(1, 1), "day=1/part-0.parquet", {}, None)
    staged.write(b"content")
    assert store.complete(name, staged.finish()) is Outcome.COMMITTED


def blob_and_record(folder: Path) -> None:
    store = LocalSnapshotStore(folder / "snapshots")
    store.complete(1, b"record", [store.put("1/part", b"content")])


def files_log(folder: Path) -> None:
    assert WriteOnceFolder(folder / "log").put_new("1", b"content")


def delta_version(folder: Path) -> None:
    assert put_version(str(folder / "table"), None, 1, [{"commitInfo": {}}])


def certificate(folder: Path) -> None:
    file = OwnFile(str(folder), "job.json")
    file.replace(b"first")
    file.replace(b"second")


def id_of_wal(folder: Path) -> None:
    _id_of(folder / "abs" / "wal")


def trail(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABS_TRAIL", str(folder / "of" / "commands" / "trail.jsonl"))
        with noted("act", "job", "file:///register"):
            pass


def services(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABS_CACHE", str(folder))
        with changing_state():
            pass
    write_private(folder / "server.json", {"password": "x"})


WRITERS: dict[Callable[[Path], None], tuple[str, ...]] = {
    register: ("abs_core/registers.py",),
    segment: ("abs_core/wal/folder.py",),
    data_file: ("abs_sinks/lake/folder.py",),
    blob_and_record: ("abs_embedded/state/local_store.py",),
    files_log: ("abs_sources/files/cells.py",),
    delta_version: ("abs_clients/delta/evolve.py",),
    certificate: ("abs_spark/checkpoint/ownfile.py",),
    id_of_wal: ("abs_spark/sink_spec.py",),
    trail: ("abs_cli/trail.py",),
    services: ("abs_services/lasting.py", "abs_services/native/lifecycle.py"),
}
"""Each writer, and the modules that write by it."""

NOT_DURABLE = {
    "abs_core/durable.py": "what the writers write by",
    "abs_services/paths.py": "a cache that is filled again",
    "abs_services/registry.py": "a stand-in for a person's try: its schemas are registered again",
    "abs_services/native/kafka.py": "settings, made at each start",
    "abs_services/native/postgres.py": "settings of each start; a password that is deleted",
    "abs_services/native/kafka_jars.py": "a cache that is filled again",
    "abs_services/native/ivy.py": "what to fetch, in a scratch folder",
    "abs_spark/foreach/run.py": "renames an old name, which is found by either",
    "abs_chaos/process.py": "what a process says",
    "abs_embedded/command.py": "a picture of a trace that stays",
    "abs_cli/output.py": "a report on demand, of a run that can be repeated",
    "abs_embedded/trace.py": "a picture for people",
    "abs_embedded/state/scratch.py": "scratch, made again from the checkpoint",
    "abs_embedded/state/rocks.py": "scratch, made again from the checkpoint",
}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_power_cut_loses_nothing_of_what_was_written(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    with watched(tmp_path) as disk:
        write(tmp_path)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    assert disk.lost() == []


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_folder_that_a_dead_process_has_made_is_no_better_than_a_missing_one(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """Who made it was killed before it had flushed the folder above."""
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    write(before)
    for folder in [before, *(path for path in before.rglob("*") if path.is_dir())]:
        (now / folder.relative_to(before)).mkdir(parents=True, exist_ok=True)
    with watched(now) as disk:
        write(now)
    assert disk.lost() == []


READERS: dict[Callable[[Path], None], tuple[Callable[[Path], object], str]] = {
    register: (lambda folder: FileRegister(folder / "of/jobs").load("job"), "of/jobs/job.json"),
    blob_and_record: (
        lambda folder: LocalSnapshotStore(folder / "snapshots").record(1),
        "snapshots/complete/1.record",
    ),
    files_log: (lambda folder: WriteOnceFolder(folder / "log").get("1"), "log/1"),
    certificate: (lambda folder: OwnFile(str(folder), "job.json").look(), "abs/job.json"),
    id_of_wal: (lambda folder: _id_of(folder / "abs/wal"), "abs/wal/.abs-wal-id"),
}
"""How what a writer has made is read, and the file. Others act on it, so it must not be lost then."""


@pytest.mark.parametrize("write", READERS, ids=lambda write: write.__name__)
def test_what_was_read_survives_a_power_cut_though_its_writer_has_died(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """The writer was killed between the rename and the flush of the folder."""
    read, file = READERS[write]
    write(tmp_path)
    with watched(tmp_path) as disk:
        read(tmp_path)
    assert (tmp_path / file).is_file()
    assert f"the name {file}" not in disk.lost()


def test_every_module_that_writes_files_is_among_the_writers_or_says_why_not() -> None:
    found = {
        path.relative_to(ROOT / room).as_posix()
        for room in (".", *FOLDERS)
        for package in (ROOT / room).glob("abs_*")
        for path in package.rglob("*.py")
        if "testing" not in path.as_posix() and _writes(path)
    }
    assert found == {module for modules in WRITERS.values() for module in modules} | {*NOT_DURABLE}


_DURABLY = {"replace_durably", "create_durably", "write_beside"}
_NAMING = {"rename", "hardlink_to", "write_text", "write_bytes"}


def _writes(path: Path) -> bool:
    for call in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        modes = {a.value for a in call.args if isinstance(a, ast.Constant)}
        if name in _DURABLY | _NAMING or (name == "open" and modes & {"w", "wb", "a", "ab", "xb"}):
            return True
    return False


def _seal_unflushed(self: abs_core.wal.folder.FolderFile) -> None:
    self._file.close()
    self._open.rename(self._path)
    abs_core.durable.flush_folder(self._path.parent)


def _finish_unflushed(self: StagedFile) -> Upload:
    self._file.close()
    abs_core.durable.flush_folder(self._path.parent)
    return Upload(self._key, "", self._size, f"{self._crc:016x}", ())


def _written_unflushed(path: Path, content: bytes, suffix: str = ".tmp", **_: object) -> Path:
    abs_core.durable.make_durably(path.parent)
    temporary = path.with_name(f"{path.name}{suffix}")
    temporary.write_bytes(content)
    return temporary


def _no_flush(folder: Path) -> None:
    """Does nothing."""


PLANTED: dict[str, tuple[Callable[[Path], None], Defect]] = {
    "segment unflushed": (segment, (abs_core.wal.folder.FolderFile, "seal", _seal_unflushed)),
    "segment's name": (segment, (abs_core.wal.folder, "flush_folder", _no_flush)),
    "register unflushed": (register, (abs_core.durable, "write_beside", _written_unflushed)),
    "register's name": (register, (abs_core.durable, "flush_folder", _no_flush)),
    "data file unflushed": (data_file, (StagedFile, "finish", _finish_unflushed)),
    "data file's name": (data_file, (abs_sinks.lake.folder, "flush_folder", _no_flush)),
    "blob unflushed": (blob_and_record, (local_store, "write_beside", _written_unflushed)),
    "blob's name": (blob_and_record, (local_store, "flush_folder", _no_flush)),
    "cell unflushed": (files_log, (abs_core.durable, "write_beside", _written_unflushed)),
    "certificate unflushed": (certificate, (abs_core.durable, "write_beside", _written_unflushed)),
    "trail's name": (trail, (abs_core.durable, "flush_folder", _no_flush)),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_an_fsync_that_is_left_out_is_found(bug: str, tmp_path: Path) -> None:
    write, defect = PLANTED[bug]
    with planted(defect):
        with watched(tmp_path) as disk:
            write(tmp_path)
        assert disk.lost() == []
