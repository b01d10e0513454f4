"""State kept in another system, beside a sink: nothing is loaded on restore, nor on rescale.

A subtask's writes are held here until the barrier; ``persist`` sends them in one batch, and they count
from the checkpoint's completion on. What that means in the other system is an ``ExternalState``: rows
with versions, a prepared transaction, or a previous value beside the current one.

One checkpoint is in flight at a time. Memory: what changed since the last completed checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from abs_core.errors import ProtocolError
from abs_core.state.contracts import (
    Nested,
    Place,
    SnapshotStore,
    StateHandle,
    Table,
    Version,
)
from abs_core.state.keygroups import GroupRange
from abs_core.state.savepoint import FORMAT, Entries, blob_prefix, overlapping, read, write
from abs_core.state.shapes import Shapes

Entry = tuple[bytes, bytes]
"""Key and sub-key; a table's sub-key is empty."""

Changes = Mapping[str, Mapping[Entry, bytes | None]]
"""By state: values of entries; None deletes."""


class ExternalState(Protocol):
    """One operator's state in another system. Calls come from several threads.

    Reads see what is committed: up to the last ``restore`` or ``commit``.
    """

    @property
    def format(self) -> str: ...

    def restore(self, handles: Sequence[StateHandle]) -> None:
        """Fence lower generations and go back to exactly these handles; none: to empty state.

        Raises:
            FencedError: a higher generation is at work.
            HandleLostError: it can't go back there.
        """
        ...

    def get(self, state: str, entries: Sequence[Entry]) -> Mapping[Entry, bytes]: ...

    def items(self, state: str, key: bytes) -> Mapping[Entry, bytes]: ...

    def scan(self, groups: GroupRange, state: str) -> Iterable[tuple[Entry, bytes]]:
        """A consistent view of all entries of these key groups."""
        ...

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        """Pre-commit the changes; returns the ``extra`` of the handle.

        Raises:
            FencedError: a higher generation is at work.
        """
        ...

    def commit(self, checkpoint: int) -> None: ...

    def abort(self, checkpoint: int) -> None: ...

    def close(self) -> None: ...


class ExternalBackend:
    """Keyed state of one subtask in another system. See ``StateBackend``.

    Args:
        store: takes savepoints' and no other blobs.
        place: whose state it is; ``generation`` fences older runs.
        new: opens the state of a place.
    """

    def __init__(
        self, store: SnapshotStore, place: Place, new: Callable[[Place], ExternalState]
    ) -> None:
        self.store = store
        self.place = place
        self.state = new(place)
        self._shapes = Shapes()
        self.open: dict[str, dict[Entry, bytes | None]] = {}
        self._sealed: Changes = {}
        self._in_flight: int | None = None
        self._restored = False

    def table(self, name: str, shape: str) -> Table:
        self._shapes.declare(name, shape, nested=False)
        return _ExternalTable(self, name)

    def nested(self, name: str, shape: str) -> Nested:
        self._shapes.declare(name, shape, nested=True)
        return _ExternalNested(self, name)

    def states(self) -> Sequence[tuple[str, str]]:
        return self._shapes.all()

    def restore(self, handles: Sequence[StateHandle], source: SnapshotStore | None = None) -> None:
        mine = overlapping(handles, self.place, [self.state.format, FORMAT])
        self._restored = True
        self.state.restore([h for h in handles if h.format != FORMAT])
        for handle in mine:
            self._shapes.restore(handle.states)
            if handle.format == FORMAT:
                for part in read(source or self.store, handle.blobs, self.place.groups):
                    subs = part.subs or [b""] * len(part.keys)
                    self.put(part.state, zip(part.keys, subs, strict=True), part.values)
        # A savepoint's entries count at once: they are committed as a checkpoint of its number.
        if self.open:
            self._sealed, self.open = self.open, {}
            self.state.persist(mine[0].checkpoint, self._sealed)
            self.state.commit(mine[0].checkpoint)
            self._sealed = {}

    def snapshot(self, checkpoint: int) -> ExternalSnapshot:
        if self._in_flight is not None:
            raise ProtocolError(
                f"Checkpoint {checkpoint} was begun while {self._in_flight} is in flight.",
                epoch=checkpoint,
                remedy="external state takes one checkpoint at a time: set the job so.",
            )
        self.started()
        self._in_flight = checkpoint
        self._sealed, self.open = self.open, {}
        return ExternalSnapshot(self, checkpoint, self._sealed)

    def notify_complete(self, checkpoint: int) -> None:
        if checkpoint == self._in_flight:
            self.state.commit(checkpoint)
            self._in_flight, self._sealed = None, {}

    def notify_aborted(self, checkpoint: int) -> None:
        if checkpoint == self._in_flight:
            self.state.abort(checkpoint)
            for name, sealed in self._sealed.items():
                self.open[name] = {**sealed, **self.open.get(name, {})}
            self._in_flight, self._sealed = None, {}

    def read(self, name: str, keys: Sequence[bytes], version: Version) -> Sequence[bytes | None]:
        self._shapes.check_query(name)
        entries = [(key, b"") for key in keys]
        if version is Version.LIVE:
            return self.get(name, entries)
        found = self.started().get(name, entries)
        return [found.get(entry) for entry in entries]

    def close(self) -> None:
        self.state.close()

    # For its tables

    def get(self, name: str, entries: Sequence[Entry]) -> list[bytes | None]:
        """What is pending here goes before what is there."""
        layers = self.open.get(name, {}), self._sealed.get(name, {})
        known = {e: layer[e] for layer in reversed(layers) for e in entries if e in layer}
        missing = [entry for entry in dict.fromkeys(entries) if entry not in known]
        known |= self.started().get(name, missing) if missing else {}
        return [known.get(entry) for entry in entries]

    def put(self, name: str, entries: Iterable[Entry], values: Sequence[bytes | None]) -> None:
        self.open.setdefault(name, {}).update(zip(entries, values, strict=True))

    def overlaid(self, name: str, there: Iterable[tuple[Entry, bytes]]) -> dict[Entry, bytes]:
        """Entries as they are with what is pending."""
        merged: dict[Entry, bytes | None] = dict(there)
        merged |= self._sealed.get(name, {})
        merged |= self.open.get(name, {})
        return {entry: value for entry, value in merged.items() if value is not None}

    def started(self) -> ExternalState:
        """The state, once it is this run's: without a checkpoint it begins empty."""
        if not self._restored:
            self._restored = True
            self.state.restore([])
        return self.state


