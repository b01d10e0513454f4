"""The RocksDB backend: state larger than memory, on local disk; incremental by RocksDB's own files.

An entry's name is group (2 bytes) | length of the state's name (2 bytes) | the state's name | key; in a
nested state the key is: length (4 bytes) | key | sub-key. So a key group is one range: a rescale clips
ranges.

A logical copy is RocksDB's checkpoint: the memtable is flushed and its files, which never change, are
hard-linked. Its cost is bounded by the memtable (``Tuning.memtable``), not by the state. A snapshot
uploads the files that the last completed one does not have. There is no write-ahead log: what a crash
takes is restored from the snapshot. Needs ``rocksdict`` (extra ``embedded``).

Source: Flink's incremental checkpoints of RocksDB (FLINK-5053); RocksDB wiki, Checkpoints.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import rocksdict
from rocksdict import Checkpoint, Rdict, WriteBatch

from abs_core.errors import AbsError, TargetError
from abs_embedded.state.contracts import (
    BlobRef,
    Keys,
    SnapshotStore,
    StateHandle,
    StateOwner,
    StateTable,
    Values,
    Version,
)
from abs_embedded.state.keygroups import groups_of
from abs_embedded.state.savepoint import (
    CHUNK,
    FORMAT,
    Entries,
    blob_prefix,
    overlapping,
    read,
    write,
)
from abs_embedded.state.scratch import ScratchFolder
from abs_embedded.state.shapes import Shaped, nests

ROCKS = "rocksdb"
_OTHERS = "files.zip"
"""What RocksDB needs besides its tables: small files that are new in each snapshot."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Bytes that one subtask may hold in memory.

    Args:
        memtable: bounds the time of a logical copy, too.
        cache: of blocks that were read.
    """

    memtable: int = 16 << 20
    cache: int = 64 << 20


@dataclass(frozen=True, slots=True)
class RocksBackends:
    """Builds the backends of this process (a ``NewBackend``).

    ``folder`` is on a local disk; each backend has its own folder in it, which is deleted on close
    or, after a kill, by the next backend in ``folder``.
    """

    folder: Path
    tuning: Tuning = Tuning()

    def __call__(self, store: SnapshotStore, place: StateOwner) -> RocksBackend:
        own = ScratchFolder(self.folder, f"{place.operator}.{place.subtask}-")
        try:
            return RocksBackend(store, place, own, self.tuning)
        except BaseException:
            own.remove()
            raise


class RocksTable(StateTable):
    """Entries of one state. See ``StateTable``."""

    def __init__(self, db: Any, name: str, place: StateOwner, *, nested: bool) -> None:
        self._db = db
        self._place = place
        self._nested = nested
        state = len(name.encode()).to_bytes(2, "big") + name.encode()
        self._heads = [_group(group) + state for group in range(place.max_parallelism)]

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        names = self.names(keys, subs)
        with _mapped("reading state"):
            values: list[bytes | None] = self._db.get(names) if names else []
        return values

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        batch = WriteBatch(raw_mode=True)
        for name, value in zip(self.names(keys, subs, to_put=True), values, strict=True):
            if value is None:
                batch.delete(name)
            else:
                batch.put(name, value)
        with _mapped("writing state"):
            self._db.write(batch)

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        (start,) = self.names([key], [b""])
        return [(name[len(start) :], value) for name, value in _scan(self._db, start)]

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        for head in (self._heads[group] for group in self._place.groups):
            for name, value in _scan(self._db, head):
                key, sub = name[len(head) :], b""
                if self._nested:
                    end = 4 + int.from_bytes(key[:4], "big")
                    key, sub = key[4:end], key[end:]
                yield key, sub, value

    def clear(self) -> None:
        for head in (self._heads[group] for group in self._place.groups):
            # The last byte of a name in UTF-8 can be counted up, and so can a length of zero.
            self._db.delete_range(head, head[:-1] + bytes([head[-1] + 1]))

    def names(
        self, keys: Sequence[bytes], subs: Sequence[bytes] | None = None, *, to_put: bool = False
    ) -> list[bytes]:
        """The names of entries; raises ConfigError to put a key of another subtask's group."""
        groups = groups_of(keys, self._place.max_parallelism)
        if to_put:
            self._place.groups.check(groups)
        heads = map(self._heads.__getitem__, groups.tolist())
        if subs is None:
            return [head + key for head, key in zip(heads, keys, strict=True)]
        return [
            head + len(key).to_bytes(4, "big") + key + sub
            for head, key, sub in zip(heads, keys, subs, strict=True)
        ]


