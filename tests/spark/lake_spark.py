"""The release of Spark that delta-spark and iceberg-spark have jars for, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.packaging.venvs import ROOT, python_with
from tests.spark.jvm import HOME

_SPARK = ("pyspark==4.1.1", "setuptools==80.9.0")


def python_of_lake_spark() -> tuple[Path, dict[str, str]]:
    """Its Python, and the environment of a process that runs it."""
    python = python_with(*_SPARK)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop(HOME, None)  # it names the Spark of this Python, whose classes are others
    named = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(python))
    return python, {**environment, **named}


def ask_lake_spark(script: str, *given: object) -> Any:
    """The last line that a script of the folder ``jobs`` prints, as JSON."""
    python, environment = python_of_lake_spark()
    ended = subprocess.run(
        [python, Path(__file__).with_name("jobs") / script, *map(str, given)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def ask_with_file(script: str, folder: Path, question: Any) -> Any:
    """``ask_lake_spark`` with a question in a file, and a scratch folder beside it."""
    (folder / "asked.json").write_text(json.dumps(question))
    return ask_lake_spark(script, folder / "asked.json", folder / "scratch")
