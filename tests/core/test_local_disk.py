"""What lies on local disk: errors of a full disk, who may read it, and what is durable when."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from abs_cli.trail import noted
from abs_core import registers
from abs_core.errors import CorruptionError, UnavailableError
from abs_core.model import HandleName, JobState
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, SegmentWriter
from abs_embedded.state.local_store import LocalSnapshotStore

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "short_of_disk.py"
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")
HANDLE = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
BATCH = pa.record_batch({"a": pa.array([1, 2, 3])})


@pytest.mark.parametrize(
    ("short_of", "kind", "what", "remedy"),
    [
        ("room", "RefusedError", "cannot be written", "ulimit -f"),
        ("files", "UnavailableError", "open files", "limit of open files"),
    ],
)
def test_files_that_may_not_grow_and_a_process_without_files_are_told_with_the_way_out(
    short_of: str, kind: str, what: str, remedy: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), short_of, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert set(met) == {"segment", "register", "snapshot", "spill", "segment copy", "files log"}
    for place, (met_kind, met_what, met_remedy) in met.items():
        assert met_kind == kind, (place, met_what)
        assert what in met_what, place
        assert remedy in met_remedy, place


@pytest.fixture
def no_umask() -> Iterator[None]:
    """What is made has the mode that was asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_what_holds_rows_registers_or_acts_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FileRegister(tmp_path / "register").compare_and_set("job", None, STATE)
    LocalSnapshotStore(tmp_path / "snapshots" / "of" / "job").put("1/part", b"x")
    log = FolderSegments(tmp_path / "wal")
    for attempt in ("0", "1"):
        writer = SegmentWriter(
            log, HANDLE.__class__.parse(f"{HANDLE}{attempt}") or HANDLE, BATCH.schema
        )
        writer.write(BATCH)
        if attempt == "0":
            writer.finish()  # the other one is left open
    monkeypatch.setenv("ABS_TRAIL", str(tmp_path / "state" / "trail.jsonl"))
    with noted("act", "job", "file:///register"):
        pass
    made = list(tmp_path.rglob("*"))
    modes = {
        path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in made
    }
    wrong = {
        name: oct(mode)
        for name, mode in modes.items()
        if mode != (0o700 if (tmp_path / name).is_dir() else 0o600)
    }
    writer.abort()
    assert not wrong
    assert len(modes) >= 10


def test_a_registers_file_is_on_disk_before_its_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int, int]] = []
    flush, rename = os.fsync, os.replace

    def flushing(descriptor: int) -> None:
        found = os.fstat(descriptor)
        steps.append(("flush", found.st_ino, found.st_size))
        flush(descriptor)

    def renaming(old: Path, new: Path) -> None:
        found = old.stat()
        steps.append(("rename", found.st_ino, found.st_size))
        rename(old, new)

    register = FileRegister(tmp_path)
    register.compare_and_set("job", None, STATE)
    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", renaming)
    stored = register.load("job")
    assert stored is not None
    folder = tmp_path.stat().st_ino
    assert [inode for _, inode, _ in steps] == [folder], "what is read is durable"
    steps.clear()
    register.compare_and_set("job", stored.version, STATE)
    monkeypatch.undo()
    written = (tmp_path / "job.json").stat()
    content = written.st_ino, written.st_size
    named = steps.index(("rename", *content))
    assert ("flush", *content) in steps[:named]
    assert folder in [inode for step, inode, _ in steps[named:] if step == "flush"]


def test_a_register_of_absurd_size_is_not_read_into_memory(tmp_path: Path) -> None:
    register = FileRegister(tmp_path)
    register.compare_and_set("job", None, STATE)
    with (tmp_path / "job.json").open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on disk
    with pytest.raises(CorruptionError, match="at most") as refused:
        register.load("job")
    assert "backup" in refused.value.remedy
    assert registers.MAX_CELL_BYTES < 1 << 40


def test_a_blob_of_absurd_size_is_not_read_into_memory(tmp_path: Path) -> None:
    store = LocalSnapshotStore(tmp_path)
    ref = store.put("1/part", b"content")
    with (tmp_path / "blobs" / "1" / "part").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptionError, match="is damaged"):
        store.get(ref)


def test_a_file_system_that_cannot_flush_a_folder_is_used_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As FUSE and mounts of cloud storage do; a disk that fails is an error as before."""
    flush, refusal = os.fsync, errno.EINVAL

    def no_folder(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(refusal, os.strerror(refusal))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", no_folder)
    register = FileRegister(tmp_path / "mounted")
    register.compare_and_set("job", None, STATE)
    assert register.load("job") is not None
    said = [
        record.message for record in caplog.records if "cannot flush a folder" in record.message
    ]
    assert any(str(tmp_path / "mounted") in message for message in said)
    assert len(said) == len(set(said)), "once for each folder"
    refusal = errno.EIO
    with pytest.raises(UnavailableError):
        register.load("job")
