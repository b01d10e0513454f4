"""The format ``abs-kafka`` as a source, with the options and columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from abs_core.errors import SchemaError
from abs_core.source import Limit, Source
from abs_sources.kafka import (
    NAME,
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    KafkaSource,
    KafkaSourceOptions,
    includes_headers,
)
from abs_spark.readable import ReadableDataSource, Reading


def _schema(given: Mapping[str, str]) -> pa.Schema:
    """Whether it is a stream or a batch is not known here: the reader checks the rest."""
    return SCHEMA_WITH_HEADERS if includes_headers(given) else SCHEMA


def _stream(given: Mapping[str, str], schema: pa.Schema) -> tuple[Source, Limit]:
    options = KafkaSourceOptions.parse(given)
    return _checked(KafkaSource(options), schema), options.limit


def _batch(given: Mapping[str, str], schema: pa.Schema) -> Source:
    return _checked(KafkaSource(KafkaSourceOptions.parse(given, batch=True)), schema)


def _checked(source: KafkaSource, schema: pa.Schema) -> Source:
    if schema.names != source.schema.names:
        raise SchemaError(
            f"{NAME} has the columns {', '.join(source.schema.names)}, not {', '.join(schema.names)}.",
            remedy="leave out .schema(...), and decode key and value in Spark; the column headers "
            "comes with includeHeaders=true.",
        )
    return source


class KafkaReadable(ReadableDataSource):
    """Reads Kafka; see ``abs_sources.kafka`` for its options. The half of a format that also writes."""

    reading = Reading(NAME, _schema, _stream, _batch)
