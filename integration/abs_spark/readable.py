"""Base class of the formats that Spark can read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from abs_core.errors import AbsError
from abs_core.source import Limit, Source
from abs_spark.logs import show_logs
from abs_spark.reader import BatchReader, RefusedReader, StreamReader
from abs_spark.schema import arrow_schema, spark_schema


class ReadableDataSource(DataSource):
    """A source as Spark sees it. A subclass has a name and says how it is read.

    It must be importable on executors. A format that is written, too, inherits from ``AbsDataSource``
    besides; this one comes first. Options come as Spark hands them over: text to text, names in lower
    case. The subclass's methods raise ``OptionError`` with all that is wrong with them.
    """

    @classmethod
    @abstractmethod
    def stored_schema(cls, given: Mapping[str, str]) -> pa.Schema:
        """The schema, where the user gives none; may ask the source."""

    @classmethod
    @abstractmethod
    def open_stream(cls, given: Mapping[str, str], schema: pa.Schema) -> tuple[Source, Limit]:
        """The source of a stream, and what one epoch may take.

        Args:
            schema: the user's, or the stored one; a source that has a fixed one refuses another with
                ``SchemaError``.
        """

    @classmethod
    @abstractmethod
    def open_batch(cls, given: Mapping[str, str], schema: pa.Schema) -> Source:
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
            told = arrow_schema(schema)
            source, limit = self.open_stream(dict(self.options), told)
            return StreamReader(source, limit, told)
        except AbsError as error:
            return RefusedReader(error)

    def reader(self, schema: StructType) -> BatchReader:
        """Called once per batch query, by the planner.

        Raises:
            AbsError: before anything is read.
        """
        show_logs()
        told = arrow_schema(schema)
        return BatchReader(self.open_batch(dict(self.options), told), told)
