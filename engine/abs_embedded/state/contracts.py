"""Protocols of keyed state, its backends and its snapshot stores.

Layers, from the user's function down: typed states (``states.py``: value, list, map, reducing,
``timers.py``, ``operator_state.py``) encode values by the user's codec; a *backend* keeps bytes by
key for one subtask, and takes snapshots; a *snapshot store* keeps blobs and completion records.
Keys are canonical bytes (``keygroups.encode_keys``), and determine their key group.

A value from a state is a copy: a change is kept only by a put, on every backend.
``abs_embedded.testing.check_state`` checks a backend by this contract.

Sources: Carbone et al., "State Management in Apache Flink" (VLDB 2017), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from abs_core.strictjson import MAX_NUMBER, of, text, whole
from abs_embedded.state.codecs import ArrayCodec as ArrayCodec
from abs_embedded.state.codecs import Codec as Codec  # others import both from here
from abs_embedded.state.keygroups import GroupRange

Keys = Sequence[bytes]
Values = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob of a snapshot, and its expected content.

    Args:
        key: its name in the store.
        size: bytes.
        digest: of its content, ``xxh3_128:hex``. It finds damage, not forgery.
    """

    key: str
    size: int
    digest: str

    @classmethod
    def from_json(cls, value: object) -> BlobRef:
        """From its fields in a list; raises ``ValueError`` for anything else."""
        key, size, digest = of(list, value)
        return cls(text(key), whole(size), text(digest))


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One subtask's state at one checkpoint, by its blobs. Kept in the completion record.

    Args:
        format: ``arrow`` (``savepoint.py``; every backend reads it) or a backend's own.
        groups: the key groups that it covers.
        states: (name, shape) of each state in it, sorted; a shape is ``kind:codec``.
        blobs: in the order in which they are applied; later ones win.
        extra: further data of this format, as sorted pairs; never a secret (I9).
    """

    format: str
    checkpoint: int
    groups: GroupRange
    states: tuple[tuple[str, str], ...]
    blobs: tuple[BlobRef, ...]
    extra: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> tuple[Any, ...]:
        return astuple(self)

    @classmethod
    def from_json(cls, value: object) -> StateHandle:
        """Raises ``ValueError`` for anything that ``to_json`` did not make."""
        format_, checkpoint, groups, states, blobs, extra = of(list, value)
        start, stop = of(list, groups)
        return cls(
            text(format_),
            whole(checkpoint, 0, MAX_NUMBER),
            GroupRange(whole(start), whole(stop)),
            tuple(_pair(one) for one in of(list, states)),
            tuple(BlobRef.from_json(one) for one in of(list, blobs)),
            tuple(_pair(one) for one in of(list, extra)),
        )


def _pair(value: object) -> tuple[str, str]:
    name, said = of(list, value)
    return text(name), text(said)


class SnapshotStore(Protocol):
    """Blobs and completion records. Every call is durable on return, repeatable and thread-safe.

    Keys are ``/``-separated and of ``[A-Za-z0-9._=-]``; the first part is the checkpoint's number.
    No key is written twice with different content.

    Every call raises UnavailableError without an answer (a put may have happened), RefusedError if
    the store refuses for good.
    """

    def put(self, key: str, content: bytes) -> BlobRef: ...

    def get(self, ref: BlobRef) -> bytes:
        """The content; raises CorruptionError, with the key, if the blob is gone or changed."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the blobs that exist."""
        ...

    def blobs(self) -> Sequence[str]:
        """The keys of all blobs, sorted."""
        ...

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        """Write the completion record, atomically and once.

        ``blobs`` are all that the record names.

        Raises:
            CorruptionError: a blob is missing; no record was written.
            ProtocolError: another record of this checkpoint exists (I2, I3) and was kept.
        """
        ...

    def completed(self) -> Sequence[int]:
        """The checkpoints with a record, ascending."""
        ...

    def record(self, checkpoint: int) -> bytes:
        """The completion record; raises CorruptionError if it is damaged or missing."""
        ...

    def retire(self, checkpoint: int) -> None:
        """Delete a completion record; its blobs stay until ``retention.sweep``."""
        ...

    def is_private(self) -> bool:
        """Whether only this process's user can write to it. False if unknown."""
        ...


