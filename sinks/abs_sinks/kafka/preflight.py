"""The sink's preflight of cluster and topic: pure functions of the facts that it reads.

An ERROR would break the guarantee or stop the job. A WARNING is for a person to look at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.cluster_facts import STATE_TOPIC, ClusterFacts, cluster_facts
from abs_clients.kafka.producer_ids import active_producers
from abs_clients.kafka.setting_rules import DEFAULT_TRANSACTION_TIMEOUT_MS
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import UNCLEAN, TopicFacts, topics_in_time
from abs_clients.kafka.transactions import (
    NEVER_MS,
    OPEN,
    Description,
    describe,
    listed,
    open_for,
)
from abs_core.errors import DataError, RefusedError, TargetError
from abs_core.model import Finding
from abs_sinks.kafka.changes import plan_changes
from abs_sinks.kafka.formats import findings_of_format
from abs_sinks.kafka.open_transaction import parse_id
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Columns, plan_columns, refuse_wall_clock

SHORT_EXPIRATION_MS = 86_400_000
"""One day: a shorter id expiration may lose the proof of a commit while the job is down."""

OLD_MS = DEFAULT_TRANSACTION_TIMEOUT_MS
"""An open transaction without a timeout that is older is told: its readers have waited for so long."""

MARGIN_MS = 60_000
"""Added to the longest timeout: coordinators check timeouts every ten seconds, and clocks differ."""


def preflight(
    options: KafkaOptions,
    schema: pa.Schema | None,
    if_missing: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Check cluster and topic; changes nothing.

    Args:
        schema: of the input; None: only the brokers are checked.
        if_missing: see ``Sink``.

    Raises:
        IdentityError: the topic is missing, and the job has committed to it.
        TargetError: the brokers do not answer, or refuse.
    """
    findings: list[Finding] = []
    if options.choice.warning:
        findings.append(Finding.warning(options.choice.warning, ""))
    if schema is not None:
        try:
            plan_changes(schema, options)
            used = (*options.sequenceby, options.applyasdeletes.column)
            apart = used if options.write == "changes" else ()
            encoded, of_format = findings_of_format(options, schema)
            columns = plan_columns(encoded, options.topic)
            refuse_wall_clock(encoded, columns)
            findings += [*findings_of_columns(columns, apart), *of_format]
        except DataError as error:
            findings.append(Finding.of(error))
    cluster = cluster_facts(options.kafka)
    findings += findings_of_cluster(cluster, options)
    if options.topic is not None:
        try:
            topic = topics_in_time(options.kafka, [options.topic], again=True).get(options.topic)
        except TargetError as error:
            if error.retryable:
                raise
            return [*findings, Finding.of(error)]
        if topic is None:
            if_missing()
        findings += findings_of_topic(topic, options)
        findings += findings_of_times(topic, schema)
        findings += findings_of_hanging(topic, cluster, options)
        findings += findings_of_lasting(cluster, options)
    findings += findings_of_letters(options)
    return findings


def findings_of_letters(options: KafkaOptions) -> Iterator[Finding]:
    """What is wrong with the topic of dead letters, if there is one."""
    name = options.letters
    if name is None:
        return
    topic = topics_in_time(options.kafka, [name], again=True).get(name)
    yield from findings_of_topic(topic, replace(options, topic=name))
    if topic is not None and topic.compacted:
        yield Finding.error(
            f"Topic {name} (option deadletter) is compacted: dead letters have no key.",
            "set cleanup.policy=delete, or name another topic.",
        )


def findings_of_columns(columns: Columns, apart: Sequence[str] = ()) -> Iterator[Finding]:
    """Name columns that are neither written nor used otherwise (``apart``)."""
    used = {name.lower() for name in apart}
    left_out = [name for name in columns.left_out if name.lower() not in used]
    if left_out:
        yield Finding.warning(
            f"These columns are not written: {', '.join(left_out)}.",
            "put them into value (to_json(struct(...))), or drop them to confirm that you do not need "
            "them.",
        )


