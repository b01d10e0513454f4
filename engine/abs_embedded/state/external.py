"""State in another system, beside a sink: a restore or rescale loads nothing.

A subtask's writes are held here until the barrier; ``persist`` sends them in one batch, and they
count from the checkpoint's completion on. An ``ExternalState`` implements that in the other system:
rows with versions, a prepared transaction, or a previous value beside the current one.

One checkpoint is in flight at a time. Memory: the changes since the last completed checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Protocol

from abs_core.errors import ProtocolError, UnavailableError
from abs_embedded.state.contracts import (
    Keys,
    SnapshotStore,
    StateHandle,
    StateOwner,
    StateTable,
    Values,
    Version,
)
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.savepoint import FORMAT, Entries, overlapping, read, write
from abs_embedded.state.shapes import Shaped

Entry = tuple[bytes, bytes]
"""Key and sub-key; a table's sub-key is empty."""

Changes = Mapping[str, Mapping[Entry, bytes | None]]
"""By state: values of entries; None deletes."""

Written = dict[str, dict[bytes, dict[bytes, bytes | None]]]
"""The same by state, key and sub-key, so that all of one key is found without the others."""

_NONE: dict[bytes, bytes | None] = {}


class ExternalState(Protocol):
    """One operator's state in another system. Thread-safe.

    Reads see committed entries: up to the last ``restore`` or ``commit``.
    """

    @property
    def format(self) -> str: ...

    def restore(self, handles: Sequence[StateHandle]) -> None:
        """Fence lower generations and go back to exactly these handles; none: to empty state.

        Raises FencedError if a higher generation is active, HandleLostError if it cannot go back.
        """
        ...

    def get(self, state: str, entries: Sequence[Entry]) -> Mapping[Entry, bytes]: ...

    def items(self, state: str, key: bytes) -> Mapping[Entry, bytes]: ...

    def scan(self, groups: GroupRange, state: str) -> Iterable[tuple[Entry, bytes]]:
        """A consistent view of all entries of these key groups."""
        ...

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        """Pre-commit the changes; returns the ``extra`` of the handle.

        Raises FencedError if a higher generation is active.
        """
        ...

    def commit(self, checkpoint: int) -> None: ...

    def abort(self, checkpoint: int) -> None: ...

    def close(self) -> None: ...


class ExternalBackend(Shaped):
    """Keyed state of one subtask in another system. See ``StateBackend``.

    Args:
        store: for savepoints' blobs only.
        place: its ``generation`` fences older runs.
        new: opens the state of a place.
    """

    def __init__(
        self, store: SnapshotStore, place: StateOwner, new: Callable[[StateOwner], ExternalState]
    ) -> None:
        super().__init__(store, place)
        self.state = new(place)
        self.open: Written = {}
        self.sealed: Written = {}
        self._in_flight: ExternalSnapshot | None = None
        self._restored = False
        self._starting = Lock()

    def is_private(self) -> bool:
        return False

    def table(self, name: str, shape: str) -> StateTable:
        self.declare(name, shape)
        return ExternalTable(self, name)

    def drop(self, name: str) -> None:
        """Delete its entries with the next checkpoint; until then their keys are held here."""
        self.forget(name)
        table = ExternalTable(self, name)
        gone = [(key, sub) for key, sub, _ in table.everything()]
        keys, subs = [key for key, _ in gone], [sub for _, sub in gone]
        table.put_many(keys, [None] * len(gone), subs)

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        mine = overlapping(handles, self.place, [self.state.format, FORMAT])
        self._restored = True
        self.committed = mine[0].checkpoint
        self.state.restore([h for h in handles if h.format != FORMAT])
        for handle in mine:
            self.declare_restored(handle.states)
            if handle.format == FORMAT:
                for part in read(source or self.store, handle.blobs, self.place.groups):
                    table = ExternalTable(self, part.state)
                    table.put_many(part.keys, part.values, part.subs)
        # A savepoint's entries count at once: they are committed as a checkpoint of its number.
        if self.open:
            self.sealed, self.open = self.open, {}
            self.state.abort(mine[0].checkpoint)  # this run may have begun so before
            self.state.persist(mine[0].checkpoint, _changes(self.sealed))
            self.state.commit(mine[0].checkpoint)
            self.sealed = {}

    def snapshot(self, checkpoint: int) -> ExternalSnapshot:
        if self._in_flight is not None:
            raise ProtocolError(
                f"Checkpoint {checkpoint} was begun while {self._in_flight.checkpoint} is in flight.",
                epoch=checkpoint,
                remedy="external state takes one at a time: give the job Settings(in_flight=1).",
            )
        self.started()
        self.sealed, self.open = self.open, {}
        self._in_flight = ExternalSnapshot(self, checkpoint, self.sealed)
        return self._in_flight

    def notify_complete(self, checkpoint: int) -> None:
        if self._in_flight is not None and checkpoint == self._in_flight.checkpoint:
            self.committed = None
            self.state.commit(checkpoint)
            self.committed = checkpoint
            self._in_flight, self.sealed = None, {}

    def notify_aborted(self, checkpoint: int) -> None:
        if self._in_flight is not None and checkpoint == self._in_flight.checkpoint:
            self._in_flight.abort()
            for name, keys in self.sealed.items():
                later = self.open.setdefault(name, {})
                for key, entries in keys.items():
                    later[key] = entries | later.get(key, {})
            self._in_flight, self.sealed = None, {}

    def read(self, name: str, keys: Keys, version: Version) -> Values:
        self.check_query(name)
        if version is Version.LIVE:
            return ExternalTable(self, name).get_many(keys)
        entries = _entries(keys, None)
        values = self.started().get(name, entries)
        return [values.get(entry) for entry in entries]

    def close(self) -> None:
        self.state.close()

    def started(self) -> ExternalState:
        """The state, owned by this run: without a checkpoint it begins empty."""
        with self._starting:  # a query may be the first to ask
            if not self._restored:
                self.state.restore([])
                self._restored = True
        return self.state


