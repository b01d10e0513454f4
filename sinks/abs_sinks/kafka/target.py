"""Who a Kafka target is: the cluster's own id, which every route to it tells the same."""

from __future__ import annotations

import threading
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from abs_core.errors import RefusedError
from abs_sinks.kafka.control import run
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.settings import Settings

ANY_TOPIC = "*"

_lock = threading.Lock()
_known: dict[Settings, str] = {}


def identity(options: KafkaOptions) -> str:
    """``kafka:<cluster id>/<topic>``, with ``*`` where a column names the topic.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    return f"kafka:{cluster_id(options.kafka)}/{options.topic or ANY_TOPIC}"


def cluster_id(settings: Settings) -> str:
    """The id that was made when the cluster was formatted; asked once per process.

    Raises:
        RefusedError: the brokers have none (older than 0.10.1).
    """
    with _lock:
        if settings in _known:
            return _known[settings]

    async def work(manager: Any) -> str | None:
        response = await manager.send(MetadataRequest(topics=[], min_version=2))
        found: str | None = response.cluster_id
        return found

    found = run(settings, "asking for the cluster's id", work)
    if not found:
        raise RefusedError("The brokers have no cluster id.", remedy="take Kafka 3.0 or newer.")
    with _lock:
        _known[settings] = found
    return found
