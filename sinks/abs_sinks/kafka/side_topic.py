"""Protocol idempotent: its data topic, and the side topic of winners records.

The side topic has one partition, so that winners records have one order. It is kept for the data's
retention, plus ``segment.ms`` and a day: Kafka deletes a segment only by its newest record.

It is created once, and its id is kept in a cell of the register's topic that outlives the jobs. A lost
or recreated side topic is refused: readers would drop committed records as undecided or lost.

Every function that asks the brokers raises ``TargetError`` if they do not answer, or refuse.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import Decided, side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import (
    UNCLEAN,
    TopicFacts,
    configs_in_time,
    topic_facts,
    topics_in_time,
)
from abs_core import strictjson
from abs_core.contracts import Conflict, Version
from abs_core.errors import (
    ContentionError,
    CorruptionError,
    OptionError,
    PreflightError,
)
from abs_core.model import Finding
from abs_sinks.kafka.options import KafkaOptions, topic_name
from abs_sinks.kafka.records import single
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import fields_of, made, reading
from abs_sinks.kafka.sending import RecordSender, TransactionalProducer

TRIES = 5
FORMAT = 1
"""The version of ``Birth``; 0.1.0 and before wrote no number."""

DAY_MS = 86_400_000


def data_topic(options: KafkaOptions) -> str:
    """The one topic that protocol idempotent writes to.

    Raises:
        OptionError: the option topic is not given, or too long for the side topic's name.
    """
    if options.topic is None:
        raise OptionError(
            "protocol=idempotent writes to one topic, and the option topic is not given.",
            remedy="set topic; or set protocol=2pc, which takes the column topic.",
        )
    topic_name(side_topic(options.topic))
    return options.topic


def attempted(options: KafkaOptions) -> list[KafkaOptions]:
    """The options for each topic that attempts write to: the data's, and that of dead letters."""
    rows = replace(options, topic=data_topic(options), deadletter=None)
    letters = options.letters
    return [rows, *([] if letters is None else [replace(rows, topic=letters)])]


def winners_topics(options: KafkaOptions, job: str, *, again: bool = False) -> list[str]:
    """The side topic of each of ``attempted``; see ``winners_topic``."""
    rows, *letters = attempted(options)
    # The job's epochs prove nothing about a topic that the option has named later.
    others = [winners_topic(of_letters, None, again=again) for of_letters in letters]
    return [winners_topic(rows, job, again=again), *others]


def winners_topic(options: KafkaOptions, job: str | None, *, again: bool = False) -> str:
    """The side topic, created if missing and checked once per process.

    Args:
        job: the register key; None: what it has decided does not tell whether the topic was there.
        again: check again that it is the same topic.

    Raises:
        PreflightError: the data's topic is compacted or missing, or the side topic loses winners.
        CorruptionError: the side topic is gone, or was recreated.
    """
    topic = data_topic(options)
    name = side_topic(topic)
    connections, key = cluster(options.kafka), ("side topic", options.registertopic, topic)
    # One thread of a process creates the side topic; the others wait for it.
    with connections.kept(("lock", *key), threading.Lock):
        if not connections.learnt(key):
            wrong = findings(options)
            if wrong:
                raise PreflightError(wrong[0].what, remedy=wrong[0].remedy)
            _settle(options, topic, job)
            connections.learn(key, True)
        elif again:
            _settle(options, topic, job)
    return name


def send_winners(
    transactions: TransactionalProducer, topics: Sequence[str], decided: Decided
) -> None:
    """Write a winners record in the open transaction, and wait for its acknowledgement.

    Args:
        topics: of ``winners_topics``.
    """
    rows, *letters = topics
    write_winners(transactions.to(rows, timeouts.WINNERS_SECONDS), decided)
    # An epoch that a run without the option has decided has no record there: none is missing.
    decided = replace(decided, after=None)
    for topic in letters:
        write_winners(transactions.to(topic, timeouts.WINNERS_SECONDS), decided)


def write_winners(sender: RecordSender, decided: Decided) -> None:
    """Send a winners record, and wait for its acknowledgement."""
    sender.send(single(decided.key, decided.to_bytes(), partition=0))
    sender.flush()


def findings(options: KafkaOptions) -> list[Finding]:
    """What is wrong with data and side topic, for preflight; changes nothing."""
    topic = data_topic(options)
    name = side_topic(topic)
    facts = topics_in_time(options.kafka, [topic], again=True)
    facts |= topic_facts(options.kafka, [name], again=True)
    if topic not in facts:
        return []  # the first record tells
    if facts[topic].compacted:
        return [
            Finding.error(
                f"Topic {topic} is compacted, so protocol=idempotent cannot write to it: a record of a "
                "late losing attempt would be the newest value of its key, and the winner's would be "
                "deleted.",
                "set protocol=2pc or protocol=wal.",
            )
        ]
    if name not in facts:
        return []
    side = configs_in_time(options.kafka, name)
    needed = _needed_ms(configs_in_time(options.kafka, topic))
    kept, wrong = int(side["retention.ms"]), []
    if side["cleanup.policy"].strip() != "delete":
        wrong.append(f"its cleanup.policy is {side['cleanup.policy']}, and must be delete")
    if facts[name].partitions != 1:
        wrong.append(f"it has {facts[name].partitions} partitions, and must have one")
    if kept != -1 and (needed == -1 or kept < needed):
        wrong.append(f"its retention.ms is {kept}, and must be {needed} or more (-1: for ever)")
    if side["retention.bytes"] != "-1":
        wrong.append("its retention.bytes is limited")
    if not wrong:
        return []
    text = f"The side topic {name} would lose winners before the data: {'; '.join(wrong)}."
    return [Finding.error(text, "alter its settings.")]


