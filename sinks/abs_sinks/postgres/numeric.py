"""Decimals in the binary form of numeric: digits to the base of 10,000 (numeric.c, numeric_send).

pgpq does this for columns; this is for the elements of arrays.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from abs_clients.buffers import Array, values_of

_LIMBS, _MASK, _BASE = 5, np.uint64(0xFFFF_FFFF), np.uint64(10_000)
# 10**38 times 1,000 (to bring the scale to a multiple of four) fills 41 decimal digits.
_DIGITS = 11


def numeric_values(array: pa.Array) -> tuple[Array, Array]:
    """The concatenated binary forms of decimal128 values, also under nulls, and their byte lengths."""
    scale = array.type.scale
    limbs, negative = _magnitude(values_of(array, np.dtype(("<u8", 2))))
    pad = -scale % 4
    digits = _to_digits(_times(limbs, 10**pad))
    used = digits != 0
    some = used.any(axis=1)
    first = np.where(some, used.argmax(axis=1), 0)
    last = np.where(some, _DIGITS - used[:, ::-1].argmax(axis=1), 0)  # one past
    # The last digit's weight is 10000 ** -fraction_groups.
    fraction_groups = (scale + pad) // 4
    header = np.empty((len(array), 4), np.int16)
    header[:, 0] = last - first
    header[:, 1] = np.where(some, _DIGITS - 1 - fraction_groups - first, 0)
    header[:, 2] = np.where(negative & some, 0x4000, 0)
    header[:, 3] = max(scale, 0)
    place = np.arange(_DIGITS)
    kept = np.hstack([np.ones((len(array), 4), bool), _between(place, first, last)])
    data = np.hstack([header, digits])[kept].astype(">i2")
    return data.view(np.uint8), (2 * kept.sum(axis=1)).astype(np.int32)


def _between(place: Array, first: Array, last: Array) -> Array:
    return (place >= first[:, None]) & (place < last[:, None])


def _magnitude(words: Array) -> tuple[Array, Array]:
    """Absolute values as 32-bit limbs, least first, and which were negative."""
    low, high = words[:, 0], words[:, 1]
    negative = high >> np.uint64(63) == 1
    flipped = ~low + np.uint64(1)
    carried = ~high + (flipped == 0)
    low, high = np.where(negative, flipped, low), np.where(negative, carried, high)
    limbs = np.zeros((_LIMBS, len(words)), np.uint64)
    limbs[0], limbs[1] = low & _MASK, low >> np.uint64(32)
    limbs[2], limbs[3] = high & _MASK, high >> np.uint64(32)
    return limbs, negative


def _times(limbs: Array, factor: int) -> Array:
    """Multiply in place; the product must fit 160 bits."""
    carry = np.zeros(limbs.shape[1], np.uint64)
    for limb in limbs:
        total = limb * np.uint64(factor) + carry
        limb[:], carry = total & _MASK, total >> np.uint64(32)
    return limbs


def _to_digits(limbs: Array) -> Array:
    """Digits to the base of 10,000, most significant first, one row for each value."""
    digits = np.empty((limbs.shape[1], _DIGITS), np.int16)
    for place in range(_DIGITS - 1, -1, -1):
        rest = np.zeros(limbs.shape[1], np.uint64)
        for limb in limbs[::-1]:
            total = (rest << np.uint64(32)) | limb
            limb[:], rest = total // _BASE, total % _BASE
        digits[:, place] = rest
    return digits