class RocksSnapshot:
    """RocksDB's files of one moment, hard-linked. See ``Snapshot``.

    Args:
        folder: of the links.
        base: the blobs of the last completed snapshot, by file.
    """

    def __init__(
        self, backend: RocksBackend, checkpoint: int, folder: Path, base: dict[str, BlobRef]
    ) -> None:
        self._backend = backend
        self._checkpoint = checkpoint
        self._folder = folder
        self._base = base
        self._states = tuple(backend.states())
        with _mapped("taking a checkpoint"):
            Checkpoint(backend.db).create_checkpoint(str(folder))
        self.handle: StateHandle | None = None

    def persist(self) -> StateHandle:
        place, store = self._backend.place, self._backend.store
        prefix = blob_prefix(self._checkpoint, place)
        tables, others = list[Path](), list[Path]()
        for path in sorted(self._folder.iterdir()):
            (tables if path.suffix == ".sst" else others).append(path)
        blobs = [store.put(f"{prefix}-{_OTHERS}", _zipped(others))]
        for path in tables:
            blob = self._base.get(path.name)
            blobs.append(blob or store.put(f"{prefix}-{path.name}", path.read_bytes()))
        self.handle = StateHandle(ROCKS, self._checkpoint, place.groups, self._states, tuple(blobs))
        return self.handle

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        with _mapped("opening a checkpoint"):
            options = rocksdict.Options(raw_mode=True)
            db = Rdict(str(self._folder), options, access_type=rocksdict.AccessType.read_only())
        place, entries = self._backend.place, self._entries(db)
        try:
            return write(store, place, self._checkpoint, self._states, entries)
        finally:
            db.close()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _entries(self, db: Any) -> Iterator[Entries]:
        for name, shape in self._states:
            table = RocksTable(db, name, self._backend.place, nested=nests(shape))
            rows = table.everything()
            while some := list(islice(rows, CHUNK)):
                yield Entries.of(name, shape, some)


