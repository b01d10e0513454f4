"""Typed keyed states over a backend's bytes: value, list, map, reducing.

Each access names its key (canonical bytes, see ``keygroups``): one key at a time, or a batch
(``*_many`` on Python values, ``*_array`` on Arrow arrays). A value is a copy: only a put is kept.
Not thread-safe.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from abs_core.errors import RowError
from abs_embedded.state.codecs import ArrayCodec, Codec
from abs_embedded.state.contracts import StateBackend, StateTable

T = TypeVar("T")
K = TypeVar("K")

_PLACE = struct.Struct(">Q")
_HEAD = b""


class ValueState(Generic[T]):
    """One value for each key."""

    def __init__(self, backend: StateBackend, name: str, codec: Codec[T]) -> None:
        self._table = backend.table(name, f"value:{codec.name}")
        self._codec = codec

    def get(self, key: bytes) -> T | None:
        raw = self._table.get(key)
        return None if raw is None else self._codec.decode(raw)

    def put(self, key: bytes, value: T) -> None:
        self._table.put(key, self._codec.encode(value))

    def delete(self, key: bytes) -> None:
        self._table.put(key, None)

    def get_many(self, keys: Sequence[bytes]) -> list[T | None]:
        return _each(self._codec.decode, self._table.get_many(keys))

    def put_many(self, keys: Sequence[bytes], values: Iterable[T | None]) -> None:
        """None deletes."""
        self._table.put_many(keys, _each(self._codec.encode, values))

    def get_array(self, keys: Sequence[bytes]) -> pa.Array:
        """Null without a value. Needs an ``ArrayCodec``."""
        return self._table.get_array(keys, _of_arrays(self._codec))

    def put_array(self, keys: Sequence[bytes], values: pa.Array) -> None:
        """Null deletes. Needs an ``ArrayCodec``; the array is cast to its type."""
        codec = _of_arrays(self._codec)
        self._table.put_array(keys, _cast(values, codec.type), codec)


class ReducingState(ValueState[T]):
    """One value for each key, into which others are folded.

    Args:
        reduce: (present, added) -> new; associative if results must not depend on batching.
        reduce_arrays: the same on whole arrays without nulls, e.g. ``pyarrow.compute.add``.
    """

    def __init__(
        self,
        backend: StateBackend,
        name: str,
        codec: Codec[T],
        reduce: Callable[[T, T], T],
        reduce_arrays: Callable[[pa.Array, pa.Array], pa.Array] | None = None,
    ) -> None:
        super().__init__(backend, name, codec)
        self._reduce = reduce
        self._reduce_arrays = reduce_arrays

    def add(self, key: bytes, value: T) -> T:
        """Fold ``value`` in; returns the new value."""
        present = self.get(key)
        folded = value if present is None else self._reduce(present, value)
        self.put(key, folded)
        return folded

    def add_array(self, keys: Sequence[bytes], values: pa.Array) -> pa.Array:
        """Fold one value into each key; returns the new values. A null changes nothing.

        Raises RowError for a repeated key: aggregate the batch first (``pyarrow.Table.group_by``).
        """
        if self._reduce_arrays is None or len(set(keys)) != len(keys):
            raise RowError(
                "A batch with a key twice was folded into a reducing state, or the state has no "
                "reduce_arrays.",
                remedy="aggregate the batch by key first; declare the state with reduce_arrays.",
            )
        reduce, codec = self._reduce_arrays, _of_arrays(self._codec)
        added = _cast(values, codec.type)

        def fold(present: pa.Array) -> pa.Array:
            folded = reduce(present, added)
            # A null on either side leaves the other.
            return pc.coalesce(folded, present, added) if folded.null_count else folded

        return self._table.fold_array(keys, codec, fold)


class MapState(Generic[K, T]):
    """A map for each key; its entries are read, written and snapshotted separately."""

    def __init__(
        self, backend: StateBackend, name: str, key_codec: Codec[K], codec: Codec[T]
    ) -> None:
        self._table = backend.table(name, f"map:{key_codec.name}:{codec.name}")
        self._key_codec = key_codec
        self._codec = codec

    def get(self, key: bytes, entry: K) -> T | None:
        return self.get_many([key], [entry])[0]

    def put(self, key: bytes, entry: K, value: T | None) -> None:
        self.put_many([key], [entry], [value])

    def delete(self, key: bytes, entry: K) -> None:
        self.put(key, entry, None)

    def items(self, key: bytes) -> list[tuple[K, T]]:
        """All entries of one key, by the bytes of the entry's name."""
        name, value = self._key_codec.decode, self._codec.decode
        return [(name(sub), value(raw)) for sub, raw in self._table.items(key)]

    def clear(self, key: bytes) -> None:
        _clear(self._table, key)

    def get_many(self, keys: Sequence[bytes], entries: Sequence[K]) -> list[T | None]:
        subs = [*map(self._key_codec.encode, entries)]
        return _each(self._codec.decode, self._table.get_many(keys, subs))

    def put_many(
        self, keys: Sequence[bytes], entries: Sequence[K], values: Iterable[T | None]
    ) -> None:
        """None deletes."""
        subs = [*map(self._key_codec.encode, entries)]
        self._table.put_many(keys, _each(self._codec.encode, values), subs)


class ListState(Generic[T]):
    """A list for each key; an append costs the same at any length.

    Stored as (index -> item), and the number of items under an empty sub-key.
    """

    def __init__(self, backend: StateBackend, name: str, codec: Codec[T]) -> None:
        self._table = backend.table(name, f"list:{codec.name}")
        self._codec = codec

    def get(self, key: bytes) -> list[T]:
        return [self._codec.decode(raw) for sub, raw in self._table.items(key) if sub != _HEAD]

    def append(self, key: bytes, item: T) -> None:
        self.append_many([key], [item])

    def append_many(self, keys: Sequence[bytes], items: Sequence[T]) -> None:
        """Append each item to the list of its key, in order; keys may repeat."""
        distinct = list(dict.fromkeys(keys))
        heads = self._table.get_many(distinct, [_HEAD] * len(distinct))
        ends = {
            key: 0 if raw is None else _PLACE.unpack(raw)[0]
            for key, raw in zip(distinct, heads, strict=True)
        }
        places = []
        for key in keys:
            places.append(_PLACE.pack(ends[key]))
            ends[key] += 1
        self._table.put_many(
            [*keys, *ends],
            [*map(self._codec.encode, items), *map(_PLACE.pack, ends.values())],
            [*places, *[_HEAD] * len(ends)],
        )

    def put(self, key: bytes, items: Sequence[T]) -> None:
        """Replace the list."""
        self.clear(key)
        self.append_many([key] * len(items), items)

    def clear(self, key: bytes) -> None:
        _clear(self._table, key)


def _each(function: Callable[[K], T], values: Iterable[K | None]) -> list[T | None]:
    return [None if value is None else function(value) for value in values]


def _clear(table: StateTable, key: bytes) -> None:
    subs = [sub for sub, _ in table.items(key)]
    table.put_many([key] * len(subs), [None] * len(subs), subs)


def _of_arrays(codec: Codec[T]) -> ArrayCodec[T]:
    if not isinstance(codec, ArrayCodec):
        raise RowError(
            f"The codec {codec.name} cannot be used with Arrow arrays.",
            remedy="use get_many and put_many, or a codec such as INT64, FLOAT64, TEXT, BYTES.",
        )
    return codec


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise RowError(
            f"A value does not fit the state's type {kind}: {error}.",
            remedy="correct the value, or declare the state with another codec.",
        ) from error
