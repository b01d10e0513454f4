"""Runs SQL with Spark's own libraries of the lake, one request after another.

python run_sql.py SQLITE_FILE FOLDER

A request is a file ``N.json`` in the folder, from 0 on: a list of statements. Its answer ``N.answer``
has the rows of the last one, or what Spark said against one. A file ``enough`` ends it. Iceberg tables
are those of pyiceberg's SQL catalog ``default``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.jobs.tend_lake import session


def answered(spark: SparkSession, statements: list[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for statement in statements:
        try:
            rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
        except Exception as error:  # noqa: BLE001 - the test that asked fails with it
            return {"error": f"{statement}: {error}"[:2000]}
    return {"rows": rows}


def main(place: str, folder: str) -> None:
    spark, number = session(place, ""), 0
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    while not Path(folder, "enough").exists():
        asked = Path(folder, f"{number}.json")
        if not asked.exists():
            time.sleep(0.05)
            continue
        told = json.dumps(answered(spark, json.loads(asked.read_text())), default=str)
        written = asked.with_suffix(".written")
        written.write_text(told)
        written.rename(asked.with_suffix(".answer"))
        number += 1
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
