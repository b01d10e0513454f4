"""A stream reader that raises a stored error when PySpark first calls it."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from abs_core.errors import AbsError
from abs_spark.limits import SupportsTriggerAvailableNow


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at every call except ``stop``, and when it is pickled for a task.

    PySpark (``python_streaming_source_runner.py``, seen in 4.3.0) stops the reader at its end even if
    ``streamReader`` raised, which would hide the error behind ``UnboundLocalError: ... 'reader'``.
    """

    def __init__(self, error: AbsError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = reportLatestOffset = _refuse  # noqa: N815
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815
    partitions = read = commit = __reduce__ = _refuse
