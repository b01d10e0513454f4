"""Hashes Arrow values column by column; the digest of rows is the sum of their hashes.

A hash depends on the value alone, not on its row, its batch or its Arrow layout.

- Null is one value, whatever lies below it, and is not the empty text, list or map.
- -0.0 is 0.0, and every NaN is the same NaN. A 32-bit float is the 64-bit float of its value.
- Integers are equal by value at any width, decimals at any precision and scale (1.5 is 1.50).
- A timestamp is its microseconds since 1970 (nanoseconds count where there are any), whatever its
  unit; its time zone is a label.
- A list has an order, a map has none. A struct's fields go by name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from abs_clients.arrow import decoded, is_bytes, is_list, is_text, list_parts
from abs_clients.buffers import values_of
from abs_core.rowdigest import RowDigest

Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_LONG = 128
"""Bytes from which a text is hashed by a call of xxhash: it then costs no more than numpy."""

_MASKS = np.array([(1 << 8 * left) - 1 for left in range(9)], np.uint64)
"""Masks for the last word of a text, by the number of its bytes left."""

_DAY_MS = 86_400_000
_PER_MICROSECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}
_BIG_DECIMAL = pa.decimal256(76, 38)
"""Holds every decimal of 38 digits, at any scale."""


def row_digest(batch: pa.RecordBatch) -> RowDigest:
    """The digest of a batch's rows; digests of batches add up."""
    rows = np.zeros(batch.num_rows, np.uint64)
    digest = empty_digest(batch.schema)
    sums = dict(digest.columns)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        hashes = hash_values(column)
        sums[name] = (sums[name] + int(hashes.sum(dtype=np.uint64))) % (1 << 64)
        rows += hashes * _of_name(name)
    total = int(_mixed(rows).sum(dtype=np.uint64))
    return RowDigest(total, tuple(sorted(sums.items())))


def empty_digest(schema: pa.Schema) -> RowDigest:
    """The digest of no rows."""
    return RowDigest(0, tuple(sorted(dict.fromkeys(schema.names, 0).items())))


