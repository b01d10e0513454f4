"""Checks the recipe of delta-spark, where delta-spark is: by ``check_once``, whose rules it prints.

python check_delta_spark.py
python check_delta_spark.py RECIPE   # two jobs of one session, by a recipe in RECIPE.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from abs_core.ownwrite import Token
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


def check_two_jobs(name: str, batches: Sequence[DataFrame], folder: str) -> None:
    """While one job is about to merge its batch, another one of the session writes its own."""
    first, second = f"{folder}/first", f"{folder}/second"
    write_first, write_second = (recipe(name, place)[0] for place in (first, second))
    merges = list[str]()
    sql = SparkSession.sql

    def between(session: SparkSession, query: str, *given: Any, **named: Any) -> DataFrame:
        if "MERGE" in query:
            merges.append(query)
            if len(merges) == 1:
                write_second(batches[1], Token("second", 1 << 32))
        return sql(session, query, *given, **named)

    SparkSession.sql = between  # type: ignore[assignment,method-assign]
    write_first(batches[0], Token("first", 1 << 32))
    assert len(merges) == 2
    for place, rows in ((first, batches[0]), (second, batches[1])):
        found = DeltaTable(place).to_pyarrow_table().to_pylist()
        due = [row.asDict() for row in rows.collect()]
        assert sorted(found, key=repr) == sorted(due, key=repr), place


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        spark = small_session(Path(scratch), **DELTA)
        rows = ([(1, 10), (2, 20)], [(1, 5)])
        batches = [spark.createDataFrame(each, SCHEMA) for each in rows]
        if len(sys.argv) > 1:
            check_two_jobs(sys.argv[1], batches, scratch)
        else:
            print(check_once(Target(spark).opened, batches, patience=15))
        spark.stop()
