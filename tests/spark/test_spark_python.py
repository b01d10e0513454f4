"""Spark starts the Python that has the formats, also where no virtual environment is activated."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import abs_spark
from abs_core.errors import ConfigError

pytestmark = pytest.mark.spark

_JOB = """
import abs_spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
abs_spark.register(spark)
spark.range(1).write.format("abs-postgres").mode("append").save()
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A Python without any package, as a system's own one is."""
    venv.create(tmp_path / "other", symlinks=True)
    return tmp_path / "other" / "bin" / "python3"


def test_a_job_run_by_a_python_that_is_not_first_on_the_path_finds_the_formats(
    tmp_path: Path, other_python: Path
) -> None:
    """And the last line that its user sees is the sentence of the error it ends with."""
    script = tmp_path / "job.py"
    script.write_text(_JOB)
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYSPARK")}
    environment["PATH"] = f"{other_python.parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode != 0
    assert "DATA_SOURCE_NOT_FOUND" not in ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    # The format was found, and asked for its options.
    assert last.startswith("abs-sinks: OptionError: "), ended.stderr[-3000:]
    assert "url" in last
    assert "What to do:" in last


def test_a_python_without_the_formats_is_named_when_they_are_registered(
    spark: SparkSession, other_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(other_python))
    with pytest.raises(ConfigError) as raised:
        abs_spark.register(spark)
    assert str(other_python) in raised.value.what
    assert f"PYSPARK_PYTHON={sys.executable}" in (raised.value.remedy or "")
