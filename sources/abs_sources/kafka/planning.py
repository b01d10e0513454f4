"""Plans the next epoch: pure functions from places and facts to places and ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from abs_sources.kafka.offsets import Partition, Range, TopicOffsets


@dataclass(frozen=True, slots=True)
class Facts:
    """The cluster at one moment.

    Args:
        ids: id of each topic that is read.
        first: by partition, the offset of the oldest existing record.
        end: by partition, the last stable offset or the high watermark.
    """

    ids: Mapping[str, str]
    first: Mapping[Partition, int]
    end: Mapping[Partition, int]

    @property
    def ends(self) -> TopicOffsets:
        return TopicOffsets(self.ids, self.end)


def losses(start: TopicOffsets, facts: Facts) -> list[str]:
    """Reasons why records after a place have changed; empty if none have.

    A partition that is new to the place has all of its records after it, from offset 0 on.
    """
    reasons: list[str] = []
    for topic in sorted(start.ids):
        if topic not in facts.ids:
            reasons.append(f"the topic {topic} is gone, or no longer among those that are read")
        elif facts.ids[topic] != start.ids[topic]:
            reasons.append(f"the topic {topic} was deleted and created again")
    for (topic, number), end in sorted(facts.end.items()):
        if topic in start.ids and not start.same_topic(facts.ends, topic):
            continue
        begin = start.next.get((topic, number), 0)
        if begin < facts.first[topic, number]:
            reasons.append(
                f"the records {begin} to {facts.first[topic, number] - 1} of {topic}-{number} are "
                "deleted"
            )
        elif begin > end:
            reasons.append(f"{topic}-{number} ends at {end}, and was read up to {begin} before")
    gone = [p for p in start.next if start.same_topic(facts.ends, p[0]) and p not in facts.end]
    return [
        *reasons,
        *(f"the partition {topic}-{number} is gone" for topic, number in sorted(gone)),
    ]


def begins(start: TopicOffsets, facts: Facts) -> dict[Partition, int]:
    """The start of each partition now: its old position, or 0 if it is new.

    A partition that ends before its position has lost records; reading continues from its end.
    """
    return {
        (topic, number): min(start.next.get((topic, number), 0), end)
        if start.same_topic(facts.ends, topic)
        else 0
        for (topic, number), end in facts.end.items()
    }


def advance(
    start: TopicOffsets, facts: Facts, most: int | None, closed: TopicOffsets | None = None
) -> TopicOffsets:
    """The furthest place after ``start`` within a number of offsets.

    An unavailable topic keeps its place: if it comes back it is not read a second time.

    Args:
        most: offsets of one epoch, shared out by the partitions' lag.
        closed: upper bound, with all partitions to read.
    """
    starts = begins(start, facts)
    ends = {}
    for partition, end in facts.end.items():
        bound = end
        if closed is not None:
            same_topic = closed.same_topic(facts.ends, partition[0])
            bound = closed.next.get(partition, 0) if same_topic else 0
            if partition not in start.next and partition not in closed.next:
                continue
        ends[partition] = max(starts[partition], min(end, bound))
    if most is not None:
        ends = share_out(starts, ends, most)
    ids = {**start.ids, **facts.ids}
    away = {
        partition: offset
        for partition, offset in start.next.items()
        if partition not in facts.end and ids[partition[0]] == start.ids[partition[0]]
    }
    ends |= away
    return TopicOffsets({topic: ids[topic] for topic, _ in ends}, ends)


def share_out(
    starts: Mapping[Partition, int], ends: Mapping[Partition, int], most: int
) -> dict[Partition, int]:
    """Ends with at most ``most`` offsets before them, in proportion to the partitions' lag.

    No partition starves: each that is behind gets an offset at least. If more of them are behind than
    ``most``, they take turns: each is read within ``partitions / most`` epochs.
    """
    behind = {p: ends[p] - starts[p] for p in sorted(ends) if ends[p] > starts[p]}
    if sum(behind.values()) <= most:
        return dict(ends)
    # The turn moves on by ``most`` in each epoch, as the offsets that were read do: nothing else has
    # to be kept. It counts all partitions, so it does not depend on which ones are behind.
    order = sorted(ends)
    begin = sum(starts.values()) % len(order)
    names = [p for p in order[begin:] + order[:begin] if p in behind][:most]
    shares, left, total = {}, most, sum(behind[p] for p in names)
    for partition in sorted(names, key=behind.__getitem__):  # the one furthest behind gets the rest
        shares[partition] = max(1, behind[partition] * left // total)
        left, total = left - shares[partition], total - behind[partition]
    return {p: starts[p] + shares.get(p, 0) for p in ends}


def ranges(
    start: TopicOffsets,
    end: TopicOffsets,
    *,
    at_least: int | None = None,
    most_records: int | None = None,
) -> Sequence[Range]:
    """The parts between two places; the same ones for the same places.

    Args:
        at_least: number of parts, cut by length (``minPartitions``).
        most_records: maximal length of a part (``maxRecordsPerPartition``).
    """
    whole = []
    for (topic, number), until in sorted(end.next.items()):
        same_topic = start.same_topic(end, topic)
        begin = start.next.get((topic, number), 0) if same_topic else 0
        if begin < until:
            whole.append(Range(topic, end.ids[topic], number, begin, until))
    total = sum(map(_length, whole))
    pieces: list[Range] = []
    for one in whole:
        parts = 1 if at_least is None else -(-_length(one) * at_least // total)
        if most_records is not None:
            parts = max(parts, -(-_length(one) // most_records))
        pieces += _cut(one, min(parts, _length(one)))
    return pieces


def _length(one: Range) -> int:
    assert one.end is not None
    return one.end - one.start


def _cut(one: Range, parts: int) -> Iterator[Range]:
    """Parts of about equal length."""
    bounds = [one.start + _length(one) * n // parts for n in range(parts + 1)]
    for begin, until in pairwise(bounds):
        yield Range(one.topic, one.topic_id, one.partition, begin, until)
