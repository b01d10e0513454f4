"""Key groups: the unit in which keyed state is owned, snapshotted and moved by a rescale.

A key's group is ``xxh64(canonical bytes) % max_parallelism``, its owner ``group * parallelism //
max_parallelism``: never Python's ``hash``, which is salted per process. Ranges are half-open.

Canonical bytes: integers, booleans, dates, times and timestamps are 8 bytes, little-endian two's
complement (so an int32 and an int64 column of equal values meet in one group); text is UTF-8;
binary is itself; several columns are each preceded by their length. Source: Flink's
KeyGroupRangeAssignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from abs_core.errors import ConfigError, RowError, SchemaError

Groups = TypeVar("Groups", int, npt.NDArray[np.int64])

MAX_PARALLELISM_LIMIT = 1 << 15
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


@dataclass(frozen=True, slots=True, order=True)
class GroupRange:
    """The key groups from ``start`` up to, excluding, ``stop``."""

    start: int
    stop: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def overlaps(self, other: GroupRange) -> bool:
        return self.start < other.stop and other.start < self.stop

    def check(self, groups: npt.NDArray[Any]) -> None:
        """Raise ConfigError for entries of other groups: no restore would return them."""
        if len(groups) and not self.start <= groups.min() <= groups.max() < self.stop:
            raise ConfigError(
                "A function has put state under a key that another task owns: it would be lost on "
                "restart.",
                remedy="use the key that it is called for (`at.key`); for state without a key, "
                "key the stream by a constant column, or set its parallelism to 1.",
            )

    @classmethod
    def of(cls, subtask: int, parallelism: int, max_parallelism: int) -> GroupRange:
        """The groups whose ``owner`` is ``subtask``.

        Raises ConfigError if the parallelism is not between 1 and ``max_parallelism``.
        """
        check_parallelism(parallelism, max_parallelism)
        start = -(-subtask * max_parallelism // parallelism)
        return cls(start, -(-(subtask + 1) * max_parallelism // parallelism))


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raise ConfigError if a subtask would have no key groups."""
    if not 1 <= parallelism <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ConfigError(
            f"A parallelism of {parallelism} does not fit {max_parallelism} key groups.",
            remedy=f"1 <= parallelism <= max_parallelism <= {MAX_PARALLELISM_LIMIT} must hold; "
            "max_parallelism can't be changed once a job has state.",
        )


def owner(group: Groups, parallelism: int, max_parallelism: int) -> Groups:
    """The subtask that owns a key group, or each of an array of them."""
    return group * parallelism // max_parallelism


def key_group(key: bytes, max_parallelism: int) -> int:
    """The group of one key, given as canonical bytes."""
    return xxhash.xxh64_intdigest(key) % max_parallelism


def groups_of(keys: Sequence[bytes], max_parallelism: int) -> npt.NDArray[np.int64]:
    """``key_group`` of each key."""
    hashes = np.fromiter(map(xxhash.xxh64_intdigest, keys), np.uint64, len(keys))
    return (hashes % np.uint64(max_parallelism)).astype(np.int64)


def key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int64]:
    """The group of each row's key; as ``groups_of(encode_keys(columns), ...)``, but faster."""
    if len(columns) != 1:
        return groups_of(encode_keys(columns), max_parallelism)
    column = _plain(columns[0])
    if _all_of_8_bytes(column):
        column = column.cast(pa.binary(8)).view(pa.int64())
    if pa.types.is_int64(column.type):
        words = column.to_numpy(zero_copy_only=False).view(np.uint64)
        return (_xxh64_of_words(words) % np.uint64(max_parallelism)).astype(np.int64)
    encoded = column.dictionary_encode()  # equal keys are hashed once
    groups = groups_of(encoded.dictionary.to_pylist(), max_parallelism)
    return groups[encoded.indices.to_numpy(zero_copy_only=False)] if len(groups) else groups


def encode_keys(columns: Sequence[pa.Array]) -> list[bytes]:
    """The canonical bytes of each row's key.

    Raises SchemaError for a type that cannot be a key (floats, nested types), or no column;
    RowError for a null.
    """
    if not columns:
        raise SchemaError("A key needs at least one column.", remedy="name one in `key_by`.")
    encoded = [_bytes_of(_plain(column)) for column in columns]
    if len(encoded) == 1:
        return encoded[0]
    return [
        b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        for parts in zip(*encoded, strict=True)
    ]


