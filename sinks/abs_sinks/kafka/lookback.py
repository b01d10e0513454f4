"""Whether a topic went back: by its id, and by where its partitions ended after the last epochs.

Retention moves the beginning of a partition, never its end. Ends that are lower than before are of
brokers that lost acknowledged records, and a recreated topic has another id. What is written since (by
others, or by this job before it decides) raises the ends again. So the epoch of the leader that told an
end is noted, too: where a later leader took over with fewer records, it tells where those before end.

Where the ends of an epoch's topics are too long for a mark, they stand in the full mark of the newest
epoch alone; an older one keeps sums of them, which tell less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.leader_epochs import LeaderEpoch, ends_of_leaders
from abs_clients.kafka.topics import TopicFacts, topic_facts, topic_ids, topics_in_time
from abs_clients.kafka.transactions import listed
from abs_core.deadletters import counts_of
from abs_core.errors import RefusedError
from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import MAX_FULL_MARK, MAX_MARK, Committable, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.asof import AsOf, Reading
from abs_sinks.kafka.open_transaction import parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.places import Places, begins_of

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

NO_CUTS: Mapping[LeaderEpoch, int] = MappingProxyType({})


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
    """

    topics: dict[str, Ends]
    before: bool = False
    more: int = 0

    def to_text(self) -> str:
        of_topics = sorted(self.topics.items())
        led = {name: _shortest(topic.leaders) for name, topic in of_topics if topic.leaders}
        leaders = {"leaders": led} if led else {}
        ends = {name: [topic.id, *topic.ends] for name, topic in of_topics}
        sums = {name: [topic.partitions, *topic.sums] for name, topic in of_topics if topic.sums}
        summed = {"sums": sums} if sums else {}
        flags = {"before": True} if self.before else {}
        counts = {"more": self.more} if self.more else {}
        return json.dumps(
            {"topics": ends, **leaders, **summed, **flags, **counts}, separators=(",", ":")
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
            return cls(topics, "before" in content, whole(content.get("more", 0)))

    def noted(self, rows: int) -> list[Shown]:
        """What is recorded of an epoch with these rows: the fullest text that fits."""
        alone = {name: replace(topic, leaders=()) for name, topic in self.topics.items()}
        summed = {name: topic.summed() for name, topic in alone.items()}
        ids = {name: Ends(topic.id, ()) for name, topic in self.topics.items()}
        ways = (self.topics, alone, summed, ids)
        texts = [replace(self, topics=topics).to_text() for topics in ways]
        mark = next((text for text in texts if len(text) <= MAX_MARK), texts[-1])
        longer = [text for text in texts[:2] if len(text) <= MAX_FULL_MARK]
        full = longer[0] if longer and longer[0] != mark else ""
        return [Shown(0, rows, mark, full)] if self.topics else []


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


def shown(
    options: KafkaOptions, committables: Sequence[Committable], *, before: bool = False
) -> list[Shown]:
    """The ids of the epoch's topics, and where they end now, with what is written since.

    An id is the one that the committables tell: the topic may have been made again since. Nothing
    where they do not tell the topics (``protocol=wal`` with the column ``topic``).

    Args:
        before: the epoch's records are not there yet; how many will be is noted, too.
    """
    places = [Places.of(committable) for committable in committables]
    names = {options.topic} if options.topic else {n for one in places for n in one.topics}
    topics = _now(options, topic_facts(options.kafka, names))
    ids = {name: id_ for one in places for name, id_ in one.ids.items() if name in names}
    if untold := names - ids.keys():
        ids |= topic_ids(options.kafka, untold)  # what is cached may be an earlier one's
    topics |= {n: replace(topics.get(n, Ends(None, ())), id=id_) for n, id_ in ids.items()}
    rows = sum(committable.rows for committable in committables)
    alone = options.topic is not None and all(topic.ends for topic in topics.values())
    countable = before and alone and options.write == "append"
    more = rows - sum(count.dead for count in counts_of(committables)) if countable else 0
    return Topics(topics, before, more).noted(rows)


def look_back(options: KafkaOptions, past: Past) -> list[LookedBack]:
    """Compare ids and ends with the noted ones, and with those that the epoch's own handles tell.

    Its own records are behind all that was finished before they were written.
    """
    own = [Places.of(committable) for committable in past.own or ()]
    begins = begins_of(own, after=max((note.epoch for note in past.noted), default=-1))
    noted = [topic for note in past.noted for topic in Topics.read(note.mark).topics.items()]
    names = {name for name, _ in noted} | {name for one in own for name in one.topics}
    facts = topics_in_time(options.kafka, sorted(names), again=True) if names else {}
    ids = [(name, topic.id) for name, topic in noted] + [i for one in own for i in one.ids.items()]
    same = all(name in facts and id_ in (None, facts[name].id) for name, id_ in ids)

    def looked() -> list[LookedBack]:
        now = _now(options, facts)
        lost = unprepared(own, now)
        now = before(now, begins)
        cuts = ends_of_leaders(options.kafka, _former(noted, now))
        looks = compare(past, now, cuts, named=options.topic is None)
        return [*looks, LookedBack(past.sinks[0], unprepared=lost)] if lost else looks

    # A broker that was stopped may answer by what it had before another led.
    looks = cluster(options.kafka).admin.until_heard(
        looked, lambda looks: same and any(look.gone or look.unprepared for look in looks)
    )
    ahead = [] if past.running else _later(options, past)[-1:]
    return [*looks, *(LookedBack(0, ahead=position) for position in ahead)]


def unprepared(own: Iterable[Places], now: Mapping[str, Ends]) -> str:
    """Why records of these handles are gone, as a sentence; empty if nothing tells that."""
    for one in own:
        for name, id_ in one.ids.items():
            if name not in now:
                return f"Topic {name} is gone."
            if now[name].id not in (None, id_):
                return f"Topic {name} was deleted and created again after they were written."
        for (name, n), end in one.ends.items():
            ends = now[name].ends if name in now else ()
            if ends and (n >= len(ends) or ends[n] < end):
                return f"Partition {name}-{n} ends before the last of them, which had offset {end - 1}."
    return ""


def before(now: Mapping[str, Ends], begins: Mapping[tuple[str, int], int]) -> dict[str, Ends]:
    """The topics as they were before the records that begin there."""
    return {
        name: replace(
            topic,
            ends=tuple(min(end, begins.get((name, n), end)) for n, end in enumerate(topic.ends)),
        )
        for name, topic in now.items()
    }


def ends_of(options: KafkaOptions) -> dict[str, Ends]:
    """The topic as it is now; nothing where each record names its own."""
    return _now(options, topic_facts(options.kafka, {options.topic})) if options.topic else {}


def _former(noted: Iterable[tuple[str, Ends]], now: Mapping[str, Ends]) -> Iterator[LeaderEpoch]:
    """The noted leaders that lead no more."""
    for name, topic in noted:
        leaders = now[name].leaders if name in now else ()
        pairs = enumerate(zip(topic.leaders, leaders, strict=False))
        yield from ((name, n, before) for n, (before, leader) in pairs if before != leader)


def compare(
    past: Past, now: Mapping[str, Ends], cuts: Mapping[LeaderEpoch, int] = NO_CUTS, *, named: bool
) -> list[LookedBack]:
    """Compare the noted topics with what they show now.

    Args:
        cuts: where the records of leaders end that lead no more.
        named: a column names the topics, so old ones may be deleted on purpose: one that is not there
            is a loss of the newest epoch alone. One that was made again is a loss of all.
    """
    newest = {note.sink: note.mark for note in past.noted}.values()

    def is_in(name: str, topic: Ends, more: int) -> bool | None:
        there = now.get(name)
        if there is None or not there.leaders or len(there.leaders) < len(topic.leaders):
            return topic.are_in(there, more)
        pairs = zip(topic.leaders, there.leaders, there.ends, strict=False)
        # Leaders' epochs fall only if the brokers' own state was restored.
        kept = [
            cuts.get((name, n, before), end) if before <= leader else -1
            for n, (before, leader, end) in enumerate(pairs)
        ]
        return topic.are_in(there, more, kept)

    def is_there(mark: str) -> bool | None:
        noted = Topics.read(mark)
        all_are_asked = not named or past.apart or mark in newest
        topics = noted.topics.items()
        asked = [(name, topic) for name, topic in topics if all_are_asked or name in now]
        are = {is_in(name, topic, noted.more) for name, topic in asked}
        return False if False in are else None if None in are else True

    why = "A topic of them is gone or was created again, or a partition ends before their records."
    if any(topic.sums for note in past.noted for topic in Topics.read(note.mark).topics.values()):
        why += f" {_SUMS}"
    return compared(past, is_there, why, _UNSURE, every=True)


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


def _now(options: KafkaOptions, facts: Mapping[str, TopicFacts]) -> dict[str, Ends]:
    """The topics as they are, without the ends of those of too many partitions."""
    small = [topic for topic in facts.values() if topic.partitions <= MAX_ENDS]
    places = [(topic.name, n) for topic in small for n in range(topic.partitions)]
    admin = cluster(options.kafka).admin
    ends = admin.ends(places)

    def of_topic(topic: TopicFacts) -> Ends:
        of_each = [ends[topic.name, n] for n in range(topic.partitions) if (topic.name, n) in ends]
        leaders = [end.leader for end in of_each if end.leader is not None]
        led = tuple(leaders) if len(leaders) == len(of_each) else ()
        return Ends(topic.id, tuple(end.offset for end in of_each), leaders=led)

    return {name: of_topic(topic) for name, topic in facts.items()}


def _later(options: KafkaOptions, past: Past) -> list[Position]:
    """Later generations that have opened transactions; brokers forget their ids after a week."""
    names = map(parse_id, listed(options.kafka, pattern=pattern_of(past.job)))
    return sorted(
        (name.generation, -1)
        for name in names
        if name and name.register == past.register and name.generation > past.decided[0]
    )