def findings_of_cluster(cluster: ClusterFacts, options: KafkaOptions) -> Iterator[Finding]:
    if options.protocol == "2pc" and not cluster.can_end:
        yield Finding.error(
            "The brokers cannot describe or list transactions, which protocol 2pc needs.",
            "use Kafka 3.0 or newer.",
        )
    if options.protocol == "2pc" and options.kafka.is_msk and not cluster.since_3_8:
        yield Finding.error(
            "These brokers are older than 3.8: with MSK's IAM they refuse to end a task's transaction "
            "from the driver, which protocol 2pc needs.",
            "use brokers of version 3.8 or newer, another login, or protocol=wal.",
        )
    if options.protocol != "idempotent":
        yield from _findings_of_timeouts(cluster, options)
    if options.protocol == "2pc":
        yield from _findings_of_ids(cluster)
    if not cluster.configs:
        yield Finding.note(
            "The principal may not read the brokers' settings: timeouts and replicas are not checked.",
            "to have them checked, allow DESCRIBE_CONFIGS on the cluster.",
        )
    state = cluster.state
    if state is not None and state.replicas < min(3, cluster.brokers):
        yield Finding.warning(
            f"{STATE_TOPIC} has {state.replicas} replica(s) on {cluster.brokers} brokers: if their "
            "disks are lost, so is the outcome of transactions.",
            "raise its replication factor to 3.",
        )
    unclean = dict(cluster.configs).get(UNCLEAN) == "true"
    if unclean and options.topic is None:  # one that is named is looked at itself
        yield Finding.warning(
            f"{UNCLEAN} is true: a lagging replica may become leader, and "
            "committed records are then lost.",
            "set it to false, for the topics and for the brokers.",
        )
    if cluster.transaction_version is not None and cluster.transaction_version < 1:
        yield Finding.note(
            "transaction.version is 0: the brokers do not verify late requests of a fenced producer "
            "(KIP-890).",
            "upgrade the feature transaction.version.",
        )


def _findings_of_timeouts(cluster: ClusterFacts, options: KafkaOptions) -> Iterator[Finding]:
    timeout = options.kafka.transaction_timeout_ms
    most = cluster.number("transaction.max.timeout.ms")
    if most is not None and timeout > most:
        yield Finding.error(
            f"kafka.transaction.timeout.ms is {timeout}, but the brokers allow {most} at most.",
            "lower it, or raise the brokers' transaction.max.timeout.ms.",
        )
    if options.protocol != "2pc" or options.kafka.two_phase:
        return
    needed = options.patience.to_decide
    short_ms = round(2 * needed * 1000)  # to be written in, and then to be decided and committed
    if timeout <= needed * 1000:
        yield Finding.error(
            f"kafka.transaction.timeout.ms is {timeout}, so no epoch can be decided: at the decision "
            f"{needed:g} s must be left (the option patience, and a minute).",
            f"set it to {short_ms} at least, or lower the option patience.",
        )
    elif timeout < short_ms:
        yield Finding.warning(
            f"kafka.transaction.timeout.ms is {timeout}: if the driver is down for longer after a "
            "decision, the records of that epoch are lost.",
            f"set it to {short_ms} at least; better, to the longest outage that you expect.",
        )


def _findings_of_ids(cluster: ClusterFacts) -> Iterator[Finding]:
    expiration = cluster.number("transactional.id.expiration.ms")
    if expiration is not None and expiration < SHORT_EXPIRATION_MS:
        yield Finding.warning(
            f"transactional.id.expiration.ms is {expiration}: if the job is down for longer between a "
            "commit and its next start, the proof of that commit is gone, and the job stops.",
            "raise it to the default of 7 days.",
        )


def findings_of_topic(topic: TopicFacts | None, options: KafkaOptions) -> Iterator[Finding]:
    if topic is None:
        yield Finding.error(
            f"Topic {options.topic} does not exist.",
            "create it, with the partitions and replicas that it needs.",
        )
        return
    if topic.operations is not None and "WRITE" not in topic.operations:
        yield Finding.error(
            f"The principal ({options.kafka.principal}) may not write to topic {topic.name}.",
            f"allow it WRITE and DESCRIBE on topic {topic.name}.",
        )
    if topic.operations is not None and "READ" not in topic.operations:
        yield Finding.note(
            f"The principal may not read topic {topic.name}: the records are not counted before they "
            "are pre-committed.",
        )
    yield from _findings_of_size(topic, options)
    if topic.compacted and options.protocol != "idempotent":  # which ``winners`` refuses
        yield Finding.note(f"Topic {topic.name} is compacted: each record needs a key.")


def findings_of_times(topic: TopicFacts | None, schema: pa.Schema | None) -> Iterator[Finding]:
    """Whether the topic replaces the times of the input."""
    timed = schema is not None and "timestamp" in map(str.lower, schema.names)
    if topic is not None and topic.stamps_itself and timed:
        yield Finding.error(
            f"Topic {topic.name} gives each record the time of its arrival "
            "(message.timestamp.type=LogAppendTime), and there is a column timestamp.",
            "drop the column, or set message.timestamp.type=CreateTime.",
        )


