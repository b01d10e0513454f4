"""Batches are read in a thread of their own while the caller encodes the ones before."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

AHEAD = 8
"""How many batches are read before they are asked for: what they hold is in memory."""

Batches = Generator[pa.RecordBatch, None, None]


def reading_ahead(batches: Batches, count: int = AHEAD) -> Batches:
    """The same batches in the same order; an error comes where it would have come.

    The caller closes it (``contextlib.closing``): ``batches`` are closed then, by the thread that
    reads them, and the thread has ended.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="abs-s3-read") as pool:
        coming = deque(pool.submit(next, batches, None) for _ in range(count))
        try:
            while (batch := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, batches, None))
                yield batch
        finally:
            for waiting in coming:
                waiting.cancel()
            pool.submit(batches.close)
