"""PySpark's daemon with what every Python worker of a test's job imports: its forks have it.

A worker needs 0.4 s of CPU to import it, and a session starts dozens. Only libraries, nothing of ours:
what our modules do as they are loaded, they do in each worker, as with PySpark's own daemon.
"""

from __future__ import annotations

import gc
import runpy

import numpy  # noqa: F401, ICN001
import pandas  # type: ignore[import-untyped]  # noqa: F401, ICN001
import psycopg  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a fork collects after each task: over all of these, and copies their pages
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