def findings_of_hanging(
    topic: TopicFacts | None, cluster: ClusterFacts, options: KafkaOptions
) -> Iterator[Finding]:
    """Find hanging transactions, which block the topic's readers; ``TargetError`` without an answer."""
    if topic is None or not cluster.can_end:
        return
    longest = cluster.number("transaction.max.timeout.ms") or DEFAULT_TRANSACTION_TIMEOUT_MS
    places = [(topic.name, number) for number in range(topic.partitions)]
    before = round(time.time() * 1000) - longest - MARGIN_MS
    try:
        # Retried: a new topic has no leaders yet.
        patience = timeouts.at_most(timeouts.LOOK_SECONDS, options.patience)
        found = patience.retry(lambda: find_hanging(options.kafka, places, before))
    except RefusedError:
        return  # who may not read the topic is told so above
    for seen in found:
        where = f"{seen.topic}-{seen.partition}"
        yield Finding.warning(
            f"A transaction of producer {seen.producer_id} hangs in {where} from offset "
            f"{seen.start_offset}: no coordinator knows it, and readers wait there.",
            f"end it: kafka-transactions.sh abort --topic {seen.topic} --partition {seen.partition} "
            f"--start-offset {seen.start_offset}.",
        )


def findings_of_lasting(cluster: ClusterFacts, options: KafkaOptions) -> Iterator[Finding]:
    """Find old transactions on the topic that no timeout ends (KIP-939), whoever began them."""
    if not (cluster.can_end and cluster.since_3_8):
        return
    patience = timeouts.at_most(timeouts.LOOK_SECONDS, options.patience)
    found = patience.retry(lambda: open_for(options.kafka, OLD_MS))
    for text, seen in sorted(found.items()):
        places = [f"{name}-{number}" for name, number in seen.partitions if name == options.topic]
        if seen.timeout_ms != NEVER_MS or not places:
            continue
        name = parse_id(text)
        whose = "another program" if name is None else f"job {name.job}"
        yield Finding.warning(
            f"Transaction {text} of {whose} is open for {time.time() - seen.start_ms / 1000:.0f} s and "
            f"has no timeout: readers of {', '.join(places)} wait for it.",
            "end it with that program."
            if name is None
            else "start that job, which ends it; `abs in-doubt list` shows what will become of it.",
        )


def _findings_of_size(topic: TopicFacts, options: KafkaOptions) -> Iterator[Finding]:
    limit = topic.max_message_bytes
    if limit is None:
        return
    batch = options.kafka.batch_size_bytes
    if batch > limit and not options.choice.columnar:  # that one makes smaller batches
        yield Finding.error(
            f"Topic {topic.name} accepts batches of {limit} bytes (max.message.bytes), but batches may "
            f"have {batch}: the broker would refuse them.",
            f"set kafka.batch.size={limit * 9 // 10}, or raise max.message.bytes.",
        )
    client = options.kafka.message_max_bytes
    if client > limit:
        yield Finding.note(
            f"Topic {topic.name} refuses records of more than {limit} bytes, compressed."
        )


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that is open in a partition.

    Args:
        start_offset: of its first record there.
        last_ms: when its last record there was written, by the clock of its producer.
    """

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    last_ms: int


def find_hanging(
    settings: Settings, places: Sequence[tuple[str, int]], before_ms: int
) -> list[PartitionTransaction]:
    """Hanging transactions (KIP-664, KIP-890) in these partitions, at whose records readers wait.

    No coordinator knows them, and they exceed every timeout. The cause is a late record of an ended
    transaction, on brokers that do not verify (``transaction.version`` below 2). The death of a job's
    processes leaves none: the coordinator ends its transaction after the timeout.

    The partitions are queried before and after the coordinators, so ones that end in between do not
    count.

    Args:
        before_ms: only those without a write since: now less the brokers'
            transaction.max.timeout.ms. Coordinators hide ids that the principal may not describe;
            only the age excludes healthy transactions of those.

    Raises:
        RefusedError: the principal may not read a topic.
        TargetError: a broker does not answer.
    """
    old = [seen for seen in open_in(settings, places) if seen.last_ms < before_ms]
    if not old:
        return []
    ids = listed(settings, OPEN, producer_ids=sorted({seen.producer_id for seen in old}))
    described = describe(settings, list(ids))
    still = set(open_in(settings, places))
    return [seen for seen in unknown(old, described.values()) if seen in still]


def unknown(
    there: Iterable[PartitionTransaction], described: Iterable[Description | None]
) -> list[PartitionTransaction]:
    """Those that belong to no transaction that is open at a coordinator."""
    owned = {
        (owner.producer_id, place)
        for owner in described
        if owner is not None
        for place in owner.partitions
    }
    return [e for e in there if (e.producer_id, (e.topic, e.partition)) not in owned]


def open_in(settings: Settings, places: Sequence[tuple[str, int]]) -> list[PartitionTransaction]:
    """The open transactions of these partitions."""

    async def work(manager: Any) -> list[PartitionTransaction]:
        return [
            PartitionTransaction(
                topic,
                partition,
                producer.producer_id,
                producer.current_txn_start_offset,
                producer.last_timestamp,
            )
            for (topic, partition), answer in (await active_producers(manager, places)).items()
            for producer in answer.active_producers
            if producer.current_txn_start_offset >= 0
        ]

    return cluster(settings).run("asking partitions for open transactions", work) if places else []
