"""A Spark with delta-spark and iceberg-spark beside a test, which changes tables by SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.spark.drivers import Session
from tests.spark.lake_spark import python_of_lake_spark


class SparkSql(Session):
    """Runs statements one by one, see ``jobs/run_sql.py``.

    Args:
        place: the SQLite file of pyiceberg's catalog.
        folder: for its log, and for what it is asked.
    """

    def __init__(self, place: Path, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        python, environment = python_of_lake_spark()
        script = Path(__file__).with_name("jobs") / "run_sql.py"
        command = [str(python), str(script), str(place), str(folder)]
        root = str(Path(__file__).parents[2])
        super().__init__(command, folder, {**environment, "PYTHONPATH": root}, "log")

    def run(self, *statements: str) -> list[dict[str, Any]]:
        """The rows of the last statement.

        Raises:
            AssertionError: Spark refused one.
        """
        asked = self._folder / f"{self._number}.json"
        answer = asked.with_suffix(".answer")
        self._number += 1
        written = asked.with_suffix(".asked")
        written.write_text(json.dumps(statements))
        written.rename(asked)
        self.wait_until(answer.exists, "Spark answers", every=0.02)
        told = json.loads(answer.read_text())
        assert "error" not in told, told["error"]
        rows: list[dict[str, Any]] = told["rows"]
        return rows
