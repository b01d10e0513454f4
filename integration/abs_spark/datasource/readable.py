"""Lets Spark read any ``abs_core.source.Source``: streams by ranges of offsets, batches at once.

Three Python processes take part. A planner pickles a reader to the tasks. A second process lives as
long as the query: it asks for offsets and cuts ranges into partitions. The tasks read. Spark's own
log keeps the offsets, which are the source's, as JSON; no secret is in them (I9). Options, credentials
among them, travel in the pickled reader, as any Spark connector's do.

The contract is ``pyspark/sql/datasource.py`` and ``sql/streaming/python_streaming_source_runner.py``
(seen in 4.3.0).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from abs_core.errors import AbsError, ConfigError
from abs_core.reading import rest_of
from abs_core.source import Limit, Offsets, Source, Split
from abs_spark.process.executor import on_executor
from abs_spark.process.logs import show_logs
from abs_spark.schema import arrow_schema, spark_schema, to_spark_schema

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # Spark 4.1 has neither for Python sources: stand-ins, which it never uses
    HAS_LIMITS = False
    ReadLimit = ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = ReadMaxRows = Any  # type: ignore
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]


def default_limit(limit: Limit) -> ReadLimit:
    """The limit as Spark's; only one of several bounds, as Spark's limits have one."""
    if limit.rows is not None:
        return ReadMaxRows(limit.rows)
    if limit.files is not None:
        return ReadMaxFiles(limit.files)
    if limit.bytes is not None:
        return ReadMaxBytes(limit.bytes)
    return ReadAllAvailable()


def given_limit(limit: ReadLimit, own: Limit) -> Limit:
    """Spark's limit as the core's: ``own`` in full if Spark returns ``default_limit(own)``.

    Spark passes another limit if the trigger overrides the options (``once``: all data).
    """
    if limit == default_limit(own):
        return own
    if isinstance(limit, ReadMaxRows):
        return Limit(rows=limit.max_rows)
    if isinstance(limit, ReadMaxFiles):
        return Limit(files=limit.max_files)
    if isinstance(limit, ReadMaxBytes):
        return Limit(bytes=limit.max_bytes)
    return Limit()


class _SplitReader:
    """What every reader does in its tasks.

    Args:
        source: what is read; pickled to the tasks.
        schema: of the batches, as Spark was told; see ``abs_spark.schema.arrow_schema``.
    """

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        self._source = source
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of one split; of no split where there is nothing to read at all.

        Raises:
            AbsError: the task fails, and is tried again by Spark.
        """
        # What Spark makes of an empty list of partitions: none up to 4.1, then one without a value.
        if partition is None or partition.value is None:
            return
        split: Split = partition.value
        with on_executor():
            show_logs()
            reader = self._source.open(split)
            try:
                patience = self._source.patience
                patience = replace(patience, system=patience.system or split.source)
                for batch in rest_of(reader, patience, lambda: reader.finished):
                    yield to_spark_schema(batch, self._schema)
            finally:
                reader.close()


