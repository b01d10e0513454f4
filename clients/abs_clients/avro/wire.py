"""The registry's wire format: a zero byte, the schema's id in four bytes, then the Avro bytes.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 5


def header_of(number: int) -> bytes:
    """What stands before the bytes of a record that was written with the schema of this id."""
    return b"\0" + number.to_bytes(4, "big")


def ids_of(data: NDArray[np.uint8], start: Any, end: Any) -> NDArray[np.int64]:
    """The schema's id of each record; -1: it has none. ``data`` goes on for five bytes at least."""
    at = start[:, None] + np.arange(HEADER_BYTES)
    head = data[np.minimum(at, len(data) - 1)].astype(np.int64)
    number = head[:, 1] << 24 | head[:, 2] << 16 | head[:, 3] << 8 | head[:, 4]
    return np.where((end - start >= HEADER_BYTES) & (head[:, 0] == 0), number, -1)
