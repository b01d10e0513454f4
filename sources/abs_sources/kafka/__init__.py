"""The source ``abs-kafka``: replayable topics, for Spark and for the embedded runtime."""

from abs_sources.kafka.columns import SCHEMA, SCHEMA_WITH_HEADERS
from abs_sources.kafka.options import NAME, KafkaSourceOptions, includes_headers
from abs_sources.kafka.source import KafkaSource

__all__ = [
    "NAME",
    "SCHEMA",
    "SCHEMA_WITH_HEADERS",
    "KafkaSource",
    "KafkaSourceOptions",
    "includes_headers",
]
