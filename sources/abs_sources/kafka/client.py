"""librdkafka's configuration of the source's clients, from its ``kafka.*`` options."""

from __future__ import annotations

import logging
from typing import Any

from abs_clients.kafka import configs
from abs_clients.kafka.settings import Settings

log = logging.getLogger("abs_sources.kafka")

_OWN = {
    "enable.auto.offset.store": False,
    # A place that is gone is an error to decide about, never a reason to begin elsewhere.
    "auto.offset.reset": "error",
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
    return configs.consumer_settings(settings, _DEFAULTS, _OWN)
