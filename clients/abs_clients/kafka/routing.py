"""Caches the nodes of coordinators and leaders per connection.

Both move. A former coordinator says so (NOT_COORDINATOR), or does not answer: then ``wire.run``
clears the cache, and the caller's next try asks anew. So a stale coordinator costs a try, and gives
no wrong answer. A former leader may answer, and lag behind: users of cached leaders look again
before they conclude that something is missing.

A connection knows the brokers' addresses as of its last query; a new one's is queried when it is
needed (``_ensure_addresses``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import kafka.errors as errors
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

_CACHE = "_abs_routing"
"""The attribute of a connection's manager: what it knows ends with it."""

MAX_ENTRIES = 10_000
"""Nodes that a connection remembers at most of a kind; then it begins anew."""

T = TypeVar("T")

_TRANSACTION = 1
"""FindCoordinator's key type."""

Partition = tuple[str, int]


class MissingPartitionError(errors.LeaderNotAvailableError):  # type: ignore[misc]
    """The queried broker does not know the topic or partition. It may be new, so this passes."""


@dataclass(slots=True)
class RoutingCache:
    """Nodes known to one connection; only for the thread that runs its I/O.

    Args:
        coordinators: by transactional id.
        leaders: by topic and partition.
        addresses: whether the brokers' were queried since the last failure.
    """

    coordinators: dict[str, int] = field(default_factory=dict)
    leaders: dict[Partition, int] = field(default_factory=dict)
    addresses: bool = True


def routing_of(manager: Any) -> RoutingCache:
    """The cache of this manager's connection."""
    cache: RoutingCache = manager.__dict__.setdefault(_CACHE, RoutingCache())
    return cache


def invalidate(manager: Any) -> None:
    """Clear the cache after a failure, brokers included.

    kafka-python's own refreshing stops for good when one of ours fails beside it.
    """
    manager.__dict__[_CACHE] = RoutingCache(addresses=False)


async def coordinators_of(manager: Any, ids: Sequence[str]) -> dict[str, int]:
    """The node of each id's coordinator, cached or queried."""
    return await _nodes_of(manager, routing_of(manager).coordinators, ids, _find_coordinators)


async def _nodes_of(
    manager: Any,
    seen: dict[T, int],
    keys: Sequence[T],
    find: Callable[[Any, Sequence[T]], Awaitable[dict[T, int]]],
    *,
    remembered: bool = True,
) -> dict[T, int]:
    """The node of each key: from the cache ``seen`` if ``remembered``, otherwise from ``find``."""
    nodes = {key: seen[key] for key in keys if remembered and key in seen}
    if unknown := [key for key in keys if key not in nodes]:
        asked = await find(manager, unknown)
        if len(seen) + len(asked) > MAX_ENTRIES:
            seen.clear()
        seen |= asked
        nodes |= asked
    await _ensure_addresses(manager, set(nodes.values()))
    return nodes


async def brokers_of(manager: Any) -> list[int]:
    """The nodes that exist now, including new ones."""
    await manager.cluster.refresh_metadata()
    return [broker.node_id for broker in manager.cluster.brokers()]


async def _ensure_addresses(manager: Any, nodes: Iterable[int]) -> None:
    """Query the addresses of these nodes if the connection lacks one."""
    cache = routing_of(manager)
    complete = all(manager.cluster.broker_metadata(node) is not None for node in nodes)
    if not complete or not cache.addresses:
        there = await brokers_of(manager)
        if away := sorted(set(nodes) - set(there)):
            raise errors.NodeNotReadyError(f"broker {away[0]} is not there")
        cache.addresses = True


async def _find_coordinators(manager: Any, ids: Sequence[str]) -> dict[str, int]:
    request = FindCoordinatorRequest(
        key_type=_TRANSACTION, coordinator_keys=list(ids), min_version=4
    )
    found: dict[str, int] = {}
    for row in (await manager.send(request)).coordinators:
        raise_for(row.error_code, f"finding the coordinator of {row.key}")
        found[row.key] = row.node_id
    return found


async def leaders_of(
    manager: Any, partitions: Sequence[Partition], *, remembered: bool = False
) -> dict[int, list[Partition]]:
    """The partitions by their leader's node; creates no topic.

    With ``remembered`` it takes cached leaders. A follower does not refuse every request for the
    leader.
    """
    seen = routing_of(manager).leaders
    leaders = await _nodes_of(manager, seen, partitions, _find_leaders, remembered=remembered)
    by_node: dict[int, list[Partition]] = defaultdict(list)
    for place in partitions:
        by_node[leaders[place]].append(place)
    return by_node


async def _find_leaders(manager: Any, partitions: Sequence[Partition]) -> dict[Partition, int]:
    response = await manager.send(metadata_request({topic for topic, _ in partitions}))
    for topic in response.topics:
        raise_for(topic.error_code, topic.name, missing=f"there is no topic {topic.name}")
    leaders = {
        (topic.name, partition.partition_index): partition.leader_id
        for topic in response.topics
        for partition in topic.partitions
    }
    for place in partitions:
        if place not in leaders:
            raise MissingPartitionError(f"there is no partition {place[0]}-{place[1]}")
        if leaders[place] < 0:
            raise errors.LeaderNotAvailableError(f"{place[0]}-{place[1]}")
    return {place: leaders[place] for place in partitions}


def metadata_request(topics: Iterable[str]) -> Any:
    """The request for these topics' ids and leaders; creates none."""
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=4)


def raise_for(code: int, subject: str, *, missing: str | None = None) -> None:
    """Raise the error of a broker's code, if it is one.

    Args:
        missing: the text of a ``MissingPartitionError`` for a topic or partition that is not known.
    """
    kind = errors.for_code(code)
    if missing is not None and kind is errors.UnknownTopicOrPartitionError:
        raise MissingPartitionError(missing)
    if kind is not errors.NoError:
        raise kind(subject)
