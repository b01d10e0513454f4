"""Shows the project's log lines in Spark's Python processes, which have no logging configuration.

Their standard error is the driver's console (planner, commit process; in local mode the workers too) or
the executor's stderr file. The loggers:

``abs_spark.start``     guarantee, preflight warnings, who took over; shown
``abs_spark.recovery``  skipped, rolled forward, swept and abandoned; shown
``abs_spark.epoch``     one line for each epoch that is committed; not shown with ``ABS_LOG=quiet``
``abs_spark.progress``  each task's pre-commit; shown with ``ABS_LOG=progress``
``abs_core.waiting``    waits for a system that does not answer; shown
``abs_sinks.changes``   what the changes of an epoch did to a table; not shown with ``ABS_LOG=quiet``

``ABS_LOG=json`` shows the same lines as JSON, one object a line: ``time``, ``level``, ``logger``,
``message``, and for an event of the protocol its name and fields.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from abs_core.patience import waiting

VARIABLE = "ABS_LOG"

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


_CHANGES = "abs_sinks.changes"

_LAUNCHED = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Set in the environment of a JVM that a Python program has started, and so in its Python workers'."""


def _has_bar() -> bool:
    """Whether Spark may show its progress bar on this standard error.

    Python processes of Spark are not told its setting: the bar is on by default where a Python program
    has started the JVM (Spark 3.5 to 4.3), and a process on another machine has no bar beside it.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = getattr(context, "_active_spark_context", None)
    if active is None:
        return _LAUNCHED in os.environ
    return str(active.getConf().get("spark.ui.showConsoleProgress")).lower() == "true"


class _Console(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the present standard error, which Spark replaces around each call."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        # Asked once: when lines of the end are shown, the JVM may be gone.
        self._start = "\n" if _has_bar() else ""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        # Spark's progress bar leaves its line unended.
        return f"{self._start}{super().format(record)}"


class _Json(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "abs_event", None)
        if event is not None:
            entry |= {"event": type(event).__name__, **asdict(event)}
        return json.dumps(entry, default=str)


def show_logs() -> None:
    """Show the log lines on standard error, unless the process has its own logging configuration.

    Called at each entry from Spark; can be repeated. Spark 4.1's capture of worker logs
    (``spark.sql.pyspark.worker.logging.enabled``) counts as a configuration and gets the same lines.
    """
    _show(logging.getLogger(waiting.LOGGER))
    ours = logging.getLogger("abs_spark")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
        asked = os.environ.get(VARIABLE, "")
        if asked != "progress":
            logging.getLogger("abs_spark.progress").setLevel(logging.WARNING)
        if asked == "quiet":
            logging.getLogger("abs_spark.epoch").setLevel(logging.WARNING)
        logging.getLogger(_CHANGES).setLevel("WARNING" if asked == "quiet" else "INFO")
    _show(ours)
    _show(logging.getLogger(_CHANGES))


_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_speed_told = False


def tell_of_speed(spark: Any) -> None:
    """Log, once, the setting that cannot be made for the user here, unless the session has it."""
    global _speed_told
    if _speed_told or spark.conf.get(_BYTES, None) == str(2**31 - 1):
        return
    _speed_told = True
    show_logs()
    logging.getLogger("abs_spark.start").info(
        "large epochs of a format are faster with %s=%d in the session; not with rows of 100 kB",
        _BYTES,
        2**31 - 1,
    )


def _show(logger: logging.Logger) -> None:
    if not logger.hasHandlers():
        handler = _Console()
        plain = os.environ.get(VARIABLE) != "json"
        handler.setFormatter(logging.Formatter(_FORMAT) if plain else _Json())
        logger.addHandler(handler)
        logger.propagate = False
