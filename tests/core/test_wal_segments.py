"""Segments in a folder keep the contract, and every damage to one is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import CorruptionError, NotPreparedError, RefusedError, SchemaError
from abs_core.model import Committable, HandleName
from abs_core.wal import FolderSegments, Seal, SegmentWriter, read_segment, seal_of, verify
from abs_testing.check_segments import CHECKS, NewStore
from abs_testing.harness import SCHEMA, batch_of

HANDLE = HandleName("0" * 16, "job", 1, 7, 3, "ab")
OTHER = HandleName("0" * 16, "job", 1, 7, 4, "ab")


@pytest.fixture
def new_store(tmp_path: Path) -> NewStore:
    return lambda: FolderSegments(tmp_path / "a" / "wal")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_folder_keeps_the_rule(check: Callable[[NewStore], None], new_store: NewStore) -> None:
    check(new_store)


def test_any_arrow_reader_reads_a_segment(tmp_path: Path) -> None:
    path, _ = _segment(tmp_path)
    assert pa.ipc.open_stream(path).read_all().num_rows == 1000


def test_the_seal_is_read_without_the_rows(tmp_path: Path) -> None:
    _, committable = _segment(tmp_path)
    assert seal_of(FolderSegments(tmp_path), HANDLE) == Seal.of(committable)


def test_every_cut_and_every_flipped_bit_is_named(tmp_path: Path) -> None:
    path, committable = _segment(tmp_path, rows=3)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        _is_refused(tmp_path, committable)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        _is_refused(tmp_path, committable)
    path.write_bytes(whole + b"\0")
    _is_refused(tmp_path, committable)
    path.write_bytes(whole)
    assert verify(FolderSegments(tmp_path), HANDLE).rows == 3


@given(st.binary(max_size=200))
def test_what_is_no_segment_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("wal")
    (folder / f"{HANDLE}.arrows").write_bytes(data)
    with pytest.raises(CorruptionError, match="damaged"):
        verify(FolderSegments(folder), HANDLE)


def test_a_whole_segment_of_another_content_is_refused(tmp_path: Path) -> None:
    _, committable = _segment(tmp_path, rows=3)
    _segment(tmp_path, rows=4)
    with pytest.raises(CorruptionError, match="rows 4 instead of 3"):
        list(read_segment(FolderSegments(tmp_path), committable))


def test_a_segment_under_another_name_is_refused(tmp_path: Path) -> None:
    path, _ = _segment(tmp_path)
    path.rename(path.with_name(f"{OTHER}.arrows"))
    with pytest.raises(CorruptionError, match="copied or renamed"):
        verify(FolderSegments(tmp_path), OTHER)


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    path, committable = _segment(tmp_path)
    path.unlink()
    with pytest.raises(NotPreparedError) as refused:
        list(read_segment(FolderSegments(tmp_path), committable))
    assert refused.value.handle == str(HANDLE)
    assert refused.value.epoch == 7


def test_a_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    writer = SegmentWriter(FolderSegments(tmp_path), HANDLE, SCHEMA)
    with pytest.raises(SchemaError):
        writer.write(pa.record_batch({"id": [1]}))


def test_files_of_others_are_neither_listed_nor_deleted(tmp_path: Path) -> None:
    _segment(tmp_path)
    strangers = ["abs1:job.arrows", f"{HANDLE}", f"x{HANDLE}.arrows", f"{HANDLE}.arrows.bak", "a"]
    for name in strangers:
        (tmp_path / name).touch()
    store = FolderSegments(tmp_path)
    assert [entry.handle for entry in store.list(None)] == [HANDLE]
    store.delete([HANDLE])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(strangers)


def test_a_file_that_may_not_grow_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    # A process of its own: the limit on the size of files holds for all of it.
    code = f"""
import resource, signal
from pathlib import Path
from abs_core.errors import RefusedError
from abs_core.model import HandleName
from abs_testing.harness import SCHEMA, batch_of
from abs_core.wal import FolderSegments, SegmentWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store = FolderSegments({str(tmp_path)!r})
writer = SegmentWriter(store, HandleName.parse({str(HANDLE)!r}), SCHEMA)
try:
    for n in range(200):
        writer.write(batch_of([(1, "x" * 100_000)]))
except RefusedError as error:
    assert "ulimit -f" in str(error), error
else:
    raise SystemExit("not refused")
assert not store.list(None), store.list(None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "wal").write_text("not a folder")
    store = FolderSegments(tmp_path / "wal")
    for use in (lambda: _write(store, 1), lambda: store.list(None)):
        with pytest.raises(RefusedError, match="/wal cannot be used") as error:
            use()
        assert "correct the path, or move the file" in error.value.remedy


def _segment(folder: Path, rows: int = 1000) -> tuple[Path, Committable]:
    committable = _write(FolderSegments(folder), rows)
    return folder / f"{HANDLE}.arrows", committable


def _write(store: FolderSegments, rows: int) -> Committable:
    writer = SegmentWriter(store, HANDLE, SCHEMA)
    for start in range(0, rows, 100):
        writer.write(batch_of([(n, f"v{n}") for n in range(start, min(rows, start + 100))]))
    seal = writer.finish()
    assert seal is not None
    return seal.committable()


def _is_refused(folder: Path, committable: Committable) -> None:
    store = FolderSegments(folder)
    with pytest.raises(CorruptionError) as refused:
        list(read_segment(store, committable))
    assert refused.value.handle == str(HANDLE)
    with pytest.raises(CorruptionError):
        verify(store, HANDLE)