class RocksBackend(Shaped):
    """Keyed state of one subtask in RocksDB. See ``StateBackend``; use ``RocksBackends``."""

    def __init__(
        self, store: SnapshotStore, place: StateOwner, scratch: ScratchFolder, tuning: Tuning
    ) -> None:
        super().__init__(store, place)
        self._scratch = scratch
        self._folder = scratch.path
        self._tuning = tuning
        self._base: dict[str, BlobRef] = {}
        self._pending: dict[int, tuple[RocksSnapshot, Any]] = {}
        self._tables: dict[str, RocksTable] = {}
        self.db = self._open(self._folder / "db")
        self._committed = self.db.snapshot()

    def is_private(self) -> bool:
        return True

    def table(self, name: str, shape: str) -> RocksTable:
        self.declare(name, shape)
        return self._entries(name)

    def drop(self, name: str) -> None:
        self.forget(name)
        self._tables.pop(name, None)
        with _mapped("dropping state"):
            RocksTable(self.db, name, self.place, nested=False).clear()
        self._committed = self.db.snapshot()

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        store, groups = source or self.store, self.place.groups
        mine = overlapping(handles, self.place, [ROCKS, FORMAT])
        self.committed = mine[0].checkpoint
        # The files of the handle with the most are taken as they are; entries of others are copied.
        mine.sort(key=lambda h: sum(ref.size for ref in h.blobs), reverse=True)
        for n, handle in enumerate(mine):
            self.declare_restored(handle.states)
            if handle.format == FORMAT:
                for entries in read(store, handle.blobs, groups):
                    table = self._entries(entries.state)
                    table.put_many(entries.keys, entries.values, entries.subs)
            elif n == 0:
                self._take(store, handle, source is None)
            else:
                self._copy(store, handle, self._folder / f"other-{n}")
        self._committed = self.db.snapshot()

    def snapshot(self, checkpoint: int) -> RocksSnapshot:
        folder = self._folder / f"checkpoint-{checkpoint}"
        taken = RocksSnapshot(self, checkpoint, folder, self._base)
        self._pending[checkpoint] = taken, self.db.snapshot()
        return taken

    def notify_complete(self, checkpoint: int) -> None:
        snapshot, view = self._pending.pop(checkpoint, (None, None))
        if snapshot is None or snapshot.handle is None:
            return
        self.committed = None
        self._committed = view
        self.committed = checkpoint
        self._base = {_file(ref): ref for ref in snapshot.handle.blobs}
        self._pending = {n: s for n, s in self._pending.items() if n > checkpoint}

    def notify_aborted(self, checkpoint: int) -> None:
        self._pending.pop(checkpoint, None)

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        self.check_query(name)
        table = RocksTable(self.db, name, self.place, nested=False)
        if version is Version.LIVE:
            return table.get_many(keys)
        with _mapped("reading state"):
            return [_at(self._committed, entry) for entry in table.names(keys)]

    def close(self) -> None:
        self._pending.clear()
        self._tables.clear()
        self._committed = None  # a view keeps the database open
        # A restore failed half-way, or it is the second time.
        with suppress(rocksdict.DbClosedError):
            self.db.close()
        self._scratch.remove()

    def _entries(self, name: str) -> RocksTable:
        if name not in self._tables:
            nested = self.is_nested(name)
            self._tables[name] = RocksTable(self.db, name, self.place, nested=nested)
        return self._tables[name]

    def _take(self, store: SnapshotStore, handle: StateHandle, own: bool) -> None:
        """Continue with the files of a snapshot, without other key groups."""
        self._committed = None
        self.db.close()
        self.db = self._download(store, handle, self._folder / "restored")
        self._tables.clear()
        with _mapped("clipping key groups"):
            self.db.delete_range(b"", _group(self.place.groups.start))
            self.db.delete_range(_group(self.place.groups.stop), b"\xff" * 3)
        if own:
            self._base = {_file(ref): ref for ref in handle.blobs}

    def _copy(self, store: SnapshotStore, handle: StateHandle, folder: Path) -> None:
        """Copy the entries of this subtask's key groups from another snapshot."""
        other = self._download(store, handle, folder)
        start, stop = _group(self.place.groups.start), _group(self.place.groups.stop)
        with _mapped("copying key groups"):
            entries = takewhile(lambda entry: entry[0] < stop, other.items(from_key=start))
            while some := list(islice(entries, CHUNK)):
                batch = WriteBatch(raw_mode=True)
                for name, value in some:
                    batch.put(name, value)
                self.db.write(batch)
        other.close()
        # Threads of RocksDB may still be at work in it; what is left goes with the backend's folder.
        shutil.rmtree(folder, ignore_errors=True)

    def _download(self, store: SnapshotStore, handle: StateHandle, folder: Path) -> Any:
        folder.mkdir()
        for ref in handle.blobs:
            content = store.get(ref)
            if _file(ref) == _OTHERS:
                zipfile.ZipFile(io.BytesIO(content)).extractall(folder)
            else:
                (folder / _file(ref)).write_bytes(content)
        return self._open(folder)

    def _open(self, folder: Path) -> Any:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self._tuning.memtable)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(rocksdict.Cache(self._tuning.cache))
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        unlogged: Any = rocksdict.WriteOptions()
        unlogged.disable_wal = True
        with _mapped(f"opening {folder}"):
            db = Rdict(str(folder), options)
            db.set_write_options(unlogged)
        return db


def _group(group: int) -> bytes:
    return group.to_bytes(2, "big")


def _file(ref: BlobRef) -> str:
    """The file in a blob; see ``RocksSnapshot.persist``."""
    return ref.key.rpartition("-")[2]


def _scan(source: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a database whose names have this prefix, by name."""
    return takewhile(lambda entry: entry[0].startswith(prefix), source.items(from_key=prefix))


def _at(view: Any, name: bytes) -> bytes | None:
    # Iterators of a view, and its absent keys, are what rocksdict 0.3.29 gets wrong and raises for.
    try:
        value: bytes = view[name]
    except Exception as error:
        if "not found" in str(error):
            return None
        raise
    return value


def _zipped(paths: Sequence[Path]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.write(path, path.name)
    return content.getvalue()


@contextmanager
def _mapped(doing: str) -> Iterator[None]:
    """Map RocksDB's exceptions, which have no class of their own."""
    try:
        yield
    except AbsError:
        raise
    except Exception as error:
        raise TargetError(
            f"RocksDB failed while {doing}: {error}.",
            remedy="look for a full or broken local disk; the job restores from its snapshot.",
        ) from error
