"""Programs that promise that something is on disk, and what must be true of a disk that lost its power.

``python -m tests.core.durable_programs`` forks one for each line of its standard input: a program's
name, its folder, the number of changes to the disk after which it is killed, and a planted bug, or
null.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from abs_core.certificate import Certificate, from_text, to_text
from abs_core.contracts import Conflict
from abs_core.durable import flush_folder
from abs_core.model import HandleName, JobState, Outcome
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments, SegmentWriter
from abs_core.wal.format import verify
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore, digest_of
from abs_sinks.lake.folder import FolderStore
from abs_sinks.s3.partfile import UploadPool
from abs_sinks.s3.uploads import Upload
from abs_sources.files.cells import WriteOnceFolder
from abs_spark.checkpoint.ownfile import OwnFile
from abs_spark.sink_spec import _id_of

ID = "0123456789abcdef"
Say = Callable[[str], None]
"""Tells that something was promised, by its number or a word."""


class Program(ABC):
    """Writes below a folder; each promise is said when the call that makes it has returned."""

    @abstractmethod
    def run(self, folder: Path, say: Say) -> None:
        """Write; what a run before has left is found, and gone on with."""

    @abstractmethod
    def check(self, folder: Path, said: Sequence[str]) -> None:
        """Check a disk that has lost its power after these promises.

        Raises:
            AssertionError, AbsError: one of them is broken.
        """


class Register(Program):
    """Compare-and-sets of a register in a file."""

    def run(self, folder: Path, say: Say) -> None:
        store = FileRegister(folder / "of" / "jobs")
        for _ in range(3):
            stored = store.load("job")
            generation = 1 if stored is None else stored.state.generation + 1
            if stored is not None:
                say(str(generation - 1))  # what was read is never lost either
            state = JobState(ID, "job", "target", "lineage", generation, "run")
            version = None if stored is None else stored.version
            assert not isinstance(store.compare_and_set("job", version, state), Conflict)
            say(str(generation))

    def check(self, folder: Path, said: Sequence[str]) -> None:
        store = FileRegister(folder / "of" / "jobs")
        stored = store.load("job")
        generation = 0 if stored is None else stored.state.generation
        last = int(said[-1]) if said else 0
        assert last <= generation <= last + 1, f"generation {generation} after {last}"
        state = JobState(ID, "job", "target", "lineage", generation + 1, "run")
        version = None if stored is None else stored.version
        assert not isinstance(store.compare_and_set("job", version, state), Conflict)


class BirthCertificate(Program):
    """A certificate in a query's checkpoint, written again and again."""

    def run(self, folder: Path, say: Say) -> None:
        file = OwnFile(str(folder), "job.json")
        for _ in range(3):
            generation = self.read(file)
            if generation:
                say(str(generation))  # what was read is never lost either
            certificate = Certificate("job", ID, "here", generation + 1, None, 0)
            file.replace(to_text(certificate).encode())
            say(str(generation + 1))

    @staticmethod
    def read(file: OwnFile) -> int:
        content = file.look()[1]
        return 0 if content is None else from_text(content, "here").generation

    def check(self, folder: Path, said: Sequence[str]) -> None:
        generation = self.read(OwnFile(str(folder), "job.json"))
        last = int(said[-1]) if said else 0
        assert last <= generation <= last + 1, f"generation {generation} after {last}"


class Segments(Program):
    """Segments of a write-ahead log."""

    @staticmethod
    def handle(number: int) -> HandleName:
        return HandleName(ID, "job", 1, number, 0, "abc")

    def run(self, folder: Path, say: Say) -> None:
        store = FolderSegments(folder / "wal")
        for number in range(2):
            batch = pa.record_batch({"a": pa.array(range(2000)), "b": pa.array([number] * 2000)})
            writer = SegmentWriter(store, self.handle(number), batch.schema)
            writer.write(batch)
            writer.finish()
            say(str(number))

    def check(self, folder: Path, said: Sequence[str]) -> None:
        store = FolderSegments(folder / "wal")
        sealed = {entry.handle for entry in store.list("job") if entry.sealed}
        assert sealed >= {self.handle(int(number)) for number in said}
        for handle in sealed:  # a segment is there completely, or not at all
            assert verify(store, handle).rows == 2000


class DataFiles(Program):
    """Data files that are staged in a table's folder, then completed."""

    @staticmethod
    def upload(number: int) -> tuple[HandleName, Upload, bytes]:
        content = f"file {number} ".encode() * 300
        name = f"part-{number}.parquet"
        handle = HandleName(ID, "job", 1, number, 0, "abc")
        return handle, Upload(f"day={number}/hour=1/{name}", "", len(content), "", ()), content

    def run(self, folder: Path, say: Say) -> None:
        store, pool = FolderStore(folder / "table"), UploadPool(1, 1)
        for number in range(2):
            handle, upload, content = self.upload(number)
            # What a killed process has staged, nobody has decided: it is swept, and staged again.
            if store.inspect(handle, upload) is not Outcome.COMMITTED:
                say(f"swept {number}")
                store.abort(upload.key, "")
                staged = store.begin(pool, upload.key, {}, None)
                staged.write(content)
                staged.finish()
                say(f"staged {number}")
            assert store.complete(handle, upload) is Outcome.COMMITTED
            say(f"complete {number}")

    def check(self, folder: Path, said: Sequence[str]) -> None:
        store = FolderStore(folder / "table")
        for number in range(2):
            handle, upload, content = self.upload(number)
            words = [word for word in said if word.endswith(f" {number}")]
            if not words or words[-1].startswith("swept"):
                continue
            outcome = store.inspect(handle, upload)
            assert outcome is not Outcome.UNKNOWN, f"{words[-1]}, and now it is lost"
            if words[-1].startswith("complete"):
                assert (folder / "table" / upload.key).read_bytes() == content
            # The name among the staged may be back: to complete and to sweep it again does no harm.
            assert store.complete(handle, upload) is Outcome.COMMITTED
            store.abort(upload.key, "")
            assert store.inspect(handle, upload) is Outcome.COMMITTED
            assert (folder / "table" / upload.key).read_bytes() == content


