"""The source ``abs-kafka``: replayable topics, for Spark and for the embedded runtime."""

from abs_sources.kafka.options import NAME, KafkaSourceOptions, read_schema
from abs_sources.kafka.source import KafkaSource

__all__ = ["NAME", "KafkaSource", "KafkaSourceOptions", "read_schema"]
