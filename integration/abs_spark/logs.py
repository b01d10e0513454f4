"""Makes our log lines visible where nobody has set up logging: in Spark's Python processes.

Spark's planner, commit process and workers run without a logging configuration, so Python would show
warnings only. Their standard error is the driver's console (planner, commit process; in local mode
the workers too) or the executor's stderr file. Five loggers, by what people want to see:

``abs_spark.start``     guarantee, preflight warnings, who took over; shown
``abs_spark.recovery``  skipped, rolled forward, swept and given up; shown
``abs_spark.epoch``     one line for each epoch that is committed; not shown with ``ABS_LOG=quiet``
``abs_spark.progress``  each task's pre-commit; shown with ``ABS_LOG=progress``
``abs_core.waiting``    a system that does not answer is waited for, and answers again; shown
"""

from __future__ import annotations

import logging
import os
import sys

from abs_core.patience import waiting

VARIABLE = "ABS_LOG"

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Console(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what standard error is at that moment: Spark swaps it around each call."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


def show_logs() -> None:
    """Show ``abs_spark`` on standard error, unless the process has a logging set-up of its own.

    Called at each entry from Spark; does nothing the second time. Spark 4.1's own capture of worker
    logs (``spark.sql.pyspark.worker.logging.enabled``) counts as a set-up and gets the same lines.
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
    _show(ours)


def _show(logger: logging.Logger) -> None:
    if not logger.hasHandlers():
        handler = _Console(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
        logger.propagate = False
