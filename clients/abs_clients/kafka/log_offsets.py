"""First and end offset of a partition (ListOffsets), and its last stable offset; topic id.

Uses the control connection: a librdkafka consumer keeps asking a dead leader until its metadata is
15 minutes old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import (
    MissingPartitionError,
    leaders_of,
    metadata_request,
    raise_for,
)
from abs_clients.kafka.settings import Settings

_EARLIEST, _LATEST = -2, -1
_VERSIONS = (1, 7)
_UNCOMMITTED, _COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a partition's log.

    Args:
        first: the first existing offset.
        end: the offset of the next record, uncommitted ones included.
        stable: the first offset that a transaction still holds back; ``end`` if none does.
        topic_id: differs for a recreated topic. Empty if the broker does not tell (before Kafka
        2.8).
    """

    first: int
    end: int
    stable: int
    topic_id: str = ""


def log_offsets(settings: Settings, topic: str, partition: int) -> Extent | None:
    """The partition's extent by its leader; None if the queried broker knows no such partition.

    Raises:
        RefusedError: the principal may not describe the topic.
        UnavailableError: it has no leader, or one that does not know it yet, or no broker answers.
    """

    async def work(manager: Any) -> Extent | None:
        try:
            leaders = await leaders_of(manager, [(topic, partition)], remembered=True)
        except MissingPartitionError:
            return None
        node = next(iter(leaders))
        # A request may name a partition only once.
        # The end last: if it is the stable offset, nothing was open at that moment.
        asked = [
            manager.send(_request(topic, partition, *what), node_id=node)
            for what in ((_EARLIEST, _UNCOMMITTED), (_LATEST, _COMMITTED), (_LATEST, _UNCOMMITTED))
        ]
        described = manager.send(metadata_request([topic]), node_id=node)  # in the same round trip
        first, stable, end = [_offset(await future) for future in asked]
        return Extent(first, end, stable, _topic_id(await described))

    return cluster(settings).run(f"looking for the end of topic {topic}/{partition}", work)


def _request(topic: str, partition: int, when: int, isolation: int) -> Any:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    place = of_topic.ListOffsetsPartition(partition_index=partition, timestamp=when)
    least, most = _VERSIONS
    return ListOffsetsRequest(
        isolation_level=isolation,
        topics=[of_topic(name=topic, partitions=[place])],
        min_version=least,
        max_version=most,
    )


def _topic_id(response: Any) -> str:
    found = response.topics[0]
    raise_for(found.error_code, found.name, missing=f"there is no topic {found.name}")
    told = found.topic_id
    return str(told) if told else ""


def _offset(response: Any) -> int:
    found = response.topics[0].partitions[0]
    name = f"{response.topics[0].name}/{found.partition_index}"
    # One that leads no more says so, and one that was just named as the leader of a new topic may not
    # have heard of it yet: whoever asks again asks the new one.
    raise_for(found.error_code, name, missing=f"the leader of {name} knows no such partition")
    return int(found.offset)
