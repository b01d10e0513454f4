"""The segment: an Arrow IPC stream, then its seal. Any Arrow reader reads it up to the seal.

    Arrow IPC stream (ends with its own end-of-stream marker)
    seal: JSON {"digest", "handle", "length", "rows"}
    length of the JSON, 4 bytes, little endian
    b"ABSWAL01"

``length`` and ``digest`` (XXH3, 128 bits) are of the stream. The committable holds both too, so a
reader compares the segment with the committable, not only with its own seal. The digest detects
damage, not forgery. Format: https://arrow.apache.org/docs/format/Columnar.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import pyarrow as pa
import xxhash

from abs_core.errors import AbsError, CorruptionError, NotPreparedError, SchemaError
from abs_core.model import Committable, HandleName
from abs_core.strictjson import NEWER, decimal, fields, newer, parse, shown, text, whole
from abs_core.wal.contracts import SegmentFile, SegmentStore

MAGIC = b"ABSWAL01"
BLOCK = 1 << 20
MAX_SEAL_BYTES = 4096
_TAIL = 4 + len(MAGIC)
_NEWER_MAGIC = re.compile(rb"ABSWAL[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Seal:
    """The description at the end of a segment.

    Args:
        handle: detects a segment that was copied or renamed.
        length: of the Arrow stream, in bytes.
        digest: of the Arrow stream, ``xxh3_128:hex``.
    """

    handle: HandleName
    rows: int
    length: int
    digest: str

    def committable(self) -> Committable:
        """The committable of a writer under ``protocol=wal``."""
        extra = (("length", str(self.length)), ("protocol", "wal"))
        return Committable(self.handle, self.rows, self.digest, extra)

    @classmethod
    def of(cls, committable: Committable) -> Seal:
        """The seal that the committable's segment must have.

        Raises:
            CorruptionError: the committable is not a segment's.
        """
        try:
            number = decimal(dict(committable.extra).get("length", ""))
        except ValueError as error:
            raise CorruptionError(
                "A committable does not give the length of its segment.",
                handle=str(committable.handle),
                remedy="the register is damaged, or of another release: restore it from a backup; "
                f"or {newer(committable.release)}.",
            ) from error
        return cls(committable.handle, committable.rows, number, committable.digest)


class SegmentWriter:
    """Writes batches of one schema as one segment, in bounded memory.

    Args:
        compression: of Arrow's buffers: ``lz4``, ``zstd`` or None. For slow stores.

    The segment is created with the first batch; a writer without rows leaves nothing.
    """

    def __init__(
        self,
        store: SegmentStore,
        handle: HandleName,
        schema: pa.Schema,
        *,
        compression: str | None = None,
    ) -> None:
        self._store = store
        self._handle = handle
        self._schema = schema
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._file: _Digesting | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch.

        Raises:
            SchemaError: it has another schema.
            TargetError: the store refused or went away; the segment is discarded.
        """
        if batch.num_rows == 0:
            return
        if not batch.schema.equals(self._schema):
            raise SchemaError(
                f"A batch has the schema {batch.schema}, not {self._schema}.",
                remedy="give all batches of one writer the same schema.",
            )
        if self._file is None:
            self._file = _Digesting(self._store.create(self._handle))
            self._stream = pa.ipc.new_stream(self._file, self._schema, options=self._options)
        try:
            self._stream.write_batch(batch)
        except BaseException:
            self.abort()
            raise
        self._rows += batch.num_rows

    def finish(self) -> Seal | None:
        """Seal the segment durably; None if no row was written."""
        if self._file is None:
            return None
        file, self._file = self._file, None
        try:
            self._stream.close()
            seal = Seal(self._handle, self._rows, file.length, file.digest)
            file.inner.write(_to_bytes(seal))
            file.inner.seal()
        except BaseException:
            file.inner.discard()
            raise
        return seal

    def abort(self) -> None:
        """Discard the segment if it is not finished."""
        if self._file is not None:
            self._file.inner.discard()
            self._file = None


def read_segment(store: SegmentStore, committable: Committable) -> Iterator[pa.RecordBatch]:
    """The batches of a segment, after a check of the whole segment against its committable.

    All bytes are checked before the first row is decoded.

    Raises:
        NotPreparedError: the store has no such segment.
        CorruptionError: it is truncated, damaged, or another segment.
    """
    expected = Seal.of(committable)
    with _opened(store, committable.handle) as file:
        _check(store, file, expected)
        file.seek(0)
        with _decoding(store, committable.handle):
            yield from pa.ipc.open_stream(file)


