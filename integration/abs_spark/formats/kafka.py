"""The sink ``abs-kafka``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.sink import guarantee
from abs_spark.target import Format
from abs_spark.wal_default import with_wal


def parse_options(given: Mapping[str, str]) -> KafkaOptions:
    """As ``KafkaOptions.parse``, with the log of a stream (``wal_default``)."""
    return KafkaOptions.parse(with_wal(given))


def where(options: KafkaOptions) -> str:
    """Brokers and topic."""
    return f"kafka://{options.kafka.bootstrap}, topic {options.topic or 'of the column topic'}"


FORMAT = Format("abs-kafka", parse_options, KafkaSink, guarantee, where)
