"""Whether a topic went back: by its id, and by where its partitions ended after the last epochs.

Retention moves the beginning of a partition, never its end. Ends that are lower than before are of
brokers that lost acknowledged records, and a recreated topic has another id. What is written since (by
others, or by this job before it decides) raises the ends again. So the epoch of the leader that told an
end is noted, too: where a later leader took over with fewer records, it tells where those before end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.leader_epochs import LeaderEpoch, ends_of_leaders
from abs_clients.kafka.topics import TopicFacts, topic_facts, topic_ids, topics_in_time
from abs_clients.kafka.transactions import listed
from abs_core.deadletters import counts_of
from abs_core.errors import RefusedError
from abs_core.lookback import LookedBack, Past, Position, compared
from abs_core.model import Committable, Shown
from abs_sinks.asof import AsOf, Reading
from abs_sinks.kafka.mark import Ends, Topics
from abs_sinks.kafka.open_transaction import parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.places import Places, begins_of

MAX_ENDS = 1_000
"""Partitions of a topic up to which their ends are noted; so many fit in a full mark."""

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
    begins = begins_of(places, after=-1) if all(one.whole for one in places) else {}
    return Topics(topics, before, more, begins).noted(rows)


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
    return compared(
        past,
        is_there,
        why,
        _UNSURE,
        every=True,
        has_part=lambda mark: Topics.read(mark).may_have_part(now),
    )


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
