"""A stream reader that raises a stored error when PySpark first calls it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from abs_core.errors import AbsError
from abs_spark.limits import ReadLimit, SupportsTriggerAvailableNow


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at every call except ``stop``, and when it is pickled for a task.

    PySpark (``python_streaming_source_runner.py``, seen in 4.3.0) stops the reader at its end even if
    ``streamReader`` raised, which would hide the error behind ``UnboundLocalError: ... 'reader'``.
    """

    def __init__(self, error: AbsError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def commit(self, end: dict[str, Any]) -> None:
        self._refuse()

    def __reduce__(self) -> NoReturn:
        self._refuse()
