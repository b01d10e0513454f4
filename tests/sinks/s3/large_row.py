"""``python large_row.py FORMAT MIB``: encodes one row of a text; prints how much memory that took.

In MiB, above what the row itself takes.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from abs_sinks.s3 import S3Options
from abs_sinks.s3.formats import encoder


class Nowhere(io.RawIOBase):
    """Counts what is written, and drops it."""

    size = 0

    def write(self, data: Any) -> int:
        self.size += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True


def peak() -> int:
    told = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return int(told.split()[0]) >> 10


def main(fileformat: str, mib: int) -> None:
    text = os.urandom(1 << 19).hex().encode() * mib
    ends = np.array([0, len(text)], np.int32)
    column = pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(text))
    table, out = pa.table({"text": column}), Nowhere()
    options = S3Options.parse({"path": "s3://bucket/path", "fileformat": fileformat})
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak()
    encoding = encoder(out, table.schema, options)
    encoding.write(table)
    encoding.close()
    assert out.size > 0
    print(peak() - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
