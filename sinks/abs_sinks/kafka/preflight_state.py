"""Preflight of the job's state: register, log and side topic, their durability, ids and ACLs.

A register that loses an acknowledged record forgets a decision, and its epoch is written twice. So
unclean leader election is refused there, and min.insync.replicas=1 with several replicas.

The functions change nothing, and raise ``TargetError`` if the brokers do not answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import LEAST, UNCLEAN, TopicFacts, topic_facts
from abs_clients.kafka.transactions import EndTxn, end
from abs_core.births.parent import parent_key, token_of
from abs_core.errors import AbsError, ConfigError, CorruptionError, FencedError, RefusedError
from abs_core.model import Finding, Severity
from abs_core.wal import FolderSegments
from abs_sinks.kafka.options import KafkaOptions, identity, is_topic_name
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import PARTITIONS, find_topic
from abs_sinks.kafka.side_topic import attempted, data_topic, side_loss
from abs_sinks.kafka.side_topic import findings as side_findings
from abs_sinks.kafka.wal import ledger_key, store_of

_LOCAL = ("localhost", "127.", "[::1]")

_NOBODY = (1 << 62, 0)
"""A producer id and epoch of no producer: EndTxn for them has no effect."""


def preflight_state(
    options: KafkaOptions, job: str | None, *, own_register: bool
) -> Iterator[Finding]:
    """Check the job's state.

    Args:
        job: the register key, if known.
        own_register: whether the register is in this cluster.
    """
    barred = list(findings_of_access(options, job, own_register=own_register))
    yield from barred
    yield from preflight_replicas(options, own_register=own_register)
    if options.protocol == "wal":
        yield from _log(options, job)
    if barred:
        return  # what it may not look at cannot be told
    if own_register or options.protocol == "wal":
        yield from _register(options)
    if job is not None:
        yield from joined(options, _cells(options, job, own_register=own_register))
    if own_register and job is not None:
        yield from _others(options, job)
    if options.protocol == "idempotent":
        for number, of_sink in enumerate(attempted(options)):
            yield from side_findings(of_sink)
            if (
                lost := side_loss(of_sink, data_topic(of_sink), None if number else job)
            ) is not None:
                yield Finding.of(lost)


def _register(options: KafkaOptions) -> Iterator[Finding]:
    try:
        topic = find_topic(options.kafka, options.registertopic)
    except ConfigError as error:
        yield Finding.of(error)
        return
    if topic is None:
        text = f"The register's topic {options.registertopic} does not exist; it will be created."
        yield Finding.note(text)


def _cells(options: KafkaOptions, job: str, *, own_register: bool) -> list[str]:
    """The keys of the job's cells in the register topic."""
    if own_register:
        return [job, *([parent_key(job)] if token_of(job) else [])]
    return [ledger_key(job)] if options.protocol == "wal" else []


def _others(options: KafkaOptions, job: str) -> Iterator[Finding]:
    """Warn a new job of others with its target: its checkpoint may have been deleted."""
    register = KafkaRegister(options)
    if options.topic is None or register.load(job) is not None:
        return
    others = register.others_on(identity(options), job)
    if others:
        yield Finding.warning(
            f"This job is new, but another job has written to topic {options.topic}: "
            f"{', '.join(others[:5])}. If that was this job, and its checkpoint was deleted, "
            "everything would be written twice.",
            "if the checkpoint was deleted, restore it; if the job had another name, set that name "
            f"again (job={others[0]}); if the input is new, do nothing.",
        )


def _log(options: KafkaOptions, job: str | None) -> Iterator[Finding]:
    try:
        store = store_of(options)
        store.list(job)
    except AbsError as error:
        yield Finding.of(error)
        return
    if isinstance(store, FolderSegments) and not _is_local(options.kafka):
        yield Finding.note(
            f"The write-ahead log is a folder ({store.url}): the driver and every executor must see "
            "the same folder.",
            "on several machines use a shared file system, or wal=s3://bucket/prefix.",
        )


def _is_local(settings: Settings) -> bool:
    return all(server.strip().startswith(_LOCAL) for server in settings.bootstrap.split(","))


