"""What a register notes of an epoch's topics, as a text: their ids, and where their partitions ended.

Where the ends of an epoch's topics are too long for a mark, they stand in the full mark of the newest
epoch alone; an older one keeps sums of them, which tell less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from abs_core.lookback import reading_mark
from abs_core.model import MAX_FULL_MARK, MAX_MARK, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.kafka.places import Partition

SUMS = 64
"""Sums of ends that a mark keeps of a topic whose ends are too long for it."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What is noted of a topic.

    Args:
        id: None: the brokers have none.
        ends: of each partition; none: see ``sums``.
        leaders: the epoch of the leader that told each end; none: they are not known.
        sums: of the ends of the partitions n, n + ``SUMS``, ...; none: only the id is noted.
        partitions: how many the sums are of.
    """

    id: str | None
    ends: tuple[int, ...]
    sums: tuple[int, ...] = ()
    partitions: int = 0
    leaders: tuple[int, ...] = ()

    def summed(self) -> Ends:
        """The same with sums in place of very many ends."""
        if len(self.ends) <= SUMS:
            return self
        sums = (sum(self.ends[n::SUMS]) for n in range(SUMS))
        return Ends(self.id, (), tuple(sums), len(self.ends))

    def are_in(self, now: Ends | None, more: int, cuts: Sequence[int] = ()) -> bool | None:
        """Whether a topic that shows this now may have what this one has; None: nothing tells.

        Args:
            now: None: there is no such topic.
            more: records that follow the noted ends.
            cuts: up to where the present leaders have the records of the noted ones.
        """
        if now is None or self.id not in (None, now.id):
            return False
        noted, size = (self.ends, len(self.ends)) if self.ends else (self.sums, self.partitions)
        if not noted or not now.ends:
            return None
        # Partitions that are missing now end below whatever was noted.
        ends = (*now.ends[:size], *[-1] * (size - len(now.ends)))
        # Partitions that were added since may hold them, too: of those nothing is noted.
        if more and len(now.ends) == size and sum(ends) < sum(noted) + more:
            return False
        if self.ends:
            there = tuple(map(min, ends, cuts)) if cuts else ends
            return all(end <= last for end, last in zip(noted, there, strict=True))
        fell = any(noted[n] > sum(ends[n::SUMS]) for n in range(len(noted)))
        return False if fell else None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of an epoch, by name.

    Args:
        before: the ends are those from before the epoch's own records.
        more: so many records follow them at least, in the only topic; 0: that is not known.
        begins: the offset of the epoch's first record in each partition; none: they are not known.
    """

    topics: dict[str, Ends]
    before: bool = False
    more: int = 0
    begins: Mapping[Partition, int] = field(default_factory=dict)

    def to_text(self) -> str:
        of_topics = sorted(self.topics.items())
        led = {name: _shortest(topic.leaders) for name, topic in of_topics if topic.leaders}
        leaders = {"leaders": led} if led else {}
        ends = {name: [topic.id, *topic.ends] for name, topic in of_topics}
        sums = {name: [topic.partitions, *topic.sums] for name, topic in of_topics if topic.sums}
        summed = {"sums": sums} if sums else {}
        flags = {"before": True} if self.before else {}
        counts = {"more": self.more} if self.more else {}
        of_each = [[name, n, begin] for (name, n), begin in sorted(self.begins.items())]
        begins = {"begins": of_each} if of_each else {}
        return json.dumps(
            {"topics": ends, **leaders, **summed, **flags, **counts, **begins},
            separators=(",", ":"),
        )

    @classmethod
    def read(cls, mark: str) -> Self:
        """Raises CorruptionError: the text is none of ``to_text``."""
        with reading_mark("Kafka"):
            content = fields(parse(mark))
            sums, leaders = (fields(content.get(name, {})) for name in ("sums", "leaders"))
            topics = {
                name: _read_ends(ends, sums.get(name, [0]), leaders.get(name, []))
                for name, ends in fields(content["topics"]).items()
            }
            # An older mark does not say that its ends are from before.
            before, more = "before" in content, whole(content.get("more", 0))
            places = (of(list, place) for place in of(list, content.get("begins", [])))
            begins = {(text(name), whole(n)): whole(begin) for name, n, begin in places}
            return cls(topics, before, more, begins)

    def may_have_part(self, now: Mapping[str, Ends]) -> bool:
        """Whether records of the epoch may be there, where not all are."""
        left = {
            name: noted for name, noted in self.topics.items() if _is_same(noted, now.get(name))
        }
        if self.begins:
            begins = {place: begin for place, begin in self.begins.items() if place[0] in left}
        elif self.before and all(noted.ends for noted in left.values()):
            begins = {
                (name, n): noted.ends[n] if n < len(noted.ends) else 0
                for name, noted in left.items()
                for n in range(len(now[name].ends))
            }
        else:
            return bool(left)
        if not all(now[name].ends for name in left):
            return True
        return any(now[name].ends[n : n + 1] > (begin,) for (name, n), begin in begins.items())

    def noted(self, rows: int) -> list[Shown]:
        """What is recorded of an epoch with these rows: the fullest text that fits."""
        alone = {name: replace(topic, leaders=()) for name, topic in self.topics.items()}
        summed = {name: topic.summed() for name, topic in alone.items()}
        ids = {name: Ends(topic.id, ()) for name, topic in self.topics.items()}
        ways = (self.topics, alone, summed, ids)
        short = [replace(self, topics=topics, begins={}).to_text() for topics in ways]
        texts = [self.to_text(), *short]
        mark = next((text for text in texts if len(text) <= MAX_MARK), texts[-1])
        longer = [text for text in texts[:3] if len(text) <= MAX_FULL_MARK]
        full = longer[0] if longer and longer[0] != mark else ""
        return [Shown(0, rows, mark, full)] if self.topics else []


def _is_same(noted: Ends, now: Ends | None) -> bool:
    return now is not None and noted.id in (None, now.id)


def _read_ends(ends: object, sums: object, leaders: object) -> Ends:
    topic_id, *numbers = of(list, ends)
    partitions, *of_groups = map(whole, of(list, sums))
    known_id = None if topic_id is None else text(topic_id)
    led = tuple(map(whole, of(list, leaders)))
    led *= len(numbers) if len(led) == 1 else 1
    if led and len(led) != len(numbers):
        raise ValueError(f"{len(led)} leaders for {len(numbers)} ends")
    return Ends(known_id, tuple(map(whole, numbers)), tuple(of_groups), partitions, led)


def _shortest(leaders: tuple[int, ...]) -> tuple[int, ...]:
    """One number, where all are the same."""
    return leaders[:1] if len(set(leaders)) == 1 else leaders
