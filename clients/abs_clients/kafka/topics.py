"""What brokers say of topics: looked up once per process, and again where a record does not fit."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import kafka.errors as errors
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from abs_clients.kafka.errors import translate_errors
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.wire import run
from abs_core.errors import RefusedError, UnavailableError
from abs_core.patience import Patience

_CONFIGS = (
    "max.message.bytes",
    "cleanup.policy",
    "min.insync.replicas",
    "message.timestamp.type",
    "unclean.leader.election.enable",
)

_UNREADABLE = (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError)

APPEARS = Patience(seconds=5.0, first_pause=0.02)
"""With a broker that has not heard of a topic: the topic may be new, or the broker just started."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic, as the brokers describe it.

    Args:
        partitions: how many.
        replicas: of its least replicated partition.
        operations: what the principal may do with it; None where the broker does not tell.
        configs: those of ``_CONFIGS`` that may be read.
        id: unique for ever: a topic that is made anew has another; None where the broker tells none.
    """

    name: str
    partitions: int
    replicas: int
    operations: frozenset[str] | None = None
    configs: tuple[tuple[str, str], ...] = ()
    id: str | None = None

    @property
    def max_message_bytes(self) -> int | None:
        """The largest batch that it takes; None where that may not be read."""
        given = dict(self.configs).get("max.message.bytes")
        return None if given is None else int(given)

    @property
    def compacted(self) -> bool:
        return "compact" in dict(self.configs).get("cleanup.policy", "")


class _UnseenError(UnavailableError):
    """The broker that was asked does not know all of the topics."""


class _DisputedError(UnavailableError):
    """One broker knows a topic, and another does not."""


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
        try:
            asked = _ask(settings, missing)
        except _DisputedError:
            # One broker knows it and another does not: it is new, or was just deleted.
            asked = APPEARS.retry(lambda: _ask(settings, missing))
        with _lock:
            for name in missing:
                _known.pop((settings, name), None)
            _known.update({(settings, name): facts for name, facts in asked.items()})
        found |= asked
    return found


def topics_in_time(
    settings: Settings, names: Iterable[str], *, again: bool = False
) -> dict[str, TopicFacts]:
    """As ``topic_facts``, but a topic counts as missing only when it was looked for for a while.

    For where a missing topic ends the job. Topics that are known cost no more, and all that are missing
    are looked for at once.
    """
    wanted = list(dict.fromkeys(names))
    found: dict[str, TopicFacts] = {}

    def look() -> None:
        unseen = [name for name in wanted if name not in found]
        found.update(topic_facts(settings, unseen, again=again))
        if len(found) < len(wanted):
            raise _UnseenError("A broker has not heard of a topic yet, or there is none.")

    with suppress(_UnseenError):
        APPEARS.retry(look)
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
                max_version=10,  # with the topic's id
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
            with translate_errors(f"looking at topic {topic.name}"):
                raise kind(topic.name)
        there.append(topic)
    seen = [topic.name for topic in there]
    configs = _configs(settings, seen) if seen else {}
    return {
        topic.name: TopicFacts(
            topic.name,
            len(topic.partitions),
            min((len(p.replica_nodes) for p in topic.partitions), default=0),
            _operations(topic.authorized_operations),
            tuple(sorted(configs.get(topic.name, {}).items())),
            _id(topic.topic_id),
        )
        for topic in there
    }


def _configs(settings: Settings, names: list[str]) -> dict[str, dict[str, str]]:
    """Settings of topics that were just seen; of those that may not be read (DESCRIBE_CONFIGS), none.

    Raises:
        UnavailableError: this broker does not know one. What is not known is not the default.
    """

    async def work(manager: Any) -> Any:
        return await manager.send(
            DescribeConfigsRequest(
                resources=[(ConfigResourceType.TOPIC, name, list(_CONFIGS)) for name in names],
                min_version=1,
            )
        )

    doing = f"reading settings of topics {', '.join(names)}"
    try:
        response = run(settings, doing, work)
    except RefusedError:
        return {}
    found = {}
    for result in response.results:
        kind = errors.for_code(result.error_code)
        if kind in _UNREADABLE:
            continue
        if kind is errors.UnknownTopicOrPartitionError:
            raise _DisputedError(f"A broker knows no topic {result.resource_name}, another does.")
        if kind is not errors.NoError:
            with translate_errors(doing, settings):
                raise kind(result.error_message or result.resource_name)
        found[result.resource_name] = {
            each.name: each.value for each in result.configs if each.value is not None
        }
    return found


def _id(given: UUID | None) -> str | None:
    """Brokers that know no ids tell none, or zeros."""
    return str(given) if given is not None and given.int else None


_OPERATIONS = {3: "READ", 4: "WRITE", 5: "CREATE", 8: "DESCRIBE", 10: "DESCRIBE_CONFIGS"}


def _operations(bits: set[int]) -> frozenset[str] | None:
    """From the bits that are set in the field of KIP-430; the 32nd alone: the broker does not tell."""
    if bits == {31}:
        return None
    return frozenset(name for bit, name in _OPERATIONS.items() if bit in bits)
