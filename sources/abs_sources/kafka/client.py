"""librdkafka's configuration of the source's clients, from its ``kafka.*`` options."""

from __future__ import annotations

import logging
from typing import Any

from abs_clients.kafka.settings import Settings

log = logging.getLogger("abs_sources.kafka")

client_log = logging.getLogger("abs_sources.kafka.librdkafka")
# What matters becomes an error; without a handler librdkafka's lines would go to standard error.
client_log.addHandler(logging.NullHandler())

_QUIET = {"log_level": "2"}
"""librdkafka tells of each connection that fails, and of each client that ends, by default."""

_OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A place that is gone is an error to decide about, never a reason to begin elsewhere.
    "auto.offset.reset": "error",
    # Markers of transactions and aborted records take up offsets: where a partition ends is told by
    # this event, a count of records would never get there.
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
_DEFAULTS = {
    "group.id": "abs-sources",
    "isolation.level": "read_committed",
    # The default, 1000 ms, lets a fast reader wait most of the time once its queue was full.
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
}


def consumer_settings(settings: Settings) -> dict[str, Any]:
    """Settings of the consumer that reads records."""
    return {**_QUIET, **_DEFAULTS, **dict(settings.pairs), **_OWN}
