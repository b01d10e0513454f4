"""Other releases of PySpark, each with the Python and the libraries of a runtime that people use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.venvs import CLIENTS, ROOT, python_with
from tests.spark import jvm
from tests.spark.drivers import PYTHON
from tests.spark.test_spark_connect import ROOTS


@dataclass(frozen=True)
class Runtime:
    """
    Args:
        python: its version; the one that runs the tests stands in where it is not installed.
        libraries: that it brings, beside Spark.
    """

    spark: str
    python: str
    libraries: tuple[str, ...]

    def __str__(self) -> str:
        return self.spark

    def interpreter(self) -> Path:
        """Its Python, in an environment of its own; with what our sinks need."""
        packages = (f"pyspark=={self.spark}", *self.libraries, *CLIENTS)
        return python_with(*packages, version=self.python)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let drivers run on it, and start its JVM."""
        monkeypatch.delenv(jvm.HOME, raising=False)
        monkeypatch.setenv(PYTHON, str(self.interpreter()))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / name) for name in ROOTS))


OLDEST = Runtime("3.5.7", "3.11", ("numpy==1.23.5", "pandas==1.5.3", "pyarrow==14.0.1"))
"""With what Databricks 15.4 LTS has: the oldest libraries that are promised."""

RUNTIMES = (
    OLDEST,
    # Databricks 16.4 LTS (whose pandas 1.5.3 nobody else has for this Python); EMR 7.13 and Glue 5.1
    # have this Spark, which on Python 3.12 asks for setuptools without saying so.
    Runtime(
        "3.5.6", "3.12", ("numpy==1.26.4", "pandas==2.1.4", "pyarrow==15.0.2", "setuptools==74.0.0")
    ),
    # Databricks 17.3 LTS; emr-spark-8 has this Spark.
    Runtime("4.0.2", "3.12", ("numpy==2.1.3", "pandas==2.2.3", "pyarrow==19.0.1")),
    Runtime("4.1.1", "3.12", ("numpy==2.1.3", "pandas==2.2.3", "pyarrow==21.0.0")),
    Runtime("4.2.0", "3.13", ("numpy==2.3.5", "pandas==2.3.3", "pyarrow==23.0.0")),
    # The newest that there are, as `pip install` brings them.
    Runtime("4.3.0", "3.13", ("numpy", "pandas<3", "pyarrow")),
)
