"""The format ``abs-kafka``: a sink and a source, with the options and columns of Spark's own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_core.errors import SchemaError
from abs_core.source import Limit
from abs_sinks.kafka.door import FORMAT
from abs_sources.kafka import (
    NAME,
    KafkaSource,
    KafkaSourceOptions,
    read_schema,
)
from abs_spark.datasource.readable import ReadableDataSource
from abs_spark.datasource.source import AbsDataSource
from abs_spark.schema import arrow_schema, spark_schema


class KafkaDataSource(ReadableDataSource, AbsDataSource):
    """Writes to Kafka exactly once, and reads it.

    See ``abs_sinks.kafka`` for the options of the sink, ``abs_sources.kafka`` for the source's.
    """

    format = FORMAT

    @classmethod
    def stored_schema(cls, options: Mapping[str, str]) -> pa.Schema:
        """Whether it is a stream or a batch is not known here: the reader checks the rest."""
        return read_schema(options)

    @classmethod
    def open_stream(
        cls, options: Mapping[str, str], schema: pa.Schema
    ) -> tuple[KafkaSource, Limit]:
        parsed = KafkaSourceOptions.parse(options)
        return _checked(KafkaSource(parsed), schema), parsed.limit

    @classmethod
    def open_batch(cls, options: Mapping[str, str], schema: pa.Schema) -> KafkaSource:
        return _checked(KafkaSource(KafkaSourceOptions.parse(options, batch=True)), schema)


def _checked(source: KafkaSource, schema: pa.Schema) -> KafkaSource:
    source = source.pinned()
    if schema.names != source.schema.names:
        raise SchemaError(
            f"{NAME} has the columns {', '.join(source.schema.names)}, not {', '.join(schema.names)}.",
            remedy="leave out .schema(...), and decode key and value in Spark; the column headers "
            "comes with includeHeaders=true.",
        )
    for column in source.options.formats.columns:
        read, planned = (side.field(column).type for side in (source.schema, schema))
        if arrow_schema(spark_schema(pa.schema([(column, read)]))).field(0).type != planned:
            raise SchemaError(
                f"{NAME}: the column {column} is {read} by its schema, and {planned} in the query.",
                remedy="start the query again: the registry has a newer schema than when it was "
                f"planned; {column}.schema keeps one for good.",
            )
    return source
