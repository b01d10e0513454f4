"""Facts about topics, cached per process, and refreshed if a record does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from abs_clients.kafka.admin import topic_uuid
from abs_clients.kafka.cluster import Cluster, cluster
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, SchemaError, UnavailableError

UNCLEAN, LEAST = "unclean.leader.election.enable", "min.insync.replicas"
"""Settings that decide whether an acknowledged record can be lost."""

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
"""Settings that limit how far a record's time may be from the broker's."""

NO_LIMIT = (1 << 63) - 1
"""Their value, in ms, for any time."""

_CONFIGS = (
    *("max.message.bytes", "cleanup.policy", LEAST, "message.timestamp.type", UNCLEAN),
    *(BEFORE, AFTER, "compression.type"),
)

_TOPIC = "topic"
"""The key under which a cluster keeps the facts of topics."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about one topic.

    Args:
        partitions: number of partitions.
        replicas: of its least replicated partition.
        operations: allowed to the principal; None if the broker does not tell.
        configs: the readable ones of ``_CONFIGS``.
        id: differs for a recreated topic; None if the broker has none.
        internal: whether the brokers keep it for themselves and take no records for it.
    """

    name: str
    partitions: int
    replicas: int
    operations: frozenset[str] | None = None
    configs: tuple[tuple[str, str], ...] = ()
    id: str | None = None
    internal: bool = False

    @property
    def max_message_bytes(self) -> int | None:
        """The largest batch; None if that may not be read."""
        limit = dict(self.configs).get("max.message.bytes")
        return None if limit is None else int(limit)

    @property
    def compression(self) -> str:
        """How batches are stored: a codec, "uncompressed", or "producer" (also if that is unknown)."""
        return dict(self.configs).get("compression.type", "producer")

    @property
    def cleanup_policy(self) -> str | None:
        """None if that may not be read."""
        return dict(self.configs).get("cleanup.policy")

    @property
    def time_limits(self) -> tuple[int, int] | None:
        """How many ms a record's time may lie behind and ahead; None: any, or that may not be read."""
        configs = dict(self.configs)
        if self.stamps_itself or not {BEFORE, AFTER} & set(configs):
            return None  # the broker sets the time itself, or it is older than these settings
        return int(configs.get(BEFORE, NO_LIMIT)), int(configs.get(AFTER, NO_LIMIT))

    @property
    def stamps_itself(self) -> bool:
        """Whether the broker replaces each record's time by that of its arrival."""
        return dict(self.configs).get("message.timestamp.type") == "LogAppendTime"

    @property
    def compacted(self) -> bool:
        return "compact" in (self.cleanup_policy or "")


def topic_facts(
    settings: Settings, names: Iterable[str], *, again: bool = False
) -> dict[str, TopicFacts]:
    """The existing ones of these topics; creates none.

    Args:
        again: ignore cached answers.

    Raises:
        RefusedError: a topic may not be described.
        TargetError: no broker answers.
    """
    wanted = list(dict.fromkeys(names))
    connections = cluster(settings)
    learnt = {} if again else {name: connections.learnt((_TOPIC, name)) for name in wanted}
    facts_of: dict[str, TopicFacts] = {name: facts for name, facts in learnt.items() if facts}
    missing = [name for name in wanted if name not in facts_of]
    if missing:
        connections.drop(*((_TOPIC, name) for name in missing))
        asked = _described(connections, missing)
        for name, facts in asked.items():
            connections.learn((_TOPIC, name), facts)
        facts_of |= asked
    return facts_of


def topic_ids(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """The ids of the existing ones of these topics, as they are now: none is from the cache.

    Nothing where the brokers have no ids. Raises as ``topic_facts``.
    """
    described = cluster(settings).admin.describe(names)
    ids = ((name, topic_uuid(said)) for name, said in described.items())
    return {name: id_ for name, id_ in ids if id_ is not None}


def topics_in_time(
    settings: Settings, names: Iterable[str], *, again: bool = False
) -> dict[str, TopicFacts]:
    """As ``topic_facts``, but a topic counts as missing only after repeated looks.

    For callers that end the job without the topic. Known topics cost no more, and all missing ones
    are awaited together.
    """
    wanted = list(dict.fromkeys(names))
    facts_of: dict[str, TopicFacts] = {}

    def look() -> dict[str, TopicFacts]:
        unseen = [name for name in wanted if name not in facts_of]
        facts_of.update(topic_facts(settings, unseen, again=again))
        return facts_of

    return cluster(settings).admin.until_heard(look, lambda _: len(facts_of) < len(wanted))


def configs_in_time(settings: Settings, name: str) -> dict[str, str]:
    """The settings of an existing topic, defaults included.

    Raises SchemaError if it does not exist, RefusedError if they may not be read.
    """
    connections = cluster(settings)

    def look() -> dict[str, str] | None:
        try:
            return connections.admin.configs(name)
        except SchemaError:
            if name in connections.admin.describe([name]):
                return None  # another broker knows it
            raise

    configs = connections.admin.until_heard(look, lambda answer: answer is None)
    if configs is None:
        raise UnavailableError(f"A broker does not know topic {name} yet.")
    return configs


def _described(connections: Cluster, names: list[str]) -> dict[str, TopicFacts]:
    """The existing ones of these topics.

    One broker may know a new or just deleted topic and another not. Unknown settings are not the
    defaults, so they are queried until brokers agree; raises UnavailableError if they do not.
    """

    def look() -> dict[str, TopicFacts] | None:
        try:
            said = connections.admin.describe(names, operations=True)
            return {
                name: _facts(topic, _configs(connections, name)) for name, topic in said.items()
            }
        except SchemaError:
            return None

    facts_of = connections.admin.until_heard(look, lambda answer: answer is None)
    if facts_of is None:
        raise UnavailableError(
            f"One broker knows a topic of {', '.join(names)}, and another one does not.",
            remedy="check that all brokers are up, and belong to the same cluster.",
        )
    return facts_of


def _configs(connections: Cluster, name: str) -> dict[str, str]:
    """Settings of a topic that was just seen; none without DESCRIBE_CONFIGS."""
    try:
        configs_of = connections.admin.configs(name)
    except RefusedError:
        return {}
    return {key: configs_of[key] for key in _CONFIGS if key in configs_of}


def _facts(said: Any, configs: dict[str, str]) -> TopicFacts:
    operations = said.authorized_operations
    return TopicFacts(
        said.name,
        len(said.partitions),
        min((len(p.replicas) for p in said.partitions), default=0),
        None if operations is None else frozenset(operation.name for operation in operations),
        tuple(sorted(configs.items())),
        topic_uuid(said),
        said.is_internal,
    )
