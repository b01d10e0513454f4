"""What keyed state, its backends and the stores of its snapshots must offer. Protocols only.

Layers, from the user's function down: typed states (``states.py``: value, list, map, reducing,
``timers.py``, ``operator_state.py``) turn values to bytes by the user's codec; a *backend* keeps bytes
by key for one subtask, and takes snapshots; a *snapshot store* keeps blobs and completion records.
Keys are canonical bytes (``keygroups.encode_keys``); a key's group is a function of these alone.

What is got from a state is a copy: a change is kept only by a put. That holds on every backend, so
one can be exchanged for another. ``abs_core.state.testing.check_state`` proves a backend by this
contract.

Sources: Carbone et al., "State Management in Apache Flink" (VLDB 2017), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from abs_core.state.keygroups import GroupRange

T = TypeVar("T")
Keys = Sequence[bytes]
Values = Sequence[bytes | None]


class Codec(Protocol[T]):
    """Turns a state's values to bytes and back. Its ``name`` is kept in snapshots and compared."""

    @property
    def name(self) -> str: ...

    def encode(self, value: T) -> bytes: ...

    def decode(self, raw: bytes) -> T: ...


def runs_code(codec: Codec[Any]) -> bool:
    """Whether reading a value runs code that its bytes name, as unpickling does."""
    return bool(getattr(codec, "runs_code", False))


class ArrayCodec(Codec[T], Protocol[T]):
    """A codec that also turns whole Arrow arrays, without a Python loop over values."""

    @property
    def type(self) -> pa.DataType: ...

    def encode_array(self, values: pa.Array) -> list[bytes | None]:
        """Null where the value is null."""
        ...

    def decode_array(self, raw: Sequence[bytes | None]) -> pa.Array:
        """Of type ``type``; null where the bytes are None."""
        ...


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob of a snapshot, and what it must hold.

    Args:
        key: its name in the store.
        size: bytes.
        digest: of its content, ``xxh3_128:hex``. It finds damage, not forgery.
    """

    key: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class StateHandle:
    """One subtask's state at one checkpoint: names blobs, holds none. Kept in the completion record.

    Args:
        format: ``arrow`` (``savepoint.py``; every backend reads it) or a backend's own.
        checkpoint: the checkpoint's number.
        groups: the key groups that it covers.
        states: (name, shape) of each state in it, sorted; a shape is ``kind:codec``.
        blobs: in the order in which they are applied; later ones win.
        extra: what this format needs besides, as sorted pairs; never a secret (I9).
    """

    format: str
    checkpoint: int
    groups: GroupRange
    states: tuple[tuple[str, str], ...]
    blobs: tuple[BlobRef, ...]
    extra: tuple[tuple[str, str], ...] = ()


class SnapshotStore(Protocol):
    """Blobs and completion records. Every call is durable when it returns, and may be repeated.

    Keys are ``/``-separated and of ``[A-Za-z0-9._=-]``; the first part is the checkpoint's number. No
    key is written twice with different content. Used from several threads at once.

    Raises (every call):
        UnavailableError: no answer; a put may have happened. RefusedError: it refused for good.
    """

    def put(self, key: str, content: bytes) -> BlobRef: ...

    def get(self, ref: BlobRef) -> bytes:
        """The content.

        Raises:
            CorruptionError: the blob is gone, or is not what was put; its key is in the message.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; one that is not there is left alone."""
        ...

    def blobs(self) -> Sequence[str]:
        """The keys of all blobs, sorted."""
        ...

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        """Write the completion record, atomically and once: this is the decision.

        Args:
            blobs: all that the record names; each must be there.

        Raises:
            CorruptionError: a blob is not there; no record was written.
            ProtocolError: there is another record of this checkpoint (I2, I3); it was kept.
        """
        ...

    def completed(self) -> Sequence[int]:
        """The checkpoints that have a record, ascending."""
        ...

    def record(self, checkpoint: int) -> bytes:
        """The completion record.

        Raises:
            CorruptionError: it is damaged or not there.
        """
        ...

    def retire(self, checkpoint: int) -> None:
        """Delete a completion record; its blobs stay until ``retention.sweep``."""
        ...

    def is_private(self) -> bool:
        """Whether only this process's user can write to it. False where that cannot be told."""
        ...


