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

Term = tuple[str, int, int]
"""Topic, partition, and the epoch of a leader."""

_CONSUMER = -1
"""The number of who is no replica."""


def ends_of_leaders(settings: Settings, terms: Iterable[Term]) -> dict[Term, int]:
    """The offset behind the last record up to each leader's; a term that is not known is left out.

    Of records that were removed, the offset of the first one that is left. Needs DESCRIBE.
    """
    wanted = sorted(set(terms))
    if not wanted:
        return {}

    async def work(manager: Any) -> dict[Term, int]:
        leaders = await leaders_of(manager, sorted({(topic, n) for topic, n, _ in wanted}))
        node_of = {place: node for node, places in leaders.items() for place in places}
        ends: dict[Term, int] = {}
        # A request has a partition once: the terms of one partition go in turn.
        rounds = [list(of_place) for _, of_place in groupby(wanted, lambda term: term[:2])]
        for nth in range(max(map(len, rounds))):
            asked = [terms[nth] for terms in rounds if nth < len(terms)]
            for node in {node_of[term[:2]] for term in asked}:
                there = {term[:2]: term for term in asked if node_of[term[:2]] == node}
                for topic in (await manager.send(_request(there.values()), node_id=node)).topics:
                    for answer in topic.partitions:
                        place = topic.topic, answer.partition
                        raise_for(answer.error_code, f"{topic.topic}-{answer.partition}")
                        if answer.end_offset >= 0:
                            ends[there[place]] = answer.end_offset
        return ends

    return cluster(settings).run("asking where an earlier leader's records end", work)


def _request(terms: Iterable[Term]) -> Any:
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
        for name, of_name in groupby(sorted(terms), lambda term: term[0])
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=3)
