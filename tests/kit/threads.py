"""Threads of ours in this process."""

from __future__ import annotations

import gc
import threading

from abs_clients.kafka.timeouts import CALL_SECONDS
from abs_testing.case import within


def living(*prefixes: str) -> list[str]:
    """The names of the threads that live and whose name begins with one of these."""
    return [each.name for each in threading.enumerate() if each.name.startswith(prefixes)]


def end_kafka_clients(seconds: float = CALL_SECONDS + 15) -> None:
    """Close this process's clusters of Kafka, and wait until no thread of theirs or of the sink lives.

    Before a relay or a broker goes: threads that are asking would look for it. librdkafka does so for
    a minute, and nothing stops it.

    Raises:
        AssertionError: some go on.
    """
    from abs_clients.kafka.cluster import close_clusters

    ours = "abs-kafka-", "kafka-io-"

    def have_ended() -> bool:
        close_clusters()  # again and again: a thread that still ends may have connected meanwhile
        if not living(*ours):
            return True
        # An error that a test holds refers to itself, by its traceback: it holds open sinks, whose
        # librdkafka goes on asking for tokens.
        gc.collect()
        return False

    assert within(seconds, have_ended), f"they are closed, and go on: {living(*ours)}"
