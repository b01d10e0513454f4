"""Whether a topic went back: by its id, and by where its partitions ended after the last epochs.

Retention moves the beginning of a partition, never its end. Ends that are lower than before are of
brokers that lost acknowledged records, and a recreated topic has another id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # it is there

from abs_clients.kafka.admin import Partition
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import TopicFacts, topic_facts, topics_in_time
from abs_clients.kafka.transactions import listed
from abs_core.coordinator.rollforward import OFFSETS
from abs_core.deadletters import counts_of
from abs_core.errors import RefusedError
from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import MAX_MARK, Committable, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.asof import AsOf, Reading
from abs_sinks.kafka.open_transaction import parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions

MAX_ENDS = 64
"""Partitions of a topic up to which their ends are noted: a register keeps ``MAX_RECENT`` of them."""

_SHOWN = 8
"""Partitions of a topic whose ends are shown to people."""

_ACCESS = re.compile(r"(bootstrap\.servers|security\.|sasl\.|ssl\.|https\.).*")
"""Settings that a reader needs, too."""

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-[0-9]+(?: from .*| and .*)?")


@dataclass(frozen=True, slots=True)
class Ends:
    """A topic's id (None: the brokers have none), and each partition's end (none: too many)."""

    id: str | None
    ends: tuple[int, ...]


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
        told = {name: [each.id, *each.ends] for name, each in sorted(self.topics.items())}
        flags = {"before": True} if self.before else {}
        counts = {"more": self.more} if self.more else {}
        return json.dumps({"topics": told, **flags, **counts}, separators=(",", ":"))

    @classmethod
    def read(cls, mark: str) -> Self:
        """Raises CorruptionError: the text is none of ``to_text``."""
        with reading_mark("Kafka"):
            content = fields(parse(mark))
            found: dict[str, Any] = fields(content["topics"])
            told = {name: of(list, each) for name, each in found.items()}
            # An older mark does not say that its ends are from before.
            return cls(
                {
                    name: Ends(None if i is None else text(i), tuple(map(whole, ends)))
                    for name, (i, *ends) in told.items()
                },
                "before" in content,
                whole(content.get("more", 0)),
            )


def shown(
    options: KafkaOptions, committables: Sequence[Committable], *, before: bool = False
) -> list[Shown]:
    """The ids of the epoch's topics, and where they end now, with what is written since.

    Nothing where the committables do not tell the topics (``protocol=wal`` with the column ``topic``).

    Args:
        before: the epoch's records are not there yet; how many will be is noted, too.
    """
    names = {options.topic} if options.topic else _topics_of(committables)
    facts = topic_facts(options.kafka, names)
    ends = _ends(options, facts)
    told = {
        name: Ends(each.id, tuple(ends[place] for place in _places(each)))
        for name, each in facts.items()
    }
    rows = sum(committable.rows for committable in committables)
    alone = options.topic is not None and all(e.partitions <= MAX_ENDS for e in facts.values())
    countable = before and alone and options.write == "append"
    more = rows - sum(count.dead for count in counts_of(committables)) if countable else 0
    whole = Topics(told, before, more).to_text()
    if len(whole) > MAX_MARK:
        fewer = {name: Ends(each.id, ()) for name, each in told.items()}
        whole = Topics(fewer, before).to_text()
    return [Shown(0, rows, whole)] if told else []


def look_back(options: KafkaOptions, past: Past) -> list[LookedBack]:
    """Compare ids and ends with the noted ones."""
    names = {name for note in past.noted for name in Topics.read(note.mark).topics}
    facts = topics_in_time(options.kafka, sorted(names), again=True) if names else {}
    ends = _ends(options, facts)

    def is_there(mark: str) -> bool:
        found = Topics.read(mark)
        return all(goes_on(name, noted, found.more) for name, noted in found.topics.items())

    def goes_on(name: str, noted: Ends, more: int) -> bool:
        if name not in facts or noted.id not in (None, facts[name].id):
            return False
        if facts[name].partitions > MAX_ENDS:
            return True  # partitions were added since
        now = [ends.get((name, n), -1) for n in range(len(noted.ends))]
        # Partitions that were added since may hold them, too: of those nothing is noted.
        if more and facts[name].partitions == len(now) and sum(now) < sum(noted.ends) + more:
            return False
        return all(end <= there for end, there in zip(noted.ends, now, strict=True))

    why = "A topic of them is gone or was created again, or a partition ends before their records."
    # Of topics that a column names, old ones may be deleted on purpose.
    looks = compared(past, is_there, why, every=options.topic is not None)
    return [*looks, *(LookedBack(0, ahead=later) for later in _later(options, past)[-1:])]


def as_of(mark: str, options: KafkaOptions | None) -> AsOf:
    """Each topic's id, and the end of each partition.

    Raises:
        RefusedError: with ``options``, a topic is gone or was created again.
    """
    noted = Topics.read(mark)
    told = {
        name: {"id": each.id, "ends": {str(n): end for n, end in enumerate(each.ends)} or None}
        for name, each in noted.topics.items()
    }
    short = (
        f"{name} {' '.join(f'{n}:{end}' for n, end in enumerate(each.ends[:_SHOWN]))}"
        f"{' ...' if len(each.ends) > _SHOWN else ''}"
        for name, each in noted.topics.items()
    )
    text = ", ".join(short)
    if noted.before:
        why = "Records and register are one transaction: the ends are those from before it."
        return AsOf({"topics": told, "before": True}, f"before it: {text}", why)
    if not all(each.ends for each in noted.topics.values()):
        why = f"The ends of a topic of more than {MAX_ENDS} partitions are not recorded."
        return AsOf({"topics": told}, text, why)
    reading = None if options is None else _reading(options, noted.topics)
    return AsOf({"topics": told}, text, reading=reading)


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
    told = {
        **client,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({name: [*map(int, of_topic)] for name, of_topic in ends.items()}),
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps(ends),
    }
    if options.common.protocol == "idempotent":
        told["winners"] = "true"
    return Reading("abs-kafka", told)


def _topics_of(committables: Sequence[Committable]) -> set[str]:
    places = (dict(c.extra).get(OFFSETS, "").split(", ") for c in committables)
    found = (_PLACE.fullmatch(place) for several in places for place in several)
    return {each["topic"] for each in found if each}


def _places(topic: TopicFacts) -> list[Partition]:
    """The partitions whose ends are noted."""
    return [(topic.name, n) for n in range(topic.partitions) if topic.partitions <= MAX_ENDS]


def _ends(options: KafkaOptions, facts: Mapping[str, TopicFacts]) -> dict[Partition, int]:
    places = [place for each in facts.values() for place in _places(each)]
    admin = cluster(options.kafka).admin
    return admin.offsets(dict.fromkeys(places, _LATEST), uncommitted=True)


def _later(options: KafkaOptions, past: Past) -> list[Position]:
    """Later generations that have opened transactions; brokers forget their ids after a week."""
    names = map(parse_id, listed(options.kafka, pattern=pattern_of(past.job)))
    return sorted(
        (name.generation, -1)
        for name in names
        if name and name.register == past.register and name.generation > past.decided[0]
    )