class Table(Protocol):
    """One named state: bytes by key, or in a nested state by key and sub-key. A value of None deletes.

    Used by the subtask's thread only. ``subs`` is given for nested states, and for them alone. To put
    a key of a group that another subtask owns is refused with ``ConfigError``, here or when a snapshot
    that has it is persisted.
    """

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def put(self, key: bytes, value: bytes | None) -> None:
        self.put_many([key], [value])

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        """For each key in order; keys may be there twice."""
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
        """Get an array, put what ``fold`` makes of it, and return that. Each key once."""
        folded = fold(self.get_array(keys, codec))
        self.put_array(keys, folded, codec)
        return folded

    def items(self, key: bytes) -> Sequence[tuple[bytes, bytes]]:
        """(sub-key, value) of all that the key has, by sub-key."""
        ...

    def everything(self) -> Iterable[tuple[bytes, bytes, bytes]]:
        """(key, sub-key, value) of all keys, in any order; reads all of the state."""
        ...


class Version(StrEnum):
    """Which state a query reads."""

    LIVE = "live"
    """As it is now: dirty, a failure takes it back."""
    COMMITTED = "committed"
    """As of the last completed checkpoint."""


class Snapshot(Protocol):
    """A logical copy: what the state was when it was taken, whatever is written since.

    ``persist`` and ``savepoint`` are called from one background thread, while the subtask goes on.
    """

    def persist(self) -> StateHandle:
        """Write what the backend's store does not have yet, and name all of it. Once."""
        ...

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        """Write the whole state to ``store``, in the format that every backend reads."""
        ...

    def close(self) -> None:
        """Free what the copy holds on to. After ``persist``, or instead of it. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Whose state it is.

    Args:
        job: the job's key.
        operator: the operator's stable id, of ``[A-Za-z0-9._-]``.
        subtask: which of the operator's parallel instances, from 0.
        groups: the key groups that this subtask owns.
        max_parallelism: how many key groups there are; never changes in a job's life.
        generation: of the run; external state uses it to fence older runs.
        register: id of the job's register: generations of another one are no older or newer runs, and
            external state of the same job and operator is another job's then. "": not told.
    """

    job: str
    operator: str
    subtask: int
    groups: GroupRange
    max_parallelism: int
    generation: int = 1
    register: str = ""


class StateBackend(Protocol):
    """Keeps the keyed state of one subtask. One thread uses it; ``read`` is for any.

    A state whose name was restored and that nobody asks for is carried along in every snapshot, until
    it is dropped.
    """

    @property
    def committed(self) -> int | None:
        """The checkpoint that committed reads see; -1 before the first. From any thread.

        None while it moves to the next one: what is read then may be of either.
        """
        ...

    def is_private(self) -> bool:
        """As ``SnapshotStore.is_private``, of values that lie elsewhere than in the snapshot store."""
        ...

    def table(self, name: str, shape: str) -> Table:
        """The state of this name, empty if it is new; nested where its shape says so.

        Raises:
            ConfigError: it was restored, or asked for before, with another shape.
        """
        ...

    def states(self) -> Sequence[tuple[str, str]]:
        """(name, shape) of all states there are, also of those that nobody asked for, sorted."""
        ...

    def unclaimed(self) -> Sequence[str]:
        """Names of states that were restored, and that nobody has asked for since, sorted."""
        ...

    def drop(self, name: str) -> None:
        """Forget an unclaimed state, before the first snapshot: no later one has it.

        Raises:
            ConfigError: it is not among the unclaimed.
        """
        ...

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        """Take over what the handles hold of this subtask's key groups. Before anything else, once.

        Args:
            handles: of *all* subtasks that the operator had, whatever the parallelism was.
            source: the store that has the blobs, where it is not the backend's own: a savepoint's.

        Raises:
            CorruptionError: a blob is damaged or gone; its key is named.
            ConfigError: the handles leave out key groups of this subtask, or are in another
                backend's own format (the remedy is a savepoint).
        """
        ...

    def snapshot(self, checkpoint: int) -> Snapshot:
        """The logical copy; time does not grow with the state. Numbers ascend, also over restores."""
        ...

    def notify_complete(self, checkpoint: int) -> None:
        """The completion record of ``checkpoint`` is there: free what is no longer needed.

        Later snapshots may be increments to it. A number that is unknown here is ignored.
        """
        ...

    def notify_aborted(self, checkpoint: int) -> None:
        """The checkpoint failed: what it held is part of the next one."""
        ...

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        """A table's values for a query, from any thread; each value is one that it once had.

        Raises:
            ConfigError: there is no table of this name (nested ones can't be queried).
        """
        ...

    def close(self) -> None:
        """Free memory, files and connections of this process. Snapshots stay."""
        ...


NewBackend = Callable[[SnapshotStore, Place], StateBackend]
