"""A small Spark session for tests and example jobs: two threads, quick to start.

The JVM's own options are in ``tests/spark/jvm.py``.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # A Python worker that starts on a busy machine takes longer than Spark's 15 seconds.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.session.timeZone": "UTC",
}


def small_session(scratch: Path, **conf: str) -> SparkSession:
    """A session that keeps all of its files under ``scratch``."""
    scratch.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[2]").appName("abs-tests")
    own = {
        # A name: the driver need not import what it imports.
        "spark.python.daemon.module": "tests.spark.warm_daemon",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
    }
    for name, value in {**CONF, **own, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
