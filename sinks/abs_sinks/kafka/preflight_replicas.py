"""Is what brokers acknowledge kept? Judged per topic: the data's, the register's, the side topic.

A register that goes back forgets a decision, and its epoch is written a second time. So what can take
back an acknowledged record is refused there: a leader that lags (unclean election), and a record that
one broker alone needs to have, although there are more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import TopicFacts, topic_facts
from abs_core.errors import RefusedError
from abs_core.model import Finding, Severity
from abs_sinks.kafka.options import KafkaOptions

UNCLEAN = "unclean.leader.election.enable"
LEAST = "min.insync.replicas"


def preflight_replicas(options: KafkaOptions, *, own_register: bool) -> list[Finding]:
    """Look at the topics that are there, and change nothing.

    Args:
        own_register: whether the register lies in this cluster.

    Raises:
        TargetError: no broker answers.
    """
    kept = [options.registertopic] if own_register or options.protocol == "wal" else []
    if options.protocol == "idempotent" and options.topic is not None:
        kept.append(side_topic(options.topic))
    names = [*kept, *([] if options.topic is None else [options.topic])]
    found: dict[str, TopicFacts] = {}
    for name in names:
        try:
            found |= topic_facts(options.kafka, [name], again=True)
        except RefusedError:
            continue  # that it may not be described is told by who needs it
    states = [found[name] for name in kept if name in found]
    data = [facts for name, facts in found.items() if name not in kept]
    return list(judge_replicas(states, data))


def judge_replicas(states: Sequence[TopicFacts], data: Sequence[TopicFacts]) -> Iterator[Finding]:
    """What weakens the promise, or breaks it.

    Args:
        states: topics that hold decisions: the register's, the side topic.
        data: topics that hold records.
    """
    for topic in states:
        yield from _judge(topic, Severity.ERROR, "a decision that was made can be lost")
    for topic in data:
        yield from _judge(topic, Severity.WARNING, "records that are committed can be lost")
    alone = sorted({topic.name for topic in (*states, *data) if topic.replicas == 1})
    if alone:
        yield Finding(
            Severity.WARNING,
            f"There is one replica of {', '.join(alone)}: what is committed is lost with its broker's "
            "disk.",
            "raise the replication factor to 3, and min.insync.replicas to 2.",
        )


def _judge(topic: TopicFacts, severity: Severity, lost: str) -> Iterator[Finding]:
    configs = dict(topic.configs)
    if configs.get(UNCLEAN, "false").strip().lower() == "true":
        yield Finding(
            severity,
            f"{UNCLEAN} of topic {topic.name} is true: a broker that lags may become leader, and "
            f"{lost}.",
            f"set it to false: {_alter(topic.name, f'{UNCLEAN}=false')}.",
        )
    if topic.replicas > 1 and int(configs.get(LEAST, "2")) < 2:
        yield Finding(
            severity,
            f"{LEAST} of topic {topic.name} is {configs[LEAST]}, with {topic.replicas} replicas: what "
            f"one broker has counts as written, and {lost} with that broker.",
            f"set it to 2: {_alter(topic.name, f'{LEAST}=2')}.",
        )


def _alter(topic: str, setting: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {setting}"
