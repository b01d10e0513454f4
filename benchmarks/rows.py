"""The rows that are written: a key, a text, a number, a moment; 76 bytes each in a binary COPY."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = "id bigint, name text, score double precision, at timestamptz"
"""Of the target table, as CREATE TABLE takes them."""

SPARK_BATCH_ROWS = 10_000
"""Spark's default for spark.sql.execution.arrow.maxRecordsPerBatch: what a Python sink gets."""

SPARK_SCHEMA = "id bigint, name string, score double, at timestamp"

_START_US = 1_700_000_000_000_000


def table(rows: int, first: int = 0) -> pa.Table:
    """Rows with the ids ``first`` and up; the same for the same arguments, always."""
    ids = pa.array(np.arange(first, first + rows))
    digits = pc.utf8_lpad(ids.cast(pa.string()), 12, "0")
    moments = pc.add(pc.multiply(ids, 1000), _START_US)
    return pa.table(
        {
            "id": ids,
            "name": pc.binary_join_element_wise("record", digits, "of many", " "),
            "score": pa.array(np.random.default_rng(first).random(rows)),
            "at": moments.cast(pa.timestamp("us", tz="UTC")),
        }
    )


def write_epochs(
    folder: Path, *, rows: int, files: int, epochs: int, distinct: bool = False
) -> None:
    """Parquet files for a streaming job that takes ``files`` of them as one epoch of ``rows`` rows.

    Args:
        distinct: each row has an id of its own; otherwise the epochs hold the same rows: the first
            one's files, linked under other names.
    """
    folder.mkdir(parents=True)
    for part in range(files):
        share = rows // files + (part < rows % files)
        first = folder / f"e000-{part}.parquet"
        pq.write_table(table(share, first=part * rows), first)
        for epoch in range(1, epochs):
            other = folder / f"e{epoch:03d}-{part}.parquet"
            if distinct:
                pq.write_table(table(share, first=(epoch * files + part) * rows), other)
            else:
                os.link(first, other)