def _needed_ms(data: dict[str, str]) -> int:
    retention = int(data["retention.ms"])
    return -1 if retention == -1 else retention + int(data["segment.ms"]) + DAY_MS


def side_config(settings: Settings, topic: str) -> dict[str, str]:
    """The settings with which the side topic of a data topic is created."""
    return {
        "cleanup.policy": "delete",
        UNCLEAN: "false",
        "retention.bytes": "-1",
        "retention.ms": str(_needed_ms(configs_in_time(settings, topic))),
    }


@dataclass(frozen=True, slots=True)
class Birth:
    """The ids of data and side topic at the first job's start; None: the brokers have no topic ids."""

    data: str | None
    side: str | None

    def to_text(self) -> str:
        return json.dumps({"data": self.data, "format": FORMAT, "side": self.side})

    @classmethod
    def from_text(cls, topic: str, text: str) -> Birth:
        """Raises:
        CorruptionError: it cannot be read, or a newer release wrote it.
        """
        with reading(f"The entry of {side_topic(topic)} in the register's topic"):
            fields = fields_of(text, FORMAT)
            data, side = (
                None if fields[name] is None else strictjson.text(fields[name])
                for name in ("data", "side")
            )
            return cls(data, side)


def _settle(options: KafkaOptions, topic: str, job: str | None) -> None:
    """Check that the side topic is the recorded one; create and record the first.

    Args:
        job: the register key of the writing job.

    Raises:
        CorruptionError: it is gone, or was recreated.
    """
    register, settings, name = KafkaRegister(options), options.kafka, side_topic(topic)
    for _ in range(TRIES):
        version, birth = _known(register, topic)
        facts = topic_facts(settings, [topic, name], again=True)
        if (error := _loss(options, topic, job, birth, facts)) is not None:
            raise error
        if name not in facts:
            made(settings, name, 1, side_config(settings, topic))
        ids = _ids(topic, _seen(options, topic))
        if birth == ids or not isinstance(
            register.swap_text(_cell_of(topic), version, ids.to_text()), Conflict
        ):
            return
    raise ContentionError(
        f"Another process is writing the entry of {name} in the register's topic.",
        job=job,
        remedy="start the query again.",
    )


def was_written(options: KafkaOptions, topic: str) -> bool:
    """Whether jobs wrote to the topic under this protocol, and its side topic exists."""
    _, birth = _known(KafkaRegister(options), topic)
    if birth is None:
        return False
    return side_topic(topic) in topic_facts(options.kafka, [side_topic(topic)], again=True)


def side_loss(options: KafkaOptions, topic: str, job: str | None) -> CorruptionError | None:
    """The loss that ``winners_topic`` would raise; changes nothing."""
    _, birth = _known(KafkaRegister(options), topic)
    facts = topic_facts(options.kafka, [topic, side_topic(topic)], again=True)
    return _loss(options, topic, job, birth, facts)


def _loss(
    options: KafkaOptions,
    topic: str,
    job: str | None,
    birth: Birth | None,
    facts: dict[str, TopicFacts],
) -> CorruptionError | None:
    """None: the side topic is there, or never was."""
    name = side_topic(topic)
    if birth is None:
        stored = None if name in facts or job is None else KafkaRegister(options).load(job)
        if stored is None or stored.state.frontier is None or name in _seen(options, topic):
            return None
        return _error(
            topic,
            job,
            f"is gone, and this job has committed epochs up to {stored.state.frontier}",
            f"If those were of another protocol, make {name} by hand: one partition, "
            "cleanup.policy=delete, retention.ms=-1.",
        )
    if name not in facts:
        facts = _seen(options, topic)  # one broker that does not know it is no proof
    now = _ids(topic, facts)
    if topic not in facts or _differ(birth.data, now.data):
        return None  # another topic of that name holds no attempt that the old side topic spoke of
    if name not in facts:
        return _error(topic, job, "is gone, and jobs have written with protocol=idempotent")
    if _differ(birth.side, now.side):
        return _error(topic, job, "was deleted and created again")
    return None


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other


def _error(topic: str, job: str | None, why: str, more: str = "") -> CorruptionError:
    return CorruptionError(
        f"The side topic {side_topic(topic)} {why}. It is the only record of which records of "
        f"{topic} count.",
        job=job,
        remedy=f"write to a new topic, and copy to it what is good of {topic} (winners=false reads the "
        f"records of every attempt). {more}".strip(),
    )


def _ids(topic: str, facts: dict[str, TopicFacts]) -> Birth:
    data, side = facts.get(topic), facts.get(side_topic(topic))
    return Birth(None if data is None else data.id, None if side is None else side.id)


def _known(register: KafkaRegister, topic: str) -> tuple[Version | None, Birth | None]:
    cell = register.load_text(_cell_of(topic))
    if cell is None:
        return None, None
    return cell.version, Birth.from_text(topic, cell.text)


def _seen(options: KafkaOptions, topic: str) -> dict[str, TopicFacts]:
    """Facts of the topic and its side topic; one broker that does not know them is no proof."""
    return topics_in_time(options.kafka, [topic, side_topic(topic)], again=True)


def _cell_of(topic: str) -> str:
    return f"{topic}+winners"  # no job's key has a plus sign