class StreamReader(_SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A source as Spark's micro-batches see it. An epoch's range is fixed before its tasks start.

    Args:
        source, schema: as in ``_SplitReader``.
        limit: what one epoch may take, where the trigger says nothing else.

    Raises:
        ConfigError: a limit, in a Spark that has none.
    """

    def __init__(self, source: Source, limit: Limit, schema: pa.Schema) -> None:
        if limit != Limit() and not HAS_LIMITS:
            raise ConfigError(
                "This Spark cannot limit what an epoch takes from a Python source.",
                remedy="use Spark 4.2 or newer, or leave the limit out.",
            )
        super().__init__(source, schema)
        self._limit = limit
        self._reached: Offsets | None = None
        self._is_last = False
        self._last: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        show_logs()
        self._reached = self._source.initial()
        return _value(self._reached)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options."""
        return default_limit(self._limit)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next epoch; ``start`` if there is no new data.

        Spark 4.1 calls it without arguments: the start is then the end of the last range or, after a
        restart, the source's beginning, which is equivalent without a limit.

        Raises:
            AbsError: the query stops with its text.
        """
        show_logs()
        begin = _text(start) if start is not None else self._reached or self._source.initial()
        if self._is_last:
            self._last = self._last or self._source.latest(begin, Limit())
            self._reached = self._last
        else:
            asked = Limit() if limit is None else given_limit(limit, self._limit)
            self._reached = self._source.latest(begin, asked)
        return _value(self._reached)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop at the present data; a source that cannot gives all in one epoch."""
        closed = self._source.until_now()
        if closed is None:
            self._is_last = True
        else:
            self._source = closed

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the data, for the query's progress."""
        seen = self._source.seen()
        return None if seen is None else _value(seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition for each split; the same range always gives the same ones.

        Raises:
            AbsError: the range can no longer be read unchanged; the query stops.
        """
        self._reached = _text(end)
        if start == end:
            return []
        return list(map(InputPartition, self._source.splits(_text(start), self._reached)))

    def commit(self, end: dict[str, Any]) -> None:
        """All data up to ``end`` is committed; called when the next epoch is planned."""
        self._source.committed(_text(end))


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at every call except ``stop``, and when it is pickled for a task."""

    def __init__(self, error: AbsError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = reportLatestOffset = _refuse  # noqa: N815
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815
    partitions = read = commit = __reduce__ = _refuse


class BatchReader(_SplitReader, DataSourceReader):
    """All that a source holds when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """One partition for each split of what lies between the source's beginning and its end.

        Raises:
            AbsError: the query does not start.
        """
        show_logs()
        start = self._source.initial()
        end = self._source.latest(start, Limit())
        return [] if start == end else list(map(InputPartition, self._source.splits(start, end)))


def _value(offsets: Offsets) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(offsets)
    return value


def _text(value: dict[str, Any]) -> Offsets:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class ReadableDataSource(DataSource):
    """A source as Spark sees it. A subclass has a name and says how it is read.

    It must be importable on executors. A format that is written, too, inherits from ``AbsDataSource``
    besides; this one comes first. Options come as Spark hands them over: text to text, names in lower
    case. The subclass's methods raise ``OptionError`` with all that is wrong with them.
    """

    @classmethod
    @abstractmethod
    def stored_schema(cls, options: Mapping[str, str]) -> pa.Schema:
        """The schema, where the user gives none; may ask the source."""

    @classmethod
    @abstractmethod
    def open_stream(cls, options: Mapping[str, str], schema: pa.Schema) -> tuple[Source, Limit]:
        """The source of a stream, and what one epoch may take.

        Args:
            schema: the user's, or the stored one; a source that has a fixed one refuses another with
                ``SchemaError``.
        """

    @classmethod
    @abstractmethod
    def open_batch(cls, options: Mapping[str, str], schema: pa.Schema) -> Source:
        """The source of a batch read."""

    def schema(self) -> StructType:
        """Asked for where the user gives no schema.

        Raises:
            AbsError: it cannot be told.
        """
        show_logs()
        return spark_schema(self.stored_schema(dict(self.options)))

    def streamReader(self, schema: StructType) -> StreamReader | RefusedReader:  # noqa: N802
        """Called by the planner, and once by the process that lives as long as the query.

        What is wrong is raised by the reader at its first call, before anything is read: where this
        function itself raises, PySpark (``python_streaming_source_runner.py``, seen in 4.3.0) stops a
        reader that it never got, and ``UnboundLocalError: ... 'reader'`` hides the error.
        """
        show_logs()
        try:
            rows_schema = arrow_schema(schema)
            source, limit = self.open_stream(dict(self.options), rows_schema)
            return StreamReader(source, limit, rows_schema)
        except AbsError as error:
            return RefusedReader(error)

    def reader(self, schema: StructType) -> BatchReader:
        """Called once per batch query, by the planner.

        Raises:
            AbsError: before anything is read.
        """
        show_logs()
        rows_schema = arrow_schema(schema)
        return BatchReader(self.open_batch(dict(self.options), rows_schema), rows_schema)