def encode_key(*values: int | str | bytes | bool) -> bytes:
    """The canonical bytes of one key, given as Python values, one per key column.

    Raises as ``encode_keys``, also for an integer beyond 64 bits.
    """
    try:
        return encode_keys([pa.array([value]) for value in values])[0]
    except (OverflowError, pa.ArrowInvalid) as error:
        raise RowError(
            f"The key {values} does not fit 64 bits.", remedy="use text as the key."
        ) from error


def decode_keys(keys: Sequence[bytes], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The inverse of ``encode_keys`` for columns of these types.

    A dictionary is decoded to its values: its indices could be too narrow for these keys.
    """
    if len(types) == 1:
        return [_array_of(list(keys), types[0])]
    parts: list[list[bytes]] = [[] for _ in types]
    for key in keys:
        at = 0
        for part in parts:
            end = at + 4 + int.from_bytes(key[at : at + 4], "big")
            part.append(key[at + 4 : end])
            at = end
    return [_array_of(raw, kind) for raw, kind in zip(parts, types, strict=True)]


def key_kind(kind: pa.DataType) -> str:
    """The common kind of key columns for which the same bytes are the same key.

    Zones do not count: a timestamp with one is an instant. Units do.
    """
    if pa.types.is_dictionary(kind):
        return key_kind(kind.value_type)
    if pa.types.is_temporal(kind):
        return f"timestamp[{kind.unit}]" if pa.types.is_timestamp(kind) else str(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return "integer" if is_number else "text"


def _plain(column: pa.Array) -> pa.Array:
    """The column as int64 or binary, without nulls."""
    if column.null_count:
        raise RowError(
            "A key is null.", remedy="filter such records out, or fill the column, before key_by."
        )
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_uint64(kind):
        return column.view(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.view(pa.int64() if kind.bit_width == 64 else pa.int32()).cast(pa.int64())
    if any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, *_BINARY)):
        return pc.cast(column, pa.large_binary())
    raise SchemaError(
        f"A column of type {kind} can't be a key.",
        remedy="keys are integers, text, binary, dates or timestamps; cast it to one of them.",
    )


def _all_of_8_bytes(column: pa.Array) -> bool:
    if pa.types.is_int64(column.type):
        return False
    lengths = pc.min_max(pc.binary_length(column))
    return bool(lengths["min"].as_py() == lengths["max"].as_py() == 8)


def _bytes_of(column: pa.Array) -> list[bytes]:
    if not pa.types.is_int64(column.type):
        raw: list[bytes] = column.to_pylist()
        return raw
    words = column.to_numpy(zero_copy_only=False).astype("<i8", copy=False)
    pieces: list[bytes] = np.ascontiguousarray(words).view("V8").tolist()
    return pieces


def _array_of(raw: list[bytes], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return _array_of(raw, kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array(raw, pa.large_binary()).cast(kind)
    if any(is_kind(kind) for is_kind in _BINARY):
        return pa.array(raw, kind)
    words = pa.array(raw, pa.binary(8)).view(pa.int64())
    if pa.types.is_temporal(kind) and kind.bit_width == 32:
        return words.cast(pa.int32()).view(kind)
    as_bits = pa.types.is_temporal(kind) or pa.types.is_uint64(kind)
    return words.view(kind) if as_bits else words.cast(kind)


def _xxh64_of_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """xxh64 (seed 0) of each 8-byte input, vectorised; the library hashes one at a time."""
    mixed = _rotate(words * np.uint64(_P2), 31) * np.uint64(_P1)
    hashed = np.uint64((_P5 + 8) & 0xFFFFFFFFFFFFFFFF) ^ mixed
    hashed = _rotate(hashed, 27) * np.uint64(_P1) + np.uint64(_P4)
    hashed = (hashed ^ (hashed >> np.uint64(33))) * np.uint64(_P2)
    hashed = (hashed ^ (hashed >> np.uint64(29))) * np.uint64(_P3)
    result: npt.NDArray[np.uint64] = hashed ^ (hashed >> np.uint64(32))
    return result


def _rotate(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    rotated: npt.NDArray[np.uint64] = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return rotated