class Snapshots(Program):
    """Checkpoints of the embedded runtime; the one before the last is retired."""

    @staticmethod
    def parts(checkpoint: int) -> tuple[bytes, bytes]:
        return f"state {checkpoint} ".encode() * 200, f"record {checkpoint}".encode()

    def run(self, folder: Path, say: Say) -> None:
        store = LocalSnapshotStore(folder / "snapshots")
        for _ in range(3):
            found = max(store.completed(), default=0)
            if found:
                assert store.record(found) == self.parts(found)[1]
                say(str(found))  # a run that goes on from it commits what is behind it
            checkpoint = found + 1
            content, record = self.parts(checkpoint)
            ref = store.put(f"{checkpoint}/part", content)
            store.complete(checkpoint, record, [ref])
            say(str(checkpoint))
            if checkpoint > 1:
                store.retire(checkpoint - 1)
                store.delete([f"{checkpoint - 1}/part"])

    def check(self, folder: Path, said: Sequence[str]) -> None:
        store = LocalSnapshotStore(folder / "snapshots")
        completed = store.completed()
        last = max(map(int, said), default=0)
        assert last <= max(completed, default=0), f"{completed} after {last}"
        for checkpoint in completed:
            content, record = self.parts(checkpoint)
            assert store.record(checkpoint) == record
            ref = BlobRef(f"{checkpoint}/part", len(content), digest_of(content))
            assert store.get(ref) == content


class Cells(Program):
    """Cells of a file source's log, which are written once."""

    def run(self, folder: Path, say: Say) -> None:
        log = WriteOnceFolder(folder / "log")
        for number in range(3):
            if log.get(str(number)) is not None:
                say(str(number))  # a batch is read by it
            assert log.put_new(str(number), b"content" * 100)
            say(str(number))

    def check(self, folder: Path, said: Sequence[str]) -> None:
        log = WriteOnceFolder(folder / "log")
        for number in said:
            assert log.get(number) == b"content" * 100


class IdOfLog(Program):
    """The id of a write-ahead log beside a checkpoint, which each start reads or makes."""

    def run(self, folder: Path, say: Say) -> None:
        for _ in range(2):
            say(_id_of(folder / "abs" / "wal"))

    def check(self, folder: Path, said: Sequence[str]) -> None:
        found = _id_of(folder / "abs" / "wal")
        assert all(word == found for word in said), f"{found}, which was {said}"


PROGRAMS: dict[str, Program] = {
    "register": Register(),
    "certificate": BirthCertificate(),
    "segment": Segments(),
    "data_file": DataFiles(),
    "blob_and_record": Snapshots(),
    "files_log": Cells(),
    "id_of_wal": IdOfLog(),
}


def _made_if_missing(folder: Path, **_: bool) -> None:
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(exist_ok=True)
        flush_folder(missing.parent)


def _not_flushed(folder: Path) -> None:
    """Does nothing."""


PLANTED: dict[str, tuple[str, str, Callable[..., None]]] = {
    "register's file": ("register", "abs_core.registers.flush_folder", _not_flushed),
    "certificate's folder": ("certificate", "abs_core.durable.make_durably", _made_if_missing),
    "certificate's file": (
        "certificate",
        "abs_spark.checkpoint.ownfile.flush_folder",
        _not_flushed,
    ),
    "segment's folder": ("segment", "abs_core.wal.folder.make_durably", _made_if_missing),
    "data file's folder": ("data_file", "abs_sinks.lake.folder.make_durably", _made_if_missing),
    "blob's folder": ("blob_and_record", "abs_core.durable.make_durably", _made_if_missing),
    "cell's file": ("files_log", "abs_sources.files.cells.flush_folder", _not_flushed),
    "id's file": ("id_of_wal", "abs_spark.sink_spec.flush_folder", _not_flushed),
}
"""A program, a function that it uses, and one that trusts what a dead process has left."""


def main() -> None:
    """Fork a program for each line; answer with its exit code, negative for a signal."""
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _run(*request)
                code = 0
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run(name: str, folder: str, changes: int, bug: str | None) -> None:
    if bug is not None:
        _, place, planted = PLANTED[bug]
        module, _, function = place.rpartition(".")
        setattr(import_module(module), function, planted)
    disk = Path(folder).parent
    (disk / f"@kill {os.getpid()} {changes}").exists()
    PROGRAMS[name].run(Path(folder), lambda text: _say(disk, text))


def _say(disk: Path, text: str) -> None:
    (disk / f"@{text}").exists()


if __name__ == "__main__":
    main()
