"""Makes Spark start the Python that runs this program.

Spark starts the ``python3`` of the PATH unless ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names
another. A service manager, cron or Airflow runs a virtual environment's python without activating it:
then ``python3`` is the system's, which has no abs-sinks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = "PYSPARK_PYTHON"
_NAMED = (PYTHON, "PYSPARK_DRIVER_PYTHON")
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_SECONDS = 60


def name_this_python() -> None:
    """Set Spark's Python to the one that runs this program, unless another is configured.

    Call it before the session is made. Does nothing under ``spark-submit``, which has already read its
    settings.
    """
    if any(os.environ.get(name) for name in _NAMED) or _GATEWAY in os.environ:
        return
    if shutil.which("python3") != sys.executable:
        os.environ[PYTHON] = sys.executable


def check_python(spark: SparkSession) -> None:
    """Check that the Python which Spark starts on this machine can import the formats.

    Raises:
        ConfigError: it cannot; names that Python, and this one.
    """
    path = shutil.which(_python_of(spark))
    if path is None or path == sys.executable:
        return  # where there is none, it is another machine's, or Spark's own error names it
    tried = subprocess.run(
        [path, "-c", "import abs_spark, pyspark_abs_postgres"],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise ConfigError(
            f"Spark starts {path} for the formats, and that Python cannot use them: {last}",
            remedy=f"set {PYTHON}={sys.executable} before the session is made (or `import abs_spark` "
            "before it, on one machine), or spark.pyspark.python when you submit.",
        )


def _python_of(spark: SparkSession) -> str:
    """What Spark's JVM starts; its order of places (Spark 4: ``PythonUtils``, configuration page)."""
    asked = ("spark.pyspark.driver.python", "spark.pyspark.python")
    places = [
        *(spark.conf.get(name, None) for name in asked),
        *map(os.environ.get, reversed(_NAMED)),
    ]
    return next(filter(None, places), "python3")