def preflight_replicas(options: KafkaOptions, *, own_register: bool) -> list[Finding]:
    """Check the durability of the existing topics."""
    kept = [options.registertopic] if own_register or options.protocol == "wal" else []
    if options.protocol == "idempotent" and options.topic is not None:
        kept += [side_topic(data_topic(of_sink)) for of_sink in attempted(options)]
    names = [*kept, *([] if options.topic is None else [options.topic])]
    facts_of: dict[str, TopicFacts] = {}
    for name in names:
        with suppress(RefusedError):  # which ``findings_of_access`` reports
            facts_of |= topic_facts(options.kafka, [name], again=True)
    states = [facts_of[name] for name in kept if name in facts_of]
    data = [facts for name, facts in facts_of.items() if name not in kept]
    return list(findings_of_replicas(states, data))


def findings_of_replicas(
    states: Sequence[TopicFacts], data: Sequence[TopicFacts]
) -> Iterator[Finding]:
    """Find settings that can lose acknowledged records.

    Args:
        states: topics of decisions: the register's, the side topic.
        data: topics of records.
    """
    for topic in states:
        yield from _findings_of(topic, Severity.ERROR, "a decision can be lost")
    for topic in data:
        yield from _findings_of(topic, Severity.WARNING, "committed records can be lost")
    alone = sorted({topic.name for topic in (*states, *data) if topic.replicas == 1})
    if alone:
        yield Finding.warning(
            f"There is only one replica of {', '.join(alone)}: if its broker's disk is lost, committed "
            "records are lost.",
            "raise the replication factor to 3, and min.insync.replicas to 2.",
        )


def _findings_of(topic: TopicFacts, severity: Severity, lost: str) -> Iterator[Finding]:
    configs = dict(topic.configs)
    if configs.get(UNCLEAN, "false").strip().lower() == "true":
        yield Finding(
            severity,
            f"{UNCLEAN} of topic {topic.name} is true: a lagging replica may become leader, and "
            f"{lost}.",
            f"set it to false: {_alter(topic.name, f'{UNCLEAN}=false')}.",
        )
    if topic.replicas > 1 and int(configs.get(LEAST, "2")) < 2:
        yield Finding(
            severity,
            f"{LEAST} of topic {topic.name} is {configs[LEAST]}, with {topic.replicas} replicas: a "
            f"record on one broker counts as written, and {lost} with that broker.",
            f"set it to 2: {_alter(topic.name, f'{LEAST}=2')}.",
        )


