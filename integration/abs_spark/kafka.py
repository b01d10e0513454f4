"""The format ``abs-kafka``: a sink and a source."""

from __future__ import annotations

from abs_spark.formats.kafka import FORMAT
from abs_spark.kafka_source import KafkaReadable
from abs_spark.source import AbsDataSource


class KafkaDataSource(KafkaReadable, AbsDataSource):
    """Writes to Kafka exactly once, and reads it.

    See ``abs_sinks.kafka`` for the options of the sink, ``abs_sources.kafka`` for the source's.
    """

    format = FORMAT
