"""The maintenance of a table by Spark's own libraries, beside a job or after its death."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.spark.drivers import Session
from tests.spark.lake_spark import python_of_lake_spark


class Tending(Session):
    """``tend_lake.py`` on the Spark that its libraries are for.

    Args:
        given: the options of the sink: a path, or the properties of a catalog in SQLite.
        folder: for its log, and for what it is asked.
        endpoint: of the S3 server that the table is in; its keys are in the environment.
    """

    def __init__(
        self, kind: str, given: Mapping[str, str], folder: Path, endpoint: str = ""
    ) -> None:
        self._folder = folder
        python, environment = python_of_lake_spark()
        script = Path(__file__).with_name("jobs") / "tend_lake.py"
        place = given.get("path") or given["catalog.uri"].partition(":///")[2]
        command = [str(python), str(script), kind, place, str(folder), endpoint]
        super().__init__(command, folder, environment, "log")

    def clean(self) -> None:
        """Have it remove all that the table does not name."""
        asked = self._folder / "clean"
        asked.touch()
        self.wait_until(lambda: not asked.exists(), "it has cleaned", every=0.1)

    def result(self) -> dict[str, Any]:
        """Have it read the table and end; what it tells."""
        (self._folder / "enough").touch()
        assert self.end() == 0, self.log[-4000:]
        [told] = [line for line in self.log.splitlines() if line.startswith('{"done"')]
        found: dict[str, Any] = json.loads(told)
        return found
