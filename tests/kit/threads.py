"""Threads of ours, and of the clients that we start, in this process."""

from __future__ import annotations

import threading

from abs_core.testing.case import within

OF_KAFKA = ("abs-kafka-", "kafka-io-")
"""The threads of Kafka's sink, and of kafka-python's clients."""


def living(*prefixes: str) -> list[str]:
    """The names of the threads that live and whose name begins so."""
    return [each.name for each in threading.enumerate() if each.name.startswith(prefixes)]


def end_kafka_clients(seconds: float = 30) -> None:
    """Close this process's clusters, and wait until none of their threads lives.

    Before a relay or a broker goes: threads that are asking would look for it. librdkafka does so for a
    minute, and nothing stops it.

    Raises:
        AssertionError: some go on.
    """
    from abs_clients.kafka.cluster import close_clusters

    def gone() -> bool:
        close_clusters()  # a thread that was asking may have made another
        return not living(*OF_KAFKA)

    assert within(seconds, gone), f"threads go on after they were closed: {living(*OF_KAFKA)}"
