"""May this principal do what a job does? Asked of the brokers; nothing is made or changed.

Where there are no ACLs every answer is yes, so the findings are of guarded clusters only.
"""

from __future__ import annotations

from collections.abc import Iterator

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import TopicFacts, topic_facts
from abs_clients.kafka.transactions import EndTxn, end
from abs_core.errors import AbsError, RefusedError
from abs_core.model import Finding, Severity
from abs_core.patience import Patience
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register_producer import register_id
from abs_sinks.kafka.register_topic import PARTITIONS

_PATIENCE = Patience(seconds=20.0)

_NOBODY = (1 << 62, 0)
"""A producer id and epoch that no producer has: EndTxn for them can end nothing."""


def judge_access(
    options: KafkaOptions, job: str | None, *, own_register: bool
) -> Iterator[Finding]:
    """What the job lacks besides its topic, which ``judge_topic`` looks at.

    Args:
        job: the register key; None: any.
        own_register: whether the register lies in this cluster.

    Raises:
        TargetError: no broker answers.
    """
    if options.protocol == "2pc":
        name = f"abs1:{'0' * 16}:{job or 'job'}:preflight"
        yield from _id(options, name, "abs1:")
    if own_register or options.protocol == "wal":
        yield from _id(options, register_id(options.registertopic, job or "job"), "abs-register.")
        yield from _topic(
            options, options.registertopic, ("READ", "WRITE", "DESCRIBE_CONFIGS"), PARTITIONS
        )
    if options.protocol == "idempotent" and options.topic is not None:
        yield from _topic(options, options.topic, ("DESCRIBE_CONFIGS",), None)
        yield from _topic(options, side_topic(options.topic), ("WRITE", "DESCRIBE_CONFIGS"), 1)


def _id(options: KafkaOptions, name: str, prefix: str) -> Iterator[Finding]:
    """EndTxn needs the same WRITE as everything that is done under an id."""
    try:
        # On a new cluster the first to ask for a coordinator has to wait for it.
        _PATIENCE.retry(lambda: end(options.kafka, [EndTxn(name, *_NOBODY)], commit=False))
    except RefusedError:
        yield Finding(
            Severity.ERROR,
            f"{_who(options)} may not write under transactional id {name}.",
            "allow it WRITE and DESCRIBE on transactional ids that begin with "
            f"{prefix} (a prefixed ACL).",
        )


def _topic(
    options: KafkaOptions, name: str, needed: tuple[str, ...], partitions: int | None
) -> Iterator[Finding]:
    """Of a topic that the job keeps for itself.

    Args:
        partitions: it is made with so many; None: it is not for us to make.
    """
    try:
        facts = topic_facts(options.kafka, [name], again=True).get(name)
    except AbsError as error:
        if error.retryable:
            raise
        allowed = ", ".join(("DESCRIBE", *needed, *(["CREATE"] if partitions else [])))
        yield Finding(
            Severity.ERROR,
            f"{_who(options)} may not describe topic {name}.",
            f"allow it {allowed} on topic {name}.",
        )
        return
    if facts is None and partitions is not None:
        yield from _creation(options, name, partitions, needed)
    elif facts is not None:
        yield from _lacking(options, facts, needed)


def _creation(
    options: KafkaOptions, name: str, partitions: int, needed: tuple[str, ...]
) -> Iterator[Finding]:
    try:
        cluster(options.kafka).admin.create(name, partitions, {}, dry=True)
    except AbsError as error:
        if error.retryable:
            raise
        yield Finding(
            Severity.ERROR,
            f"Topic {name} does not exist, and {_who(options)} may not make it: {error.what}",
            f"allow it CREATE, DESCRIBE, {', '.join(needed)} on topic {name}; or make it.",
        )


def _lacking(
    options: KafkaOptions, facts: TopicFacts, needed: tuple[str, ...]
) -> Iterator[Finding]:
    if facts.operations is None:
        return
    lacking = [operation for operation in needed if operation not in facts.operations]
    if lacking:
        yield Finding(
            Severity.ERROR,
            f"{_who(options)} lacks {' and '.join(lacking)} on topic {facts.name}.",
            f"allow it {', '.join(lacking)} on topic {facts.name}.",
        )


def _who(options: KafkaOptions) -> str:
    return f"The principal ({options.kafka.principal})"