class StateTable(Protocol):
    """One named state: bytes by key, or in a nested state by key and sub-key. None deletes.

    Used by the subtask's thread only. ``subs`` is for nested states only. A key of another
    subtask's group is refused with ``ConfigError``, here or when its snapshot is persisted.
    """

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def put(self, key: bytes, value: bytes | None) -> None:
        self.put_many([key], [value])

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        """Values in the order of the keys, which may repeat."""
        ...

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        """In order: the last value of an entry wins."""
        ...

    def get_array(self, keys: Keys, codec: ArrayCodec[Any]) -> pa.Array:
        """``get_many`` as an array of the codec's type."""
        return codec.decode_array(self.get_many(keys))

    def put_array(self, keys: Keys, values: pa.Array, codec: ArrayCodec[Any]) -> None:
        """``put_many`` from an array of the codec's type; null deletes."""
        self.put_many(keys, codec.encode_array(values))

    def fold_array(
        self, keys: Keys, codec: ArrayCodec[Any], fold: Callable[[pa.Array], pa.Array]
    ) -> pa.Array:
        """Get an array, put ``fold`` of it, and return that. Each key once."""
        folded = fold(self.get_array(keys, codec))
        self.put_array(keys, folded, codec)
        return folded

    def items(self, key: bytes) -> Sequence[tuple[bytes, bytes]]:
        """(sub-key, value) of a key, by sub-key."""
        ...

    def everything(self) -> Iterable[tuple[bytes, bytes, bytes]]:
        """(key, sub-key, value) of all keys, in any order; reads all of the state."""
        ...


class Version(StrEnum):
    """The version that a query reads."""

    LIVE = "live"
    """As it is now: dirty, a failure takes it back."""
    COMMITTED = "committed"
    """As of the last completed checkpoint."""


class Snapshot(Protocol):
    """A logical copy: the state when it was taken, whatever is written since.

    ``persist`` and ``savepoint`` are called from one background thread, while the subtask continues.
    """

    def persist(self) -> StateHandle:
        """Write the blobs that the backend's store lacks, and return the handle of all. Once."""
        ...

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        """Write the whole state to ``store``, in the format that every backend reads."""
        ...

    def close(self) -> None:
        """Free the copy's resources, after ``persist`` or instead of it. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The owner of a state.

    Args:
        job: the job's key.
        operator: the operator's stable id, of ``[A-Za-z0-9._-]``.
        subtask: index of the operator's parallel instance, from 0.
        groups: the key groups that this subtask owns.
        max_parallelism: number of key groups; constant in a job's life.
        generation: of the run; external state uses it to fence older runs.
        register: id of the job's register; generations of different registers cannot be compared,
            so external state of another one is another job's. "": unknown.
    """

    job: str
    operator: str
    subtask: int
    groups: GroupRange
    max_parallelism: int
    generation: int = 1
    register: str = ""


class StateBackend(Protocol):
    """Keeps the keyed state of one subtask. One thread uses it; ``read`` is thread-safe.

    A restored state that nobody asks for is kept in every snapshot, until it is dropped.
    """

    @property
    def committed(self) -> int | None:
        """The checkpoint that committed reads see; -1 before the first. Thread-safe.

        None while it advances: a read may then be of either.
        """
        ...

    def is_private(self) -> bool:
        """As ``SnapshotStore.is_private``, for values outside the snapshot store."""
        ...

    def table(self, name: str, shape: str) -> StateTable:
        """The state of this name, empty if it is new; nested if its shape says so.

        Raises ConfigError if it was restored, or requested before, with another shape.
        """
        ...

    def states(self) -> Sequence[tuple[str, str]]:
        """(name, shape) of all states, unclaimed ones included, sorted."""
        ...

    def unclaimed(self) -> Sequence[str]:
        """Names of restored states that nobody has asked for, sorted."""
        ...

    def drop(self, name: str) -> None:
        """Drop a state before the first snapshot; raises ConfigError if it is not unclaimed."""
        ...

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        """Restore this subtask's key groups from the handles. Before anything else, once.

        Args:
            handles: of *all* subtasks that the operator had, at any parallelism.
            source: the store of the blobs, if not the backend's own: a savepoint's.

        Raises:
            CorruptionError: a blob is damaged or gone; its key is named.
            ConfigError: the handles leave out key groups of this subtask, or are in another
                backend's own format (the remedy is a savepoint).
        """
        ...

    def snapshot(self, checkpoint: int) -> Snapshot:
        """The logical copy, in time independent of the state's size. Numbers always ascend."""
        ...

    def notify_complete(self, checkpoint: int) -> None:
        """``checkpoint`` has its completion record: free what is no longer needed.

        Later snapshots may be increments to it. An unknown number is ignored.
        """
        ...

    def notify_aborted(self, checkpoint: int) -> None:
        """The checkpoint failed: its changes are part of the next one."""
        ...

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        """A table's values for a query, thread-safe; each value is one that it once had.

        Raises ConfigError for an unknown or nested table.
        """
        ...

    def close(self) -> None:
        """Free memory, files and connections of this process. Snapshots stay."""
        ...


NewBackend = Callable[[SnapshotStore, StateOwner], StateBackend]
