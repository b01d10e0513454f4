"""What brokers say of topics: looked up once per process, and again where a record does not fit."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import kafka.errors as errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.metadata import MetadataRequest

from abs_core.errors import AbsError, RefusedError
from abs_sinks.kafka.control import admin, run
from abs_sinks.kafka.faults import mapped
from abs_sinks.kafka.settings import Settings

_CONFIGS = ("max.message.bytes", "cleanup.policy", "min.insync.replicas", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic, as the brokers describe it.

    Args:
        partitions: how many.
        replicas: of its least replicated partition.
        operations: what the principal may do with it; None where the broker does not tell.
        configs: those of ``_CONFIGS`` that may be read.
    """

    name: str
    partitions: int
    replicas: int
    operations: frozenset[str] | None = None
    configs: tuple[tuple[str, str], ...] = ()

    @property
    def max_message_bytes(self) -> int | None:
        """The largest batch that it takes; None where that may not be read."""
        given = dict(self.configs).get("max.message.bytes")
        return None if given is None else int(given)

    @property
    def compacted(self) -> bool:
        return "compact" in dict(self.configs).get("cleanup.policy", "")


_lock = threading.Lock()
_known: dict[tuple[Settings, str], TopicFacts] = {}


def topic_facts(
    settings: Settings, names: Iterable[str], *, again: bool = False
) -> dict[str, TopicFacts]:
    """The topics that exist among these; none is created by asking.

    Args:
        again: ask the brokers even where the answer is known.

    Raises:
        RefusedError: a topic may not be described.
        TargetError: no broker answers.
    """
    wanted = list(dict.fromkeys(names))
    with _lock:
        found = {n: _known[settings, n] for n in wanted if not again and (settings, n) in _known}
    missing = [name for name in wanted if name not in found]
    if missing:
        asked = _ask(settings, missing)
        with _lock:
            for name in missing:
                _known.pop((settings, name), None)
            _known.update({(settings, name): facts for name, facts in asked.items()})
        found |= asked
    return found


def forget(settings: Settings) -> None:
    """Ask anew the next time."""
    with _lock:
        for key in [key for key in _known if key[0] == settings]:
            del _known[key]


def _ask(settings: Settings, names: list[str]) -> dict[str, TopicFacts]:
    request_topic = MetadataRequest.MetadataRequestTopic

    async def work(manager: Any) -> Any:
        return await manager.send(
            MetadataRequest(
                topics=[request_topic(name=name) for name in names],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
                min_version=8,
                max_version=9,
            )
        )

    response = run(settings, f"looking at topics {', '.join(names)}", work)
    there = []
    for topic in response.topics:
        kind = errors.for_code(topic.error_code)
        if kind is errors.TopicAuthorizationFailedError:
            raise RefusedError(
                f"Topic {topic.name} may not be described by the principal ({settings.principal}).",
                remedy=f"allow it DESCRIBE and WRITE on topic {topic.name}.",
            )
        if kind in (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError):
            continue
        if kind is not errors.NoError:
            with mapped(f"looking at topic {topic.name}"):
                raise kind(topic.name)
        there.append(topic)
    configs = _configs(settings, [topic.name for topic in there])
    return {
        topic.name: TopicFacts(
            topic.name,
            len(topic.partitions),
            min((len(p.replica_nodes) for p in topic.partitions), default=0),
            _operations(topic.authorized_operations),
            tuple(sorted(configs.get(topic.name, {}).items())),
        )
        for topic in there
    }


def _configs(settings: Settings, names: list[str]) -> dict[str, dict[str, str]]:
    """Their settings; empty where they may not be read (DESCRIBE_CONFIGS)."""
    if not names:
        return {}
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(_CONFIGS)) for name in names
    ]
    try:
        with mapped("reading settings of topics"):
            found = admin(settings).describe_configs(resources, config_filter="all")
    except AbsError as error:
        if error.retryable:
            raise
        return {}
    return {
        name: {key: str(each["value"]) for key, each in values.items() if each["value"] is not None}
        for name, values in found.get("topic", {}).items()
    }


_OPERATIONS = {3: "READ", 4: "WRITE", 5: "CREATE", 8: "DESCRIBE", 10: "DESCRIBE_CONFIGS"}


def _operations(bits: set[int]) -> frozenset[str] | None:
    """From the bits that are set in the field of KIP-430; the 32nd alone: the broker does not tell."""
    if bits == {31}:
        return None
    return frozenset(name for bit, name in _OPERATIONS.items() if bit in bits)