def verify(store: SegmentStore, handle: HandleName) -> Seal:
    """Read all of a segment and compare it with its own seal.

    Raises:
        NotPreparedError: the store has no such segment.
        CorruptionError: it is truncated, damaged, or has another handle.
    """
    with _opened(store, handle) as file:
        seal = _read_seal(store, file, handle)
        _check(store, file, seal)
        return seal


def seal_of(store: SegmentStore, handle: HandleName) -> Seal:
    """The seal of a segment, without a check of the stream. Raises as ``verify``."""
    with _opened(store, handle) as file:
        return _read_seal(store, file, handle)


class _Digesting:
    """File object for Arrow that passes bytes on, counts and digests them."""

    closed = False

    def __init__(self, inner: SegmentFile) -> None:
        self.inner = inner
        self.length = 0
        self._digest = xxhash.xxh3_128()

    @property
    def digest(self) -> str:
        return f"xxh3_128:{self._digest.hexdigest()}"

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        self._digest.update(memoryview(data))
        written = self.inner.write(data)
        self.length += written
        return written

    def flush(self) -> None:
        """Only the seal makes anything durable."""

    def close(self) -> None:
        """Ignore Arrow's close: ``SegmentWriter.finish`` seals the segment."""


@contextmanager
def _opened(store: SegmentStore, handle: HandleName) -> Iterator[pa.NativeFile]:
    opened = store.open(handle)
    if opened is None:
        raise NotPreparedError(
            f"The write-ahead log at {store.url} has no such segment.",
            handle=handle,
            remedy="restart the query: an epoch that is not decided is written again. The log must "
            "be seen by every executor and by the driver.",
        )
    with opened as file:
        yield file


def _check(store: SegmentStore, file: pa.NativeFile, expected: Seal) -> None:
    seal = _read_seal(store, file, expected.handle)
    if seal != expected:
        differences = [
            f"{name} {value} instead of {asdict(expected)[name]}"
            for name, value in asdict(seal).items()
            if value != asdict(expected)[name]
        ]
        raise _damaged(store, expected.handle, f"it is another one: {', '.join(differences)}")
    file.seek(0)
    digest, left = xxhash.xxh3_128(), expected.length
    while left and (block := file.read_buffer(min(BLOCK, left))).size:
        digest.update(memoryview(block))
        left -= block.size
    if left or f"xxh3_128:{digest.hexdigest()}" != expected.digest:
        raise _damaged(store, expected.handle, "its bytes are not those that were written")


def _to_bytes(seal: Seal) -> bytes:
    said = json.dumps({**asdict(seal), "handle": str(seal.handle)}, sort_keys=True).encode()
    return said + len(said).to_bytes(4, "little") + MAGIC


def _read_seal(store: SegmentStore, file: pa.NativeFile, handle: HandleName) -> Seal:
    size = file.size()
    start = max(0, size - MAX_SEAL_BYTES)
    file.seek(start)
    end = bytes(file.read(size - start))
    if end[-len(MAGIC) :] != MAGIC:
        if _NEWER_MAGIC.fullmatch(end[-len(MAGIC) :]):
            raise CorruptionError(
                f"A segment of the write-ahead log at {store.url} has the format "
                f"{end[-len(MAGIC) :].decode()}, of a newer release; this release reads "
                f"{MAGIC.decode()}.",
                handle=handle,
                remedy=f"{NEWER}.",
            )
        raise _damaged(store, handle, "it is cut short: its end is not that of a segment")
    sealed = end[-_TAIL - int.from_bytes(end[-_TAIL : -len(MAGIC)], "little") : -_TAIL]
    try:
        members = fields(parse(sealed))
        named = text(members["handle"])
        seal = Seal(
            handle, whole(members["rows"]), whole(members["length"]), text(members["digest"])
        )
    except ValueError as error:
        raise _damaged(store, handle, f"its seal cannot be read ({error})") from error
    if named != str(handle):
        raise _damaged(store, handle, f"it belongs to {shown(named)}: it was copied or renamed")
    if seal.length + len(sealed) + _TAIL != size:
        raise _damaged(store, handle, f"it has {size} bytes, not as many as its seal says")
    return seal


@contextmanager
def _decoding(store: SegmentStore, handle: HandleName) -> Iterator[None]:
    try:
        yield
    except AbsError:
        raise
    except pa.ArrowException as error:
        raise _damaged(store, handle, f"Arrow cannot read it: {error}") from error


def _damaged(store: SegmentStore, handle: HandleName, how: str) -> CorruptionError:
    return CorruptionError(
        f"A segment of the write-ahead log at {store.url} is damaged: {how}.",
        handle=handle,
        remedy="restart the query: nothing of its epoch is visible, and it is written again, unless "
        "it is decided (`abs register show`). Then look at the disk; `abs wal verify` reads all.",
    )
