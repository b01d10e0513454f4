"""The Kafka sink: from Arrow batches to records that appear exactly once."""

from typing import TYPE_CHECKING

from abs_sinks import face

if TYPE_CHECKING:
    from abs_sinks.kafka.options import KafkaOptions
    from abs_sinks.kafka.register.store import KafkaRegister
    from abs_sinks.kafka.sink import KafkaSink

__all__ = ["KafkaOptions", "KafkaRegister", "KafkaSink"]

__getattr__ = face(__name__, KafkaOptions="options", KafkaRegister="register", KafkaSink="sink")
