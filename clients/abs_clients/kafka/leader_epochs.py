"""Where the records of an earlier leader end, in the log of the present one.

The epoch of a partition's leader rises with each election. A broker that takes over with fewer records
cuts off what the former leader had beyond, whatever is written since (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import leaders_of, raise_for
from abs_clients.kafka.settings import Settings

LeaderEpoch = tuple[str, int, int]
"""Topic, partition, and the epoch of a leader."""

_CONSUMER = -1
"""The number of who is no replica."""


def ends_of_leaders(settings: Settings, leaders: Iterable[LeaderEpoch]) -> dict[LeaderEpoch, int]:
    """The offset behind the last record up to each leader's; one that is not known is left out.

    Of records that were removed, the offset of the first one that is left. Needs DESCRIBE.
    """
    wanted = sorted(set(leaders))
    if not wanted:
        return {}

    async def work(manager: Any) -> dict[LeaderEpoch, int]:
        led_by = await leaders_of(manager, sorted({(topic, n) for topic, n, _ in wanted}))
        node_of = {place: node for node, places in led_by.items() for place in places}
        ends: dict[LeaderEpoch, int] = {}
        # A request has a partition once: the leaders of one partition go in turn.
        rounds = [list(of_place) for _, of_place in groupby(wanted, lambda leader: leader[:2])]
        for nth in range(max(map(len, rounds))):
            asked = [leaders[nth] for leaders in rounds if nth < len(leaders)]
            for node in {node_of[leader[:2]] for leader in asked}:
                there = {leader[:2]: leader for leader in asked if node_of[leader[:2]] == node}
                for topic in (await manager.send(_request(there.values()), node_id=node)).topics:
                    for answer in topic.partitions:
                        place = topic.topic, answer.partition
                        raise_for(answer.error_code, f"{topic.topic}-{answer.partition}")
                        if answer.end_offset >= 0:
                            ends[there[place]] = answer.end_offset
        return ends

    return cluster(settings).run("asking where an earlier leader's records end", work)


def _request(leaders: Iterable[LeaderEpoch]) -> Any:
    of_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    of_partition = of_topic.OffsetForLeaderPartition
    topics = [
        of_topic(
            topic=name,
            partitions=[
                of_partition(partition=number, current_leader_epoch=-1, leader_epoch=epoch)
                for _, number, epoch in of_name
            ],
        )
        for name, of_name in groupby(sorted(leaders), lambda leader: leader[0])
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=3)
