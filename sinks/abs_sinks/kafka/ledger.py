"""The ledger of protocol wal with a register elsewhere: its text and its place.

It is the only proof that a segment's records are committed. So a committable records its ledger's
place: an empty ledger, in another ``registertopic`` or after its deletion, would send all again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import TopicFacts, topics_in_time
from abs_core import strictjson
from abs_core.contracts import Task
from abs_core.errors import ConfigError, CorruptionError
from abs_core.model import Committable, HandleName
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.topic import fields_of, make_topic, reading

LEDGER_FORMAT = 1
"""A ledger without a number (315a560 and before) has this format."""

_TOPIC, _ID, _LOG = "ledger", "ledger_id", "log"


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The place of a committable's ledger, as its ``extra`` records it.

    Args:
        topic: the register's topic.
        id: of that topic; a recreated topic has another; None: the brokers have no topic ids.
        log: the URL of the segments; None in committables of 0aaad39 and before.
    """

    topic: str
    id: str | None
    log: str | None = None

    @classmethod
    def of(cls, committable: Committable) -> Self | None:
        """Read a committable; None: it has no place (5c575c5 and before)."""
        extra = dict(committable.extra)
        return cls(extra[_TOPIC], extra.get(_ID), extra.get(_LOG)) if _TOPIC in extra else None

    def noted(self, committable: Committable) -> Committable:
        """The committable with this place in its ``extra``."""
        texts = {_TOPIC: self.topic, _ID: self.id, _LOG: self.log}
        more = {name: text for name, text in texts.items() if text is not None}
        extra = tuple(sorted({**dict(committable.extra), **more}.items()))
        return replace(committable, extra=extra)


def place_for(options: KafkaOptions, task: Task) -> LedgerPlace:
    """The place of the task's ledger; its topic is created if missing.

    Raises:
        PreflightError: the topic is there and cannot hold registers.
        TargetError: it may not be created, or no broker answers.
    """
    # Looked at once per epoch and process: a deleted topic stops one epoch, not all.
    connections, key = cluster(options.kafka), ("ledger", options.registertopic)
    epoch = task.register, task.job, task.generation, task.epoch
    learnt = connections.learnt(key)
    if learnt is not None and learnt[0] == epoch:
        place: LedgerPlace = learnt[1]
        return place
    topic = options.patience.retry(lambda: make_topic(options.kafka, options.registertopic))
    place = LedgerPlace(topic.name, topic.id)
    connections.learn(key, (epoch, place))
    return place


def without_proof(options: KafkaOptions, committables: Sequence[Committable]) -> list[Committable]:
    """Those whose ledger's topic is gone or recreated, so that their outcome cannot be known.

    Args:
        committables: those that the present ledger does not name.

    Raises:
        ConfigError: their ledger is in another topic.
        TargetError: no broker answers.
    """
    places = {c.handle: place for c in committables if (place := LedgerPlace.of(c)) is not None}
    for committable in committables:
        place = places.get(committable.handle)
        if place is not None and place.topic != options.registertopic:
            raise ConfigError(
                f"The option registertopic is {options.registertopic}, but the topic {place.topic} "
                "records whether this is committed. Nothing was sent.",
                handle=committable.handle,
                remedy=f"set registertopic={place.topic} until the decided epoch is finished; after "
                "that it may be changed.",
            )
    if not any(place.id for place in places.values()):
        return []
    name = options.registertopic
    # Asked again: an id that is remembered is that of the topic before it was created anew.
    topic = topics_in_time(options.kafka, [name], again=True).get(name)
    return [c for c in committables if _is_another(places.get(c.handle), topic)]


def check_log(committables: Sequence[Committable], log: str) -> None:
    """Check that missing segments that were not sent belong to this log.

    Raises:
        ConfigError: one is in another log.
    """
    for committable in committables:
        place = LedgerPlace.of(committable)
        if place is not None and place.log not in (None, log):
            raise ConfigError(
                f"The option wal is {log}, but this segment is in {place.log}, so it was not sent.",
                handle=committable.handle,
                remedy=f"set wal={place.log} until the decided epoch is finished; after that it "
                "may be changed.",
            )


def gone(committable: Committable, topic: str, segments: str) -> CorruptionError:
    """The error for a decided segment whose outcome is unknown."""
    return CorruptionError(
        f"The topic {topic} was deleted after this was pre-committed, and with it the ledger that says "
        "whether its records are committed. They are not sent again.",
        handle=committable.handle,
        remedy="look whether the epoch's records are in their topic (one transaction: all or "
        f"none). Then delete its segments in {segments}, and let the job go on by `abs in-doubt "
        f"accept-loss {committable.handle.job} {committable.handle.epoch}`; if its records were "
        "not there, write them again from the source under another job name.",
    )


def _is_another(place: LedgerPlace | None, facts: TopicFacts | None) -> bool:
    if place is None or place.id is None:
        return False
    return facts is None or facts.id not in (None, place.id)


def to_text(handles: set[HandleName]) -> str:
    """The ledger's text."""
    return json.dumps({"committed": sorted(map(str, handles)), "format": LEDGER_FORMAT})


def handles_in_ledger(job: str, text: str) -> set[HandleName]:
    """The handles whose records are committed.

    Raises:
        CorruptionError: the text is not a ledger, or of a newer release.
    """
    with reading("The ledger of what is committed under protocol=wal", job):
        fields = fields_of(text, LEDGER_FORMAT)
        return {HandleName.read(name) for name in strictjson.of(list, fields["committed"])}


def newest_of(handles: set[HandleName], register: str) -> set[HandleName]:
    """One handle of this register's last epoch in the ledger, if there is any."""
    mine = [handle for handle in handles if handle.register == register]
    return (
        {max(mine, key=lambda handle: (handle.generation, handle.epoch, handle))} if mine else set()
    )
