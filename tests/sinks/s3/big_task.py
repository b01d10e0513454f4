"""``python big_task.py OPTIONS MIB``: one task writes so much; prints its peak memory in MiB.

``OPTIONS`` is the sink's options as JSON; credentials come by the environment.
"""

from __future__ import annotations

import json
import resource
import sys

import numpy as np
import pyarrow as pa

from abs_core.model import HandleName
from abs_sinks.s3 import S3Options
from abs_sinks.s3.taskfiles import TaskFiles

ROWS = 65_536
SCHEMA = pa.schema([(name, pa.int64()) for name in "abcd"] + [("k", pa.int64())])
HANDLE = HandleName("0123456789abcdef", "job", 1, 2, 3, "ab")


def main() -> None:
    options = S3Options.parse(json.loads(sys.argv[1]))
    batches = int(sys.argv[2]) * (1 << 20) // (ROWS * 40)
    random = np.random.default_rng(1)
    files = TaskFiles(options, SCHEMA, HANDLE)
    for number in range(batches):
        # 24 random bits in 64: files of about half the size.
        columns = [pa.array(random.integers(0, 1 << 24, ROWS)) for _ in range(4)]
        keys = pa.array(np.arange(ROWS) % 50 + number % 7)
        files.write(pa.record_batch([*columns, keys], schema=SCHEMA))
    uploads = files.finish()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"peak": peak, "rows": files.rows, "size": sum(u.size for u in uploads)}))


if __name__ == "__main__":
    main()
