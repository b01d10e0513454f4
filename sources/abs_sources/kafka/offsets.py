"""Positions in topics as pure values: by topic its id and each partition's next offset.

The id (KIP-516) distinguishes a topic from a recreated one of the same name; offsets cannot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from abs_core.errors import ReplayMismatchError
from abs_core.source import Offsets, Split
from abs_core.strictjson import decimal, fields, parse, reading, text, whole

Partition = tuple[str, int]
"""A topic's name and a partition's number."""


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Position in each partition.

    Args:
        ids: id of each topic.
        next: by partition, the offset of the first unread record.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    next: Mapping[Partition, int] = field(default_factory=dict)

    @property
    def text(self) -> Offsets:
        """``{"topic": {"id": ..., "offsets": {"0": 12}}}``; equal places are equal texts."""
        topics: dict[str, dict[str, Any]] = {
            topic: {"id": name, "offsets": {}} for topic, name in self.ids.items()
        }
        for (topic, number), offset in self.next.items():
            topics[topic]["offsets"][str(number)] = offset
        return json.dumps(topics, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, written: Offsets) -> Self:
        """The place that a text names; raises ReplayMismatchError if it is another source's."""
        try:
            topics = {topic: fields(of) for topic, of in fields(parse(written)).items()}
            ids = {topic: text(members["id"]) for topic, members in topics.items()}
            ends = {
                (topic, decimal(number)): whole(offset)
                for topic, members in topics.items()
                for number, offset in fields(members["offsets"]).items()
            }
        except ValueError as error:
            raise ReplayMismatchError(
                f"These are not offsets of this source, because {error}: {written[:200]!a}",
                remedy="the checkpoint belongs to another source (Spark's own writes others): "
                "use a new checkpoint, and set startingOffsets.",
            ) from error
        return cls(ids, ends)

    def same_topic(self, other: TopicOffsets, topic: str) -> bool:
        """Whether both know the topic under the same id."""
        return topic in self.ids and self.ids[topic] == other.ids.get(topic)


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition from an offset up to, excluding, ``end`` (None: endless)."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int | None

    @property
    def split(self) -> Split:
        """As a ``Split`` of the source contract."""
        where = {"partition": self.partition, "topic": self.topic, "topic_id": self.topic_id}
        return Split(
            source=f"{self.topic}-{self.partition}",
            start=json.dumps({**where, "offset": self.start}, sort_keys=True),
            end=None if self.end is None else json.dumps({"offset": self.end}),
        )

    @classmethod
    def of(cls, split: Split) -> Self:
        """The range that a split names; raises CorruptionError if it names none."""
        with reading(f"The start of {split.source}", "restart from the last intact checkpoint"):
            start = fields(parse(split.start))
            end = None if split.end is None else whole(fields(parse(split.end))["offset"])
            return cls(
                text(start["topic"]),
                text(start["topic_id"]),
                whole(start["partition"]),
                whole(start["offset"]),
                end,
            )
