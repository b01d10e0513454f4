"""The format ``arrow`` of keyed state, which every backend reads: savepoints, heap snapshots.

A blob is an Arrow IPC stream, lz4, with one row per entry: ``group`` (key group), ``state`` (name),
``key``, ``sub`` (null in a table, the sub-key in a nested state), ``value`` (null: deleted). Blobs
are applied in the order of the handle; an entry is at most once in a blob.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_core.errors import ConfigError, CorruptionError
from abs_embedded.state.contracts import BlobRef, SnapshotStore, StateHandle, StateOwner
from abs_embedded.state.keygroups import GroupRange, key_groups
from abs_embedded.state.shapes import nests

FORMAT = "arrow"
CHUNK = 1 << 16
"""Entries in one record batch, at most."""
BLOB_BYTES = 32 << 20
"""A blob is ended once it holds this much, before compression."""

_SCHEMA = pa.schema(
    [
        ("group", pa.uint16()),
        ("state", pa.string()),
        ("key", pa.binary()),
        ("sub", pa.binary()),
        ("value", pa.binary()),
    ]
)
OPERATOR_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Blobs are named by it."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of one state: ``subs`` is None in a table; a value of None deletes.

    A writer may give Arrow arrays of binary instead of lists, and the groups of the keys.
    """

    state: str
    keys: Sequence[bytes]
    subs: Sequence[bytes] | None
    values: Sequence[bytes | None]
    groups: pa.Array | None = None

    @classmethod
    def of(cls, state: str, shape: str, rows: Sequence[tuple[bytes, bytes, bytes]]) -> Entries:
        """From (key, sub-key, value), at least one; in a table the sub-keys are empty."""
        keys, subs, values = zip(*rows, strict=True)
        return cls(state, keys, subs if nests(shape) else None, values)


def blob_prefix(checkpoint: int, place: StateOwner) -> str:
    """The blobs' prefix of one attempt of one subtask (I6: never shared).

    Raises ConfigError if the operator's id cannot be part of a name.
    """
    if OPERATOR_ID.fullmatch(place.operator) is None:
        raise ConfigError(
            f"{place.operator!r} is not an operator id.",
            remedy="use letters, digits, dots, underscores and hyphens, 100 at most.",
        )
    return f"{checkpoint}/{place.operator}.{place.subtask}-{secrets.token_hex(6)}"


def write(
    store: SnapshotStore,
    place: StateOwner,
    checkpoint: int,
    states: tuple[tuple[str, str], ...],
    chunks: Iterable[Entries],
) -> StateHandle:
    """Write entries as few blobs of bounded size; holds one of them in memory.

    Raises ConfigError for keys of another subtask's groups.
    """
    prefix = blob_prefix(checkpoint, place)
    refs: list[BlobRef] = []
    batches: list[pa.RecordBatch] = []

    def end() -> None:
        if batches:
            refs.append(store.put(f"{prefix}-{len(refs)}.arrow", ipc_bytes(batches, _SCHEMA)))
            batches.clear()

    for entries in chunks:
        for batch in _batches(entries, place):
            batches.append(batch)
            if sum(one.nbytes for one in batches) >= BLOB_BYTES:
                end()
    end()
    return StateHandle(FORMAT, checkpoint, place.groups, states, tuple(refs))


def read(store: SnapshotStore, blobs: Iterable[BlobRef], groups: GroupRange) -> Iterator[Entries]:
    """The entries of these key groups, in the order of application.

    Raises CorruptionError if a blob is damaged or gone.
    """
    for ref in blobs:
        for batch in ipc_table(store.get(ref), ref.key).to_batches():
            group = batch["group"]
            mine = pc.and_(pc.greater_equal(group, groups.start), pc.less(group, groups.stop))
            inside = batch.filter(mine)
            if inside.num_rows:
                subs = inside["sub"]
                yield Entries(
                    inside["state"][0].as_py(),
                    inside["key"].to_pylist(),
                    None if subs.null_count else subs.to_pylist(),
                    inside["value"].to_pylist(),
                )


def overlapping(
    handles: Sequence[StateHandle], place: StateOwner, formats: Sequence[str]
) -> list[StateHandle]:
    """The handles with key groups of this subtask.

    Raises ConfigError if key groups are missing or there twice, or a format cannot be read here.
    """
    mine = sorted((h for h in handles if h.groups.overlaps(place.groups)), key=lambda h: h.groups)
    edges = [handle.groups for handle in mine]
    joined = all(left.stop == right.start for left, right in pairwise(edges))
    first, last = place.groups.start, place.groups.stop
    if not edges or not joined or edges[0].start > first or edges[-1].stop < last:
        raise ConfigError(
            f"The snapshot of operator {place.operator} has key groups {edges}; subtask "
            f"{place.subtask} needs all of {place.groups}, each once.",
            remedy="restore from the handles of all old subtasks; max_parallelism can't be changed.",
        )
    for handle in mine:
        if handle.format not in formats:
            raise ConfigError(
                f"The snapshot of operator {place.operator} has the format {handle.format!r}, "
                f"which this state backend can't read (it reads {', '.join(formats)}).",
                remedy="start with the backend that wrote it, take a savepoint, and restore that.",
            )
    return mine


def ipc_bytes(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """A compressed Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    # No threads: where a job runs these wait for one another, and for the interpreter.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def ipc_table(content: bytes, key: str) -> pa.Table:
    """The table of ``ipc_bytes``, with its batches."""
    try:
        return pa.ipc.open_stream(content).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptionError(
            f"The blob {key} is not an Arrow stream: {error}.",
            remedy="restore the snapshot store from a backup.",
        ) from error


def _batches(entries: Entries, place: StateOwner) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(entries.keys), CHUNK):
        part = slice(start, start + CHUNK)
        keys = pa.array(entries.keys[part], pa.binary())
        if entries.groups is None:
            groups = key_groups([keys], place.max_parallelism).astype(np.uint16)
        else:
            groups = entries.groups[part].to_numpy(zero_copy_only=False)
        place.groups.check(groups)
        subs = pa.nulls(len(keys), pa.binary()) if entries.subs is None else entries.subs[part]
        columns = [groups, pa.repeat(entries.state, len(keys)), keys, subs, entries.values[part]]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        yield pa.record_batch(arrays, schema=_SCHEMA)
