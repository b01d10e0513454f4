"""Facts about a cluster that a preflight needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.errors import translate_errors
from abs_clients.kafka.routing import brokers_of
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import TopicFacts, topic_facts
from abs_core.errors import AbsError, RefusedError

T = TypeVar("T")

STATE_TOPIC = "__transaction_state"

_ID = "cluster id"

_REQUEST_BYTES = "request bytes"

_CONFIGS = (
    "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
    "unclean.leader.election.enable",
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts about one cluster.

    Args:
        brokers: number of brokers.
        configs: readable settings of a broker.
        transaction_version: the finalised feature of KIP-890; None: not reported.
        can_end: whether it knows the requests by which a driver ends a task's transaction.
        state: the topic of the transaction coordinators; None if it does not exist yet, or may
            not be described.
        since_3_8: whether the brokers are of version 3.8 or newer (ListTransactions 1).
    """

    brokers: int
    configs: tuple[tuple[str, str], ...]
    transaction_version: int | None
    can_end: bool
    state: TopicFacts | None
    since_3_8: bool = True

    def number(self, name: str) -> int | None:
        """A numeric setting; None if it may not be read."""
        text = dict(self.configs).get(name)
        return None if text is None else int(text)


def cluster_id(settings: Settings) -> str:
    """The id from the cluster's formatting; cached per process.

    Raises RefusedError if the brokers have none (older than 0.10.1).
    """
    connections = cluster(settings)
    if learnt := connections.learnt(_ID):
        return str(learnt)

    async def work(manager: Any) -> str | None:
        response = await manager.send(MetadataRequest(topics=[], min_version=2))
        id_: str | None = response.cluster_id
        return id_

    identity = cluster(settings).run("asking for the cluster's id", work)
    if not identity:
        raise RefusedError("The brokers have no cluster id.", remedy="use Kafka 3.0 or newer.")
    connections.learn(_ID, identity)
    return identity


def request_bytes(settings: Settings) -> int | None:
    """The size of a request above which a broker closes the connection (socket.request.max.bytes).

    Cached per process. None: it may not be read. Raises TargetError if no broker answers.
    """
    connections = cluster(settings)
    if (learnt := connections.learnt(_REQUEST_BYTES)) is None:
        nodes = connections.run("asking for the brokers", brokers_of)
        configs = _if_allowed(lambda: connections.admin.broker_configs(nodes[0]))
        learnt = int(configs.get("socket.request.max.bytes", 0))
        connections.learn(_REQUEST_BYTES, learnt)
    return learnt or None


def cluster_facts(settings: Settings) -> ClusterFacts:
    """Query the brokers, without what the principal may not see; raises TargetError."""

    async def work(manager: Any) -> tuple[list[int], bool, bool]:
        versions = manager.broker_version_data
        needed = (
            DescribeTransactionsRequest,
            ListTransactionsRequest,
            EndTxnRequest,
            InitProducerIdRequest,
        )
        knows = all(_knows(versions, request) for request in needed)
        since_3_8 = _knows(versions, ListTransactionsRequest, least=1)
        return await brokers_of(manager), knows, since_3_8

    nodes, can_end, since_3_8 = cluster(settings).run("asking for the brokers", work)
    configs = _if_allowed(lambda: cluster(settings).admin.broker_configs(nodes[0]))
    finalized = (
        _if_allowed(lambda: _features(settings)).get("transaction.version", {}).get("finalized")
    )
    return ClusterFacts(
        len(nodes),
        tuple((name, configs[name]) for name in _CONFIGS if name in configs),
        None if finalized is None else int(finalized[1]),
        can_end,
        _if_allowed(lambda: topic_facts(settings, [STATE_TOPIC], again=True)).get(STATE_TOPIC),
        since_3_8,
    )


def _knows(versions: Any, request: Any, least: int = 0) -> bool:
    try:
        versions.api_version(request, min_version=least)
    except Exception:  # noqa: BLE001 - of whatever kind: the broker's version has no such request
        return False
    return True


def _if_allowed(look: Callable[[], dict[str, T]]) -> dict[str, T]:
    """What a look finds; nothing where it fails for good."""
    try:
        return look()
    except AbsError as error:
        if error.retryable:
            raise
        return {}


def _features(settings: Settings) -> dict[str, Any]:
    with translate_errors("reading features"):
        features: dict[str, Any] = cluster(settings).client().describe_features()
        return features