def _alter(topic: str, setting: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {setting}"


def findings_of_access(
    options: KafkaOptions, job: str | None, *, own_register: bool
) -> Iterator[Finding]:
    """Find missing ACLs, except on the data topic (``findings_of_topic``)."""
    if options.protocol == "2pc":
        name = f"abs1:{'0' * 16}:{job or 'job'}:preflight"
        yield from _id(options, name, "abs1:")
        if options.kafka.two_phase:
            yield from _two_phase(options, name)
    if own_register or options.protocol == "wal":
        yield from _id(options, register_id(options.registertopic, job or "job"), "abs-register.")
        yield from _topic(
            options, options.registertopic, ("READ", "WRITE", "DESCRIBE_CONFIGS"), PARTITIONS
        )
    if options.protocol == "idempotent" and options.topic is not None:
        for topic in map(data_topic, attempted(options)):
            yield from _topic(options, topic, ("DESCRIBE_CONFIGS",), None)
            yield from _topic(options, side_topic(topic), ("WRITE", "DESCRIBE_CONFIGS"), 1)


def _id(options: KafkaOptions, name: str, prefix: str) -> Iterator[Finding]:
    """Check WRITE on a transactional id, by an EndTxn without effect."""
    try:
        # The first request for a coordinator on a new cluster has to wait.
        patience = timeouts.at_most(timeouts.LOOK_SECONDS, options.patience)
        producer_id, epoch = _NOBODY
        ending = EndTxn(name, producer_id, epoch)
        patience.retry(lambda: end(options.kafka, [ending], commit=False))
    except RefusedError:
        yield Finding.error(
            f"{_who(options)} may not write under transactional id {name}.",
            "allow it WRITE and DESCRIBE on transactional ids that begin with "
            f"{prefix} (a prefixed ACL).",
        )


def _two_phase(options: KafkaOptions, name: str) -> Iterator[Finding]:
    """Check that transactions may do without a timeout, by an id under which nothing is written."""
    patience = timeouts.at_most(timeouts.LOOK_SECONDS, options.patience)
    try:
        patience.retry(
            partial(init_producer_id, options.kafka, name, None, _NOBODY, two_phase=True)
        )
    except RefusedError as error:
        yield Finding.of(error)
    except FencedError:
        pass  # allowed, and refused as nobody


def _topic(
    options: KafkaOptions, name: str, needed: tuple[str, ...], partitions: int | None
) -> Iterator[Finding]:
    """Check the ACLs of a topic; ``partitions`` is None if the sink does not create it."""
    try:
        facts = topic_facts(options.kafka, [name], again=True).get(name)
    except RefusedError:
        allowed = ", ".join(("DESCRIBE", *needed, *(["CREATE"] if partitions else [])))
        yield Finding.error(
            f"{_who(options)} may not describe topic {name}.",
            f"allow it {allowed} on topic {name}.",
        )
        return
    if facts is None and partitions is not None:
        yield from _creation(options, name, partitions, needed)
    elif facts is not None and facts.operations is not None:
        lacking = [operation for operation in needed if operation not in facts.operations]
        if lacking:
            yield Finding.error(
                f"{_who(options)} lacks {' and '.join(lacking)} on topic {name}.",
                f"allow it {', '.join(lacking)} on topic {name}.",
            )


def _creation(
    options: KafkaOptions, name: str, partitions: int, needed: tuple[str, ...]
) -> Iterator[Finding]:
    try:
        cluster(options.kafka).admin.create(name, partitions, {}, dry=True)
    except AbsError as error:
        if error.retryable:
            raise
        yield Finding.error(
            f"Topic {name} does not exist, and {_who(options)} may not create it: {error.what}",
            f"allow it CREATE, DESCRIBE, {', '.join(needed)} on topic {name}; or create the topic.",
        )


def _who(options: KafkaOptions) -> str:
    return f"The principal ({options.kafka.principal})"


def namesakes(topic: str, key: str) -> list[tuple[str, str]]:
    """All other possible cells, by topic and key, with this cell's transactional id.

    An id joins topic and job with a dot (``session.register_id``), and both may hold dots: job
    ``b.c`` in topic ``a`` has the id of job ``c`` in ``a.b``. The ids are durable, so preflight looks
    for the other cell, by a request per dot.
    """
    whole = f"{topic}.{key}"
    dots = [at for at, letter in enumerate(whole) if letter == "."]
    pairs = [(whole[:at], whole[at + 1 :]) for at in dots]
    return [(name, rest) for name, rest in pairs if name != topic and rest and is_topic_name(name)]


def joined(options: KafkaOptions, keys: Iterable[str]) -> Iterator[Finding]:
    """Find existing cells with the id of one of the job's cells; changes nothing.

    It is an error for a new cell, and a warning for an existing one, whose decisions must be finished.

    Args:
        keys: of the job's cells.

    Raises:
        TargetError: no broker answers.
    """
    mine = options.registertopic
    for key in keys:
        for topic, other in namesakes(mine, key):
            if not _is_there(options, topic, other):
                continue
            is_new = KafkaRegister(options).load_text(key) is None
            yield Finding(
                Severity.ERROR if is_new else Severity.WARNING,
                f"The cell {other} of the register topic {topic} has the same transactional id as this "
                f"job's cell {key} of {mine} ({register_id(mine, key)}): whenever one of the two jobs "
                "commits, it stops the other.",
                "give this job another name (job=...), or the other register topic "
                f"(registertopic={topic})."
                if is_new
                else "give one of the two jobs another name (`abs register rename`); or retire the "
                "other one, if it does not run any more.",
            )
            break


def _is_there(options: KafkaOptions, topic: str, key: str) -> bool:
    try:
        if find_topic(options.kafka, topic) is None:
            return False
        return KafkaRegister(replace(options, registertopic=topic)).load_text(key) is not None
    except (ConfigError, CorruptionError, RefusedError):
        return False  # it holds no registers, or none that this principal may see
