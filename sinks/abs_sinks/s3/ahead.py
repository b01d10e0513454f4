"""Reads batches ahead in a thread, while the caller encodes earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

AHEAD = 8
"""Batches read ahead, and held in memory."""

Batches = Generator[pa.RecordBatch, None, None]


def reading_ahead(batches: Batches, count: int = AHEAD) -> Batches:
    """Yield the same batches in order; an error comes at its place.

    The caller closes it (``contextlib.closing``), which closes ``batches`` and ends the thread.
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
