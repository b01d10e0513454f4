"""Threads of ours in this process."""

from __future__ import annotations

import threading

from abs_core.testing.case import within


def living(prefix: str) -> list[str]:
    """The names of the threads that live and whose name begins so."""
    return [each.name for each in threading.enumerate() if each.name.startswith(prefix)]


def end_kafka_clients(seconds: float = 30) -> None:
    """Close this process's clusters of Kafka, and wait until no thread of the sink lives.

    Before a relay or a broker goes: threads that are asking would look for it. librdkafka does so for
    a minute, and nothing stops it.

    Raises:
        AssertionError: some go on.
    """
    from abs_clients.kafka.cluster import close_clusters

    ours = "abs-kafka-"
    # Threads of closed sinks end by themselves. A client that one makes while its cluster is closed
    # stays for ever.
    within(1, lambda: not living(ours))
    close_clusters()
    assert within(seconds, lambda: not living(ours)), f"they are closed, and go on: {living(ours)}"
    close_clusters()