def hash_values(array: pa.Array) -> Hashes:
    """The hash of each value of the array."""
    hashes = _hash_any(array)
    if array.null_count:
        hashes[pc.is_null(array).to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_any(array: pa.Array) -> Hashes:
    """The hash of each value; arbitrary for null."""
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        return hash_values(array.storage)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return hash_values(decoded(array))
    if types.is_null(kind):
        return np.full(len(array), _NULL)
    if types.is_nested(kind):
        return _hash_nested(array)
    if types.is_decimal(kind):
        return _hash_decimals(array)
    if types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a NaN may be of the signalling kind
            floats = _fixed(array.cast(pa.float64())).view(np.float64) + 0.0  # not -0.0
        floats[np.isnan(floats)] = np.nan
        return _mixed(floats.view(np.uint64))
    if types.is_boolean(kind) or types.is_integer(kind):
        unsigned = types.is_uint64(kind)
        return _mixed(_fixed(array.cast(pa.uint64() if unsigned else pa.int64())))
    if kind == pa.month_day_nano_interval():
        return _hash_words(_fixed(array, 2))
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _hash_times(array)
    if is_text(kind) or is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_bytes(array.cast(pa.large_binary()))
    return _hash_others(array)


def _hash_decimals(array: pa.Array) -> Hashes:
    kind = array.type
    if max(kind.scale, kind.precision - kind.scale) <= _BIG_DECIMAL.scale:
        return _hash_words(_fixed(array.cast(_BIG_DECIMAL), 4))
    # More digits than any sink takes; Arrow's cast would wrap around.
    return _hash_bytes(pa.array([_digits(v) for v in array.to_pylist()], pa.large_binary()))


def _digits(value: object) -> bytes | None:
    return None if value is None else f"{value:f}".encode()


def _hash_times(array: pa.Array) -> Hashes:
    types, kind = pa.types, array.type
    if types.is_date(kind):
        if types.is_date32(kind):
            return _mixed(_fixed(array.cast(pa.int32()).cast(pa.int64())))
        # Not by a cast: more days than 32 bits hold would be an error.
        return _mixed((_fixed(array).view(np.int64) // _DAY_MS).view(np.uint64))
    units = _fixed(array.cast(pa.int32()).cast(pa.int64()) if types.is_time32(kind) else array)
    values = units.view(np.int64)
    if kind.unit == "ns":
        # Only a rest below a microsecond makes it another value.
        whole, rest = np.divmod(values, 1000)
        return _mixed(whole.view(np.uint64) + _mixed(rest.view(np.uint64)) * (rest != 0))
    return _mixed((values * _PER_MICROSECOND[kind.unit]).view(np.uint64))


def _hash_nested(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_struct(kind):
        hashes = np.full(len(array), _GOLDEN)
        for index, field in enumerate(kind):
            hashes += hash_values(array.field(index)) * _of_name(field.name)
        return _mixed(hashes)
    if pa.types.is_map(kind):
        offsets = _offsets(array)
        inside = slice(int(offsets[0]), int(offsets[-1]))
        entries = hash_values(array.keys[inside]) * _GOLDEN
        entries += hash_values(array.items[inside]) * _FIRST
        return _summed(_mixed(entries), offsets)
    if is_list(kind):
        # No cast to one layout: Arrow's own loses values of list views and of cut runs (26.0.1).
        offsets, values = list_parts(array)
        return _summed(_mixed(hash_values(values) ^ _places(offsets)), offsets)
    if pa.types.is_union(kind):
        return _hash_union(array)
    return _hash_others(array)


def _hash_union(array: pa.Array) -> Hashes:
    """The hash of each value, whichever field it has."""
    codes = _part_of_union(array, 1, pa.int8())
    is_dense = array.type.mode == "dense"
    places = _part_of_union(array, 2, pa.int32()) if is_dense else np.arange(len(array))
    hashes = np.zeros(len(array), np.uint64)
    for number in range(array.type.num_fields):
        of_field = codes == array.type.type_codes[number]
        hashes[of_field] = hash_values(array.field(number))[places[of_field]]
    return _mixed(hashes ^ _mixed(codes.astype(np.uint64)))


def _part_of_union(array: pa.Array, number: int, kind: pa.DataType) -> npt.NDArray[Any]:
    """One of its buffers: ``type_codes`` and ``offsets`` do not begin where a slice does (26.0.1)."""
    buffers = [None, array.buffers()[number]]
    part = pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset)
    return np.asarray(part)


def _hash_others(array: pa.Array) -> Hashes:
    """No sink takes such a type; what may come is told apart by its text all the same."""
    return _hash_bytes(pa.array([str(v).encode() for v in array.to_pylist()], pa.large_binary()))


def _hash_bytes(array: pa.Array) -> Hashes:
    """Hash large binaries: short ones together, word by word; long ones one by one."""
    if len(array) == 0:
        return np.zeros(0, np.uint64)
    starts = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    first, last = int(starts[0]), int(starts[-1])
    # Whole words, and two more, so that a word that begins anywhere can be read.
    content = np.zeros((last - first + 23) // 8 * 8, np.uint8)
    if last > first:
        content[: last - first] = np.frombuffer(array.buffers()[2], np.uint8, last - first, first)
    begins, lengths = starts[:-1] - first, np.diff(starts)
    hashes: Hashes = lengths.astype(np.uint64) * _SECOND
    _hash_short(content.view(np.uint64), begins, lengths, hashes)
    view = content.data
    for index in np.flatnonzero(lengths > _LONG):
        begin, length = begins[index], lengths[index]
        hashes[index] = xxhash.xxh3_64_intdigest(view[begin : begin + length])
    return _mixed(hashes)


def _hash_short(
    content: Hashes, begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], hashes: Hashes
) -> None:
    """Take each text of at most ``_LONG`` bytes into its hash, word by word."""
    live = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    at, left, current = begins[live], lengths[live], hashes[live]
    while len(live):
        words = _words_at(content, at)
        shortest = int(left.min())
        if shortest < 8:
            words &= _MASKS[np.minimum(left, 8)]
        current ^= words
        current *= _FIRST
        current ^= current >> np.uint64(32)
        if shortest <= 8:
            hashes[live] = current
            goes_on = left > 8
            live, at, left, current = live[goes_on], at[goes_on], left[goes_on], current[goes_on]
        at += 8
        left -= 8


def _words_at(aligned: Hashes, at: npt.NDArray[np.int64]) -> Hashes:
    """The words that begin at these bytes, of memory that begins with a whole word.

    Out of the two words that each lies in: numpy copies all of an array before it reads it unaligned.
    """
    index, shift = at >> 3, (at.view(np.uint64) & np.uint64(7)) << np.uint64(3)
    # In numpy a shift by 64 gives 0.
    words: Hashes = aligned[index] >> shift
    words |= aligned[index + 1] << (np.uint64(64) - shift)
    return words


def _hash_words(words: npt.NDArray[np.uint64]) -> Hashes:
    """Hash values of several words each."""
    hashes = np.zeros(len(words), np.uint64)
    for place in range(words.shape[1]):
        hashes = _mixed(hashes + words[:, place])
    return hashes


def _summed(parts: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """The hash of each group of parts, from its sum and length."""
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)))
    begin = offsets - offsets[0]
    grouped: Hashes = sums[begin[1:]] - sums[begin[:-1]]
    return _mixed(grouped + np.diff(offsets).astype(np.uint64) * _SECOND)


def _places(offsets: npt.NDArray[np.int64]) -> Hashes:
    """A hash of each part's place in its group, mixed into its own."""
    begin = offsets - offsets[0]
    ranks: npt.NDArray[np.int64] = np.arange(begin[-1]) - np.repeat(begin[:-1], np.diff(begin))
    return _mixed(np.arange(ranks.max(initial=0) + 1, dtype=np.uint64))[ranks]


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    offsets: npt.NDArray[np.int64] = array.offsets.cast(pa.int64()).to_numpy()
    return offsets


def _fixed(array: pa.Array, words: int = 1) -> Hashes:
    """The memory of values of so many words of eight bytes, nulls as they are; one row for each."""
    values: Hashes = values_of(array, np.dtype((np.uint64, words)) if words > 1 else np.uint64)
    return values


def _mixed(words: Hashes) -> Hashes:
    """SplitMix64: each bit of a word reaches all bits of its hash."""
    hashes: Hashes = words + _GOLDEN
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= factor
    hashes ^= hashes >> np.uint64(31)
    return hashes


@lru_cache(maxsize=4096)
def _of_name(name: str) -> np.uint64:
    """An odd factor for a column or a field."""
    return np.uint64(xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) | 1)
