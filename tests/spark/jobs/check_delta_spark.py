"""Checks the recipe of delta-spark by ``check_once``, where delta-spark is; prints the rules.

python check_delta_spark.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from abs_testing import OwnTarget, check_once
from tests.spark.jobs.own_write import DELTA, recipe
from tests.spark.jobs.session import small_session

SCHEMA = "account bigint, amount bigint"


class Target:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @contextmanager
    def opened(self) -> Iterator[OwnTarget]:
        with tempfile.TemporaryDirectory() as folder:
            write, applied = recipe("delta_spark_merge", folder)
            assert applied is not None

            def read() -> list[dict[str, int]]:
                if not DeltaTable.is_deltatable(folder):
                    return []
                rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
                return sorted(rows, key=lambda row: row["account"])

            def keep() -> object:
                version = DeltaTable(folder).version()
                return lambda: self.spark.sql(
                    f"RESTORE TABLE delta.`{folder}` TO VERSION AS OF {version}"
                )

            yield OwnTarget(write, applied, read, keep)  # type: ignore[arg-type]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        spark = small_session(Path(scratch), **DELTA)
        rows = ([(1, 10), (2, 20)], [(1, 5)])
        batches = [spark.createDataFrame(each, SCHEMA) for each in rows]
        print(check_once(Target(spark).opened, batches, patience=15))
        spark.stop()
