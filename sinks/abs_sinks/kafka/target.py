"""Who a Kafka target is: the cluster's own id, which every route to it tells the same."""

from __future__ import annotations

from abs_clients.kafka.cluster_facts import cluster_id
from abs_sinks.kafka.options import KafkaOptions

ANY_TOPIC = "*"


def identity(options: KafkaOptions) -> str:
    """``kafka:<cluster id>/<topic>``, with ``*`` where a column names the topic.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    return f"kafka:{cluster_id(options.kafka)}/{options.topic or ANY_TOPIC}"
