"""Protocol idempotent: the topic it may write to, and the side topic with its winners.

One partition: all winners records in one order. Kept longer than the data: a segment of the data is
deleted when its newest record is too old, so its oldest records live for as long as the topic keeps a
segment open, and longer; the side topic adds that and a day.

It is made once, for a topic that no job has written to under this protocol, and the register's topic
says so for good (``side_birth``): one that is gone, or was made anew, has lost what it said.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from abs_clients.kafka.attempts import Decided, side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import configs_in_time, topic_facts, topics_in_time
from abs_core.errors import OptionError, PreflightError, UnavailableError
from abs_core.model import Finding, Severity
from abs_sinks.kafka.options import KafkaOptions, topic_name
from abs_sinks.kafka.register_topic import need_two
from abs_sinks.kafka.sending import Failures
from abs_sinks.kafka.side_birth import settle

DAY_MS = 86_400_000
SECONDS = 15.0
FLUSH_SECONDS = 10.0

_lock = threading.Lock()
"""One thread of a process makes the side topic; the others wait for it."""


def data_topic(options: KafkaOptions) -> str:
    """The one topic that protocol idempotent writes to.

    Raises:
        OptionError: the topic is left to a column, or its name leaves no room for the side topic's.
    """
    if options.topic is None:
        raise OptionError(
            "protocol=idempotent writes to one topic, and the option topic is not given.",
            remedy="set topic; or set protocol=2pc, which takes the column topic.",
        )
    topic_name(side_topic(options.topic))
    return options.topic


def winners_topic(options: KafkaOptions, job: str, *, again: bool = False) -> str:
    """The side topic of the job's data, made where it is missing, and looked at once per process.

    Args:
        job: the register key.
        again: look at least whether it is still the same one.

    Raises:
        PreflightError: the data's topic is compacted or missing, or the side topic loses winners.
        CorruptionError: the side topic is gone, or was made anew.
    """
    topic = data_topic(options)
    name = side_topic(topic)
    known, key = cluster(options.kafka), _key(options)
    with _lock:
        if not known.learnt(key):
            wrong = findings(options)
            if wrong:
                raise PreflightError(wrong[0].what, remedy=wrong[0].remedy)
            settle(options, topic, job, _make)
            known.learn(key, True)
        elif again:
            settle(options, topic, job, _make)
    return name


def forget(options: KafkaOptions) -> None:
    """Look again at the next use, as a new process does."""
    cluster(options.kafka).forget(_key(options))


def _key(options: KafkaOptions) -> tuple[str, str, str]:
    """Under which a cluster keeps that the side topic was looked at."""
    return "side topic", options.registertopic, data_topic(options)


def _make(options: KafkaOptions, topic: str) -> None:
    name = side_topic(topic)
    cluster(options.kafka).admin.create(name, 1, side_config(options.kafka, topic))
    _await(options.kafka, name)
    need_two(options.kafka, name)


def send_winners(producer: Producer, failures: Failures, topic: str, decided: Decided) -> None:
    """Write a winners record, and wait until the side topic has it.

    Raises:
        UnavailableError: it does not take it in time.
        TargetError: it was refused.
    """
    producer.produce(topic, decided.to_bytes(), decided.key, 0)
    left = producer.flush(FLUSH_SECONDS)
    failures.raise_any(producer)
    if left:
        raise UnavailableError(f"Topic {topic} takes no winners record.", job=decided.job)


def findings(options: KafkaOptions) -> list[Finding]:
    """What keeps the protocol from its promise, for preflight; nothing is made or changed."""
    topic = data_topic(options)
    name = side_topic(topic)
    known = topics_in_time(options.kafka, [topic], again=True)
    known |= topic_facts(options.kafka, [name], again=True)
    if topic not in known:
        return []  # the first record tells
    if known[topic].compacted:
        return [
            Finding(
                Severity.ERROR,
                f"Topic {topic} is compacted, and protocol=idempotent cannot write to it: what a "
                "late loser wrote would be the newest value of its key, and the winner's is deleted.",
                "set protocol=2pc or protocol=wal.",
            )
        ]
    if name not in known:
        return []
    side = configs_in_time(options.kafka, name)
    needed = _needed_ms(configs_in_time(options.kafka, topic))
    kept, wrong = int(side["retention.ms"]), []
    if side["cleanup.policy"].strip() != "delete":
        wrong.append(f"its cleanup.policy is {side['cleanup.policy']}, and must be delete")
    if known[name].partitions != 1:
        wrong.append(f"it has {known[name].partitions} partitions, and must have one")
    if kept != -1 and (needed == -1 or kept < needed):
        wrong.append(f"its retention.ms is {kept}, and must be {needed} or more (-1: for ever)")
    if side["retention.bytes"] != "-1":
        wrong.append("its retention.bytes is limited")
    if not wrong:
        return []
    what = f"The side topic {name} would lose winners before the data: {'; '.join(wrong)}."
    return [Finding(Severity.ERROR, what, "alter its settings.")]


def _needed_ms(data: dict[str, str]) -> int:
    retention = int(data["retention.ms"])
    return -1 if retention == -1 else retention + int(data["segment.ms"]) + DAY_MS


def side_config(settings: Settings, topic: str) -> dict[str, str]:
    """How the side topic of a data topic is made."""
    return {
        "cleanup.policy": "delete",
        "unclean.leader.election.enable": "false",
        "retention.bytes": "-1",
        "retention.ms": str(_needed_ms(configs_in_time(settings, topic))),
    }


def _await(settings: Settings, name: str) -> None:
    deadline = time.monotonic() + SECONDS
    while name not in topic_facts(settings, [name], again=True):
        if time.monotonic() > deadline:
            raise UnavailableError(f"The side topic {name} was made, and is not to be seen yet.")
        time.sleep(0.02)
