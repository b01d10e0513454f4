"""A stream that cannot be read: an error that is kept until PySpark asks something of the reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from abs_core.errors import AbsError
from abs_spark.limits import ReadLimit, SupportsTriggerAvailableNow


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error wherever Spark asks, before anything is read; stopping it does nothing.

    PySpark's process of a query (``python_streaming_source_runner.py``, seen in 4.3.0) stops the
    reader at its end, also where none was made: an error of ``streamReader`` itself would be told as
    ``UnboundLocalError: ... 'reader'``. Nor does it go to a task: pickling it raises the error, too.
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