class ExternalSnapshot:
    """The changes up to a barrier. See ``Snapshot``."""

    def __init__(self, backend: ExternalBackend, checkpoint: int, sealed: Written) -> None:
        self.checkpoint = checkpoint
        self._backend = backend
        self._sealed = sealed
        self._states = tuple(backend.states())
        self._turn = Lock()
        self._aborted = False

    def persist(self) -> StateHandle:
        state, groups = self._backend.state, self._backend.place.groups
        with self._turn:
            if self._aborted:  # what is written now nobody would take back
                raise UnavailableError("The checkpoint has failed already.", epoch=self.checkpoint)
            extra = state.persist(self.checkpoint, _changes(self._sealed))
        return StateHandle(state.format, self.checkpoint, groups, self._states, (), extra)

    def abort(self) -> None:
        """After ``persist`` or instead of it, never concurrently."""
        with self._turn:
            self._aborted = True
            self._backend.state.abort(self.checkpoint)

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        place = self._backend.place
        return write(store, place, self.checkpoint, self._states, self._entries())

    def close(self) -> None:
        """Holds nothing that the backend does not need."""

    def _entries(self) -> Iterator[Entries]:
        for name, shape in self._states:  # one at a time is held in memory
            if rows := _everything(self._backend, name, self._sealed):
                yield Entries.of(name, shape, rows)


class ExternalTable(StateTable):
    """Committed entries, and over them the pending ones: sealed by a barrier, or written since."""

    def __init__(self, backend: ExternalBackend, name: str) -> None:
        self._backend = backend
        self._name = name

    def get_many(self, keys: Keys, subs: Keys | None = None) -> Values:
        entries = _entries(keys, subs)
        values = {
            (key, sub): of_key[sub]
            for layer in self._layers()
            for key, sub in entries
            if sub in (of_key := layer.get(key, _NONE))
        }
        missing = [entry for entry in dict.fromkeys(entries) if entry not in values]
        values |= self._backend.started().get(self._name, missing) if missing else {}
        return [values.get(entry) for entry in entries]

    def put_many(self, keys: Keys, values: Values, subs: Keys | None = None) -> None:
        pending = self._backend.open.setdefault(self._name, {})
        for (key, sub), value in zip(_entries(keys, subs), values, strict=True):
            pending.setdefault(key, {})[sub] = value

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        there = self._backend.started().items(self._name, key)
        merged: dict[bytes, bytes | None] = {sub: value for (_, sub), value in there.items()}
        for layer in self._layers():
            merged |= layer.get(key, _NONE)
        return sorted((sub, value) for sub, value in merged.items() if value is not None)

    def everything(self) -> list[tuple[bytes, bytes, bytes]]:
        return _everything(self._backend, self._name, self._backend.sealed, self._backend.open)

    def _layers(self) -> list[dict[bytes, dict[bytes, bytes | None]]]:
        layers = (self._backend.sealed, self._backend.open)
        return [layer[self._name] for layer in layers if self._name in layer]


def _everything(
    backend: ExternalBackend, name: str, *pending: Written
) -> list[tuple[bytes, bytes, bytes]]:
    """All committed entries of a state, and over them these pending ones."""
    merged: dict[Entry, bytes | None] = dict(backend.started().scan(backend.place.groups, name))
    for written in pending:
        merged |= _changes({name: written.get(name, {})})[name]
    return [(*entry, value) for entry, value in merged.items() if value is not None]


def _entries(keys: Sequence[bytes], subs: Sequence[bytes] | None) -> list[Entry]:
    return list(zip(keys, subs or [b""] * len(keys), strict=True))


def _changes(written: Written) -> Changes:
    return {
        name: {(key, sub): value for key, entries in keys.items() for sub, value in entries.items()}
        for name, keys in written.items()
    }
