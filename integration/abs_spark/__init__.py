"""Exactly-once sinks and replayable sources for PySpark: the formats ``abs-...``.

Spark finds the formats by itself where the distribution is installed for the Python that Spark starts.
Imported before the session is made, this module makes that Python the one which runs the program, where
nothing names another (see ``abs_spark.interpreter``). Where discovery is switched off,
``abs_spark.register(spark)`` makes the formats known. Where a job imports it, an error of a sink that
ends the job is told again in the last line, below Spark's traceback; and queries of ours are stopped
before their session or the program ends (see ``abs_spark.stopping``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from abs_core.errors import ConfigError
from abs_spark.interpreter import check_python, name_this_python
from abs_spark.lastline import show_last
from abs_spark.stopping import stop_queries_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from abs_spark.foreach.explain import explain
    from abs_spark.foreach.function import epoch
    from abs_spark.foreach.spec import sink

__all__ = ["epoch", "explain", "register", "sink"]

name_this_python()
show_last()
stop_queries_first()


def register(spark: SparkSession) -> None:
    """Make the formats known to this Spark session; harmless where they are known already.

    One whose libraries are missing says so when it is used. The package must be importable by the
    Python of Spark's driver and executors all the same.

    Raises:
        ConfigError: this PySpark has no Python sinks (3.5); or the Python that Spark starts on this
            machine cannot import the formats.
    """
    try:
        from abs_spark.discovery import FORMATS, default_source
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        raise ConfigError(
            "The formats abs-... need PySpark 4.1 or newer: this one has no sinks in Python.",
            remedy="write through abs_spark.epoch in foreachBatch, which needs no format and works "
            "on PySpark 3.5, too.",
        ) from error

    check_python(spark)
    for name in FORMATS:
        spark.dataSource.register(default_source(name))


def __getattr__(name: str) -> Any:
    # Imported late: sinks' libraries take a while, and a job may use the formats alone.
    if name == "epoch":
        from abs_spark.foreach.function import epoch

        return epoch
    if name == "sink":
        from abs_spark.foreach.spec import sink

        return sink
    if name == "explain":
        from abs_spark.foreach.explain import explain

        return explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