class ExternalSnapshot:
    """The changes up to a barrier. See ``Snapshot``."""

    def __init__(self, backend: ExternalBackend, checkpoint: int, changes: Changes) -> None:
        self._backend = backend
        self._checkpoint = checkpoint
        self._changes = changes
        self._states = tuple(backend.states())

    def persist(self) -> StateHandle:
        state, groups = self._backend.state, self._backend.place.groups
        extra = state.persist(self._checkpoint, self._changes)
        return StateHandle(state.format, self._checkpoint, groups, self._states, (), extra)

    def savepoint(self, store: SnapshotStore) -> StateHandle:
        place = self._backend.place
        prefix = blob_prefix(self._checkpoint, place)
        blobs = write(store, prefix, self._entries(), place.max_parallelism)
        return StateHandle(FORMAT, self._checkpoint, place.groups, self._states, blobs)

    def close(self) -> None:
        """Nothing is held that the backend does not need."""

    def _entries(self) -> Iterator[Entries]:
        # One state at a time is held in memory.
        for name, shape in self._states:
            entries: dict[Entry, bytes | None] = dict(
                self._backend.state.scan(self._backend.place.groups, name)
            )
            entries |= self._changes.get(name, {})
            whole = {entry: value for entry, value in entries.items() if value is not None}
            keys, subs = [key for key, _ in whole], [sub for _, sub in whole]
            yield Entries(name, keys, subs if Shapes.nests(shape) else None, list(whole.values()))


class _ExternalTable:
    def __init__(self, backend: ExternalBackend, name: str) -> None:
        self._backend = backend
        self._name = name

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def put(self, key: bytes, value: bytes | None) -> None:
        self.put_many([key], [value])

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._backend.get(self._name, [(key, b"") for key in keys])

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._backend.put(self._name, [(key, b"") for key in keys], values)


class _ExternalNested:
    def __init__(self, backend: ExternalBackend, name: str) -> None:
        self._backend = backend
        self._name = name

    def get_many(self, keys: Sequence[bytes], subs: Sequence[bytes]) -> list[bytes | None]:
        return self._backend.get(self._name, list(zip(keys, subs, strict=True)))

    def put_many(
        self, keys: Sequence[bytes], subs: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        self._backend.put(self._name, zip(keys, subs, strict=True), values)

    def items(self, key: bytes) -> list[tuple[bytes, bytes]]:
        there = self._backend.started().items(self._name, key).items()
        merged = self._backend.overlaid(self._name, there)
        return sorted((sub, value) for (k, sub), value in merged.items() if k == key)

    def everything(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        there = self._backend.started().scan(self._backend.place.groups, self._name)
        for (key, sub), value in self._backend.overlaid(self._name, there).items():
            yield key, sub, value
