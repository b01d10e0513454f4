"""Exactly-once sinks and replayable sources for PySpark: the formats ``abs-...``.

Spark discovers the formats if the distribution is installed for the Python that Spark starts. If
discovery is switched off, call ``abs_spark.register(spark)``.

The import has one effect, because it must come before the session is made: it sets Spark's Python to
the one that runs the program, unless another is configured (``abs_spark.process.interpreter``).
``register``, ``sink`` and ``epoch`` also install hooks (``abs_spark.hooks``): a sink's error that ends
the job is repeated in the last line, and the queries are stopped before their session or the program
ends.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from abs_core.errors import ConfigError
from abs_core.release import RELEASE
from abs_spark.process.interpreter import check_python, name_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from abs_spark.change_events import debezium
    from abs_spark.epochs.cut import cut, wait
    from abs_spark.foreach.explain import explain
    from abs_spark.foreach.function import epoch
    from abs_spark.foreach.once import once
    from abs_spark.foreach.spec import sink
    from abs_spark.lineage import openlineage
    from abs_spark.query_listener import listener

__all__ = [
    "__version__",
    "cut",
    "debezium",
    "epoch",
    "explain",
    "listener",
    "once",
    "openlineage",
    "register",
    "sink",
    "wait",
]

__version__ = RELEASE

name_this_python()


def register(spark: SparkSession) -> None:
    """Register the formats in this Spark session, and install the hooks; can be repeated.

    From then on ``start()`` of a query with such a format raises ``OptionError``, rows or no rows.

    A format with missing libraries fails when it is used. The Python of Spark's driver and executors
    must be able to import the package.

    Raises:
        ConfigError: this PySpark has no Python sinks (3.5); or the Python that Spark starts on this
            machine cannot import the formats.
    """
    from abs_spark.hooks import install_hooks
    from abs_spark.process.logs import tell_of_speed
    from abs_spark.process.program import program_hears
    from abs_spark.progress import hear_events

    try:
        from abs_spark.datasource.batch_size import hear_row_sizes
        from abs_spark.datasource.early import check_options_first
        from abs_spark.discovery import default_sources
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        raise ConfigError(
            "The formats abs-... need PySpark 4.1 or newer: this one has no sinks in Python.",
            remedy="write through abs_spark.epoch in foreachBatch, which needs no format and works "
            "on PySpark 3.5, too.",
        ) from error

    install_hooks()
    check_options_first()
    check_python(spark)
    hear_row_sizes()
    hear_events()
    with program_hears(spark) as hears:
        for source in default_sources():
            spark.dataSource.register(source)
    if not hears:
        tell_of_speed(spark)


_LATE = {
    "cut": "abs_spark.epochs.cut",
    "debezium": "abs_spark.change_events",
    "epoch": "abs_spark.foreach.function",
    "explain": "abs_spark.foreach.explain",
    "listener": "abs_spark.query_listener",
    "once": "abs_spark.foreach.once",
    "openlineage": "abs_spark.lineage",
    "sink": "abs_spark.foreach.spec",
    "wait": "abs_spark.epochs.cut",
}
"""Imported when used: sinks' libraries take a while, and a job may use the formats alone."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
