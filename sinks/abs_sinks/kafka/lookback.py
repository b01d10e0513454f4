"""Whether a topic went back: by its id, and by where its partitions ended after the last epochs.

Retention moves the beginning of a partition, never its end. Ends that are lower than before are of
brokers that lost acknowledged records, and a recreated topic has another id.

Where the ends of an epoch's topics are too long for a mark, they stand in the full mark of the newest
epoch alone; an older one keeps sums of them, which tell less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # it is there

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import TopicFacts, topic_facts, topics_in_time
from abs_clients.kafka.transactions import listed
from abs_core.coordinator.rollforward import OFFSETS
from abs_core.deadletters import counts_of
from abs_core.errors import RefusedError
from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import MAX_FULL_MARK, MAX_MARK, Committable, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.asof import AsOf, Reading
from abs_sinks.kafka.open_transaction import parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions

MAX_ENDS = 1_000
"""Partitions of a topic up to which their ends are noted; so many fit in a full mark."""

SUMS = 64
"""Sums of ends that a mark keeps of a topic whose ends are too long for it."""

_SHOWN = 8
"""Partitions of a topic whose ends are shown to people."""

_ACCESS = re.compile(r"(bootstrap\.servers|security\.|sasl\.|ssl\.|https\.).*")
"""Settings that a reader needs, too."""

_SUMS = (
    "Of epochs before the last one only sums of the ends of several partitions are noted: more of "
    "their records may be gone, which `abs audit` shows."
)

_UNSURE = (
    f"the ends of a topic of more than {MAX_ENDS:,} partitions (or of very many topics, or by an older "
    "release) are not noted, so lost records of the last epochs cannot be told."
)

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-[0-9]+(?: from .*| and .*)?")


@dataclass(frozen=True, slots=True)
class Ends:
    """What is noted of a topic.

    Args:
        id: None: the brokers have none.
        ends: of each partition; none: see ``sums``.
        sums: of the ends of the partitions n, n + ``SUMS``, ...; none: only the id is noted.
        partitions: how many the sums are of.
    """

    id: str | None
    ends: tuple[int, ...]
    sums: tuple[int, ...] = ()
    partitions: int = 0

    def summed(self) -> Ends:
        """The same with sums in place of very many ends."""
        if len(self.ends) <= SUMS:
            return self
        sums = (sum(self.ends[n::SUMS]) for n in range(SUMS))
        return Ends(self.id, (), tuple(sums), len(self.ends))

    def are_in(self, now: Ends | None, more: int) -> bool | None:
        """Whether a topic that shows this now may have what this one has; None: nothing tells.

        Args:
            now: None: there is no such topic.
            more: records that follow the noted ends.
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
            return all(end <= last for end, last in zip(noted, ends, strict=True))
        fell = any(noted[n] > sum(ends[n::SUMS]) for n in range(len(noted)))
        return False if fell else None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of an epoch, by name.

    Args:
        before: the ends are those from before the epoch's own records.
        more: so many records follow them at least, in the only topic; 0: that is not known.
    """

    topics: dict[str, Ends]
    before: bool = False
    more: int = 0

    def to_text(self) -> str:
        of_topics = sorted(self.topics.items())
        ends = {name: [topic.id, *topic.ends] for name, topic in of_topics}
        sums = {name: [topic.partitions, *topic.sums] for name, topic in of_topics if topic.sums}
        summed = {"sums": sums} if sums else {}
        flags = {"before": True} if self.before else {}
        counts = {"more": self.more} if self.more else {}
        return json.dumps({"topics": ends, **summed, **flags, **counts}, separators=(",", ":"))

    @classmethod
    def read(cls, mark: str) -> Self:
        """Raises CorruptionError: the text is none of ``to_text``."""
        with reading_mark("Kafka"):
            content = fields(parse(mark))
            sums = fields(content.get("sums", {}))
            topics = {
                name: _read_ends(of(list, ends), of(list, sums.get(name, [0])))
                for name, ends in fields(content["topics"]).items()
            }
            # An older mark does not say that its ends are from before.
            return cls(topics, "before" in content, whole(content.get("more", 0)))

    def noted(self, rows: int) -> list[Shown]:
        """What is recorded of an epoch with these rows: the fullest text that fits."""
        summed = {name: topic.summed() for name, topic in self.topics.items()}
        ids = {name: Ends(topic.id, ()) for name, topic in self.topics.items()}
        texts = [replace(self, topics=topics).to_text() for topics in (self.topics, summed, ids)]
        mark = next((text for text in texts if len(text) <= MAX_MARK), texts[-1])
        full = texts[0] if texts[0] != mark and len(texts[0]) <= MAX_FULL_MARK else ""
        return [Shown(0, rows, mark, full)] if self.topics else []


def _read_ends(ends: list[Any], sums: list[Any]) -> Ends:
    topic_id, *numbers = ends
    partitions, *of_groups = map(whole, sums)
    known_id = None if topic_id is None else text(topic_id)
    return Ends(known_id, tuple(map(whole, numbers)), tuple(of_groups), partitions)


def shown(
    options: KafkaOptions, committables: Sequence[Committable], *, before: bool = False
) -> list[Shown]:
    """The ids of the epoch's topics, and where they end now, with what is written since.

    Nothing where the committables do not tell the topics (``protocol=wal`` with the column ``topic``).

    Args:
        before: the epoch's records are not there yet; how many will be is noted, too.
    """
    names = {options.topic} if options.topic else _topics_of(committables)
    topics = _now(options, topic_facts(options.kafka, names))
    rows = sum(committable.rows for committable in committables)
    alone = options.topic is not None and all(topic.ends for topic in topics.values())
    countable = before and alone and options.write == "append"
    more = rows - sum(count.dead for count in counts_of(committables)) if countable else 0
    return Topics(topics, before, more).noted(rows)


def look_back(options: KafkaOptions, past: Past) -> list[LookedBack]:
    """Compare ids and ends with the noted ones."""
    names = {name for note in past.noted for name in Topics.read(note.mark).topics}
    facts = topics_in_time(options.kafka, sorted(names), again=True) if names else {}
    # Of topics that a column names, old ones may be deleted on purpose.
    looks = compare(past, _now(options, facts), every=options.topic is not None)
    ahead = [] if past.running else _later(options, past)[-1:]
    return [*looks, *(LookedBack(0, ahead=position) for position in ahead)]


def compare(past: Past, now: Mapping[str, Ends], *, every: bool) -> list[LookedBack]:
    """Compare the noted topics with what they show now; ``every`` as in ``lookback.compared``."""

    def is_there(mark: str) -> bool | None:
        noted = Topics.read(mark)
        are = {topic.are_in(now.get(name), noted.more) for name, topic in noted.topics.items()}
        return False if False in are else None if None in are else True

    why = "A topic of them is gone or was created again, or a partition ends before their records."
    if any(topic.sums for note in past.noted for topic in Topics.read(note.mark).topics.values()):
        why += f" {_SUMS}"
    return compared(past, is_there, why, _UNSURE, every=every)


def as_of(mark: str, options: KafkaOptions | None) -> AsOf:
    """Each topic's id, and the end of each partition.

    Raises:
        RefusedError: with ``options``, a topic is gone or was created again.
    """
    noted = Topics.read(mark)
    topics = {
        name: {"id": ends.id, "ends": {str(n): end for n, end in enumerate(ends.ends)} or None}
        for name, ends in noted.topics.items()
    }
    short = (
        f"{name} {' '.join(f'{n}:{end}' for n, end in enumerate(ends.ends[:_SHOWN]))}"
        f"{' ...' if len(ends.ends) > _SHOWN else ''}"
        for name, ends in noted.topics.items()
    )
    text = ", ".join(short)
    if noted.before:
        why = "Records and register are one transaction: the ends are those from before it."
        return AsOf({"topics": topics, "before": True}, f"before it: {text}", why)
    if not all(ends.ends for ends in noted.topics.values()):
        why = "Of topics with so many partitions ends are recorded for the newest epoch at most."
        return AsOf({"topics": topics}, text, why)
    reading = None if options is None else _reading(options, noted.topics)
    return AsOf({"topics": topics}, text, reading=reading)


def _reading(options: KafkaOptions, topics: Mapping[str, Ends]) -> Reading:
    facts = topics_in_time(options.kafka, sorted(topics), again=True)
    for name, noted in topics.items():
        if name not in facts or noted.id not in (None, facts[name].id):
            raise RefusedError(
                f"The topic {name} is gone or was created again since.",
                remedy="read an epoch that was written since.",
            )
    client = {f"kafka.{n}": value for n, value in options.kafka.pairs if _ACCESS.match(n)}
    ends = {name: {str(n): end for n, end in enumerate(t.ends)} for name, t in topics.items()}
    settings = {
        **client,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({name: [*map(int, of_topic)] for name, of_topic in ends.items()}),
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps(ends),
    }
    if options.common.protocol == "idempotent":
        settings["winners"] = "true"
    return Reading("abs-kafka", settings)


def _topics_of(committables: Sequence[Committable]) -> set[str]:
    places = (dict(c.extra).get(OFFSETS, "").split(", ") for c in committables)
    matches = (_PLACE.fullmatch(place) for several in places for place in several)
    return {match["topic"] for match in matches if match}


def _now(options: KafkaOptions, facts: Mapping[str, TopicFacts]) -> dict[str, Ends]:
    """The topics as they are, without the ends of those of too many partitions."""
    small = [topic for topic in facts.values() if topic.partitions <= MAX_ENDS]
    places = [(topic.name, n) for topic in small for n in range(topic.partitions)]
    admin = cluster(options.kafka).admin
    ends = admin.offsets(dict.fromkeys(places, _LATEST), uncommitted=True)
    numbers = {topic.name: range(topic.partitions) for topic in small}
    return {
        name: Ends(topic.id, tuple(ends[name, n] for n in numbers.get(name, ())))
        for name, topic in facts.items()
    }


def _later(options: KafkaOptions, past: Past) -> list[Position]:
    """Later generations that have opened transactions; brokers forget their ids after a week."""
    names = map(parse_id, listed(options.kafka, pattern=pattern_of(past.job)))
    return sorted(
        (name.generation, -1)
        for name in names
        if name and name.register == past.register and name.generation > past.decided[0]
    )
