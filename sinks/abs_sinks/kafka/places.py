"""What a handle tells of its records' places: each topic's id, and the offsets in each partition.

A task reads a topic's id before its first record there, so a topic that is made again later is known to
have lost the records; and it tells which epochs were finished when its transaction began, so what they
left is known to be in front of its records. Handles of older releases tell neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow.compute as pc

from abs_clients.kafka.producer_ids import ProducerState
from abs_clients.kafka.topics import topic_ids
from abs_core.contracts import Task
from abs_core.coordinator.rollforward import OFFSETS
from abs_core.model import Committable
from abs_core.strictjson import decimal, fields, parse, reading, text
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records

TOPICS = "topics"
"""Key in a committable's ``extra``: the ids of its topics by name, as JSON."""

FRONTIER = "frontier"
"""Key in a committable's ``extra``: ``Task.frontier``; absent if that was None."""

SHOWN = 32
"""Partitions and topics that a committable tells: decisions must fit the register."""

Partition = tuple[str, int]

_MORE = " more partitions"

_PLACE = re.compile(r"([A-Za-z0-9._-]+)-([0-9]+)(?: from ([0-9]+) \(([0-9]+)\))?(?: .*)?")


@dataclass(frozen=True, slots=True)
class Places:
    """Of one handle, as far as it tells.

    Args:
        topics: of its records; those of ``ids`` may be more.
        ids: of topics, by name.
        begins: the offset of its first record in each partition.
        ends: behind its last one, at least: others' records may lie between.
        frontier: epochs up to it were finished before its first record.
        whole: whether it tells the offsets in all of its partitions.
    """

    topics: frozenset[str]
    ids: Mapping[str, str]
    begins: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    frontier: int
    whole: bool = False

    @classmethod
    def of(cls, committable: Committable) -> Self:
        """Raises CorruptionError: another release has written it, or it is damaged."""
        extra = dict(committable.extra)
        with reading(f"The committable {committable.handle}", "restart the query"):
            ids = {n: text(id_) for n, id_ in fields(parse(extra.get(TOPICS, "{}"))).items()}
            frontier = decimal(extra.get(FRONTIER, "-1"), -1)
        offsets = extra.get(OFFSETS, "")
        matches = map(_PLACE.fullmatch, offsets.split(", "))
        places = [match.groups() for match in matches if match]
        begins = {(t, int(n)): int(begin) for t, n, begin, _ in places if begin}
        rows = {(t, int(n)): int(count) for t, n, begin, count in places if begin}
        ends = {place: begin + rows[place] for place, begin in begins.items()}
        topics = frozenset(topic for topic, *_ in places) | ids.keys()
        is_whole = bool(places) and len(begins) == len(places) and _MORE not in offsets
        return cls(topics, ids, begins, ends, frontier, is_whole)


def begins_of(handles: Iterable[Places], *, after: int) -> dict[Partition, int]:
    """The first offset in each partition of those that were written after this epoch was finished.

    What is noted of that epoch shows also what others had written by then.
    """
    begins: dict[Partition, int] = {}
    for handle in handles:
        if handle.frontier >= after:
            for place, begin in handle.begins.items():
                begins[place] = min(begin, begins.get(place, begin))
    return begins


def offsets_of(
    partitions: Sequence[Partition],
    producers: Mapping[Partition, ProducerState | None] | None = None,
) -> str:
    """The places of a transaction's records: ``topic-0 from 17 (5)``, ..."""
    shown = []
    for topic, partition in partitions[:SHOWN]:
        produced = None if producers is None else producers.get((topic, partition))
        where = f"{topic}-{partition}"
        if produced is not None:
            where += f" from {produced.start_offset} ({produced.last_sequence + 1})"
        shown.append(where)
    more = len(partitions) - SHOWN
    return ", ".join(shown) + (f" and {more}{_MORE}" if more > 0 else "")


class TopicIds:
    """Reads the ids of a task's topics, each before the task's first record there."""

    def __init__(self, options: KafkaOptions, task: Task) -> None:
        self._options = options
        self._task = task
        self._ids: dict[str, str] = {}
        self._seen: set[str] = set()

    def before(self, records: Records) -> None:
        """To call before these are sent.

        Raises:
            TargetError: no broker answers.
        """
        names = _names_in(records, self._options.topic)
        if new := names - self._seen:
            self._ids |= self._options.patience.retry(lambda: topic_ids(self._options.kafka, new))
            self._seen |= new

    @property
    def extra(self) -> dict[str, str]:
        """For the committable."""
        ids, frontier = _ids_text(self._ids), self._task.frontier
        return ids if frontier is None else {**ids, FRONTIER: str(frontier)}


def _names_in(records: Records, topic: str | None) -> set[str]:
    if records.topics is None:
        return {topic} if topic else set()
    # Without a name they go to the option's topic.
    return set(pc.unique(records.topics.fill_null(topic or "")).to_pylist())


def present_ids(options: KafkaOptions) -> Mapping[str, str]:
    """The id of the option's topic, as it is now."""
    return topic_ids(options.kafka, [options.topic]) if options.topic else {}


def with_ids(committable: Committable, ids: Mapping[str, str]) -> Committable:
    """The same, which tells these topics' ids."""
    extra = {**dict(committable.extra), **_ids_text(ids)}
    return replace(committable, extra=tuple(sorted(extra.items())))


def _ids_text(ids: Mapping[str, str]) -> dict[str, str]:
    shown = dict(sorted(ids.items())[:SHOWN])
    return {TOPICS: json.dumps(shown, separators=(",", ":"))} if shown else {}
