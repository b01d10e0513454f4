"""Threads in this process: of ours, and of librdkafka's clients."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from pathlib import Path

from abs_clients.kafka.timeouts import CALL_SECONDS
from abs_testing.case import within

OURS = "abs-kafka-", "kafka-io-"
"""How the names of the threads begin that the clients and the sink of Kafka start."""

_told: set[str] = set()
"""Names of threads that were told as the error of the file that left them: they are no later file's."""


def living(*prefixes: str) -> list[str]:
    """The names of the threads that live and whose name begins with one of these."""
    return [each.name for each in threading.enumerate() if each.name.startswith(prefixes)]


def librdkafka_clients() -> list[str]:
    """The open clients of librdkafka, by their main thread; none where there is no /proc."""
    found = []
    for task in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().strip() == "rdk:main":
                found.append(f"librdkafka {task.name}")
    return found


def end_kafka_clients(seconds: float = CALL_SECONDS + 15) -> None:
    """Close this process's clusters of Kafka, and wait until no thread of theirs or of the sink lives.

    Before a relay or a broker goes: threads that are asking would look for it. librdkafka does so for
    a minute, and nothing stops it. A thread that goes on all the same is told once.

    Raises:
        AssertionError: some go on.
    """
    from abs_clients.kafka.cluster import close_clusters

    left: set[str] = set()

    def have_ended() -> bool:
        nonlocal left
        close_clusters()  # again and again: a thread that still ends may have connected meanwhile
        if librdkafka_clients():
            # An error that a test keeps refers to itself, by its traceback, and to the test's clients.
            gc.collect()
        left = {*living(*OURS)} - _told
        return not left

    ended = within(seconds, have_ended)
    _told.update(left)
    assert ended, f"they are closed, and go on: {sorted(left)}"
