"""The format ``abs-kafka``."""

from __future__ import annotations

from abs_spark.kafka_source import KafkaReadable


class KafkaDataSource(KafkaReadable):
    """Reads Kafka; see ``abs_sources.kafka`` for its options."""
