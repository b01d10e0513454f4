"""The meaning of each Kafka error code: one table by name, for sinks, sources and registers.

Names are those of librdkafka's binding: without an underscore the protocol's, which both clients
share; with one librdkafka's own. An unlisted code is final: a new one must not be retried for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    FencedError,
    OptionError,
    PreflightError,
    RefusedError,
    RowError,
    SchemaError,
    TargetError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The project's error for a code; its ``retryable`` says whether the error may pass."""

    kind: type[AbsError]
    remedy: str = ""


_LISTED = "`abs doctor` lists all missing rights."
_ACL_TOPIC = Meaning(
    RefusedError,
    "allow the principal the missing rights on the topic: READ and DESCRIBE to read it; WRITE "
    "and DESCRIBE to write to it, and READ, CREATE and DESCRIBE_CONFIGS too if the topic is the "
    f"job's own; {_LISTED}",
)
_ACL_CLUSTER = Meaning(
    RefusedError, f"allow the principal the missing rights on the cluster; {_LISTED}"
)
_ACL_GROUP = Meaning(
    RefusedError,
    "allow the principal READ on the group, or name another group with kafka.group.id.",
)
_ACL_ID = Meaning(
    RefusedError,
    "allow the principal WRITE and DESCRIBE on transactional ids that begin with abs1: and with "
    f"abs-register. (prefixed ACLs); {_LISTED}",
)
ACCESS = Meaning(
    RefusedError,
    "check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*; brokers that ask for a "
    "certificate accept one that their authority has signed (kafka.ssl.certificate.location and "
    "kafka.ssl.key.location).",
)
"""The brokers do not accept our password or certificate, or we do not accept theirs."""

_BUSY = "nothing of the epoch is lost: it is tried again."
_PASSES = Meaning(UnavailableError, _BUSY)
_AWAY = Meaning(
    UnavailableError, "check that the brokers are up, and check kafka.bootstrap.servers."
)
_CONTENDED = Meaning(ContentionError, _BUSY)
_FENCED = Meaning(
    FencedError,
    "a newer task or run has replaced this one and ended its transaction: let it stop.",
)
_NO_TOPIC = Meaning(SchemaError, "create the topic, or correct its name.")
_TOO_LARGE = Meaning(
    RowError,
    "raise max.message.bytes of the topic and kafka.message.max.bytes, or shrink the record.",
)
_DAMAGED = Meaning(CorruptionError, "a record was damaged on its way, or on a broker's disk.")
_NOT_UNPACKED = Meaning(
    CorruptionError,
    "set kafka.receive.message.max.bytes=1000000000: librdkafka does not unpack a batch that is larger "
    "than that (default: 100 MB). If that changes nothing, a record was damaged on its way, or on a "
    "broker's disk.",
)
_OPTION = Meaning(
    OptionError,
    "check the kafka.* options: they have librdkafka's names, see its CONFIGURATION.md.",
)

_MOVING = [
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_CONTROLLER",
    "KAFKA_STORAGE_ERROR",
    "LISTENER_NOT_FOUND",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
]
"""Leaders, coordinators, replicas and disks that are moving or away.

librdkafka tries them again by itself, and reports the last when its time is up; its own word for
whether a retry helps (``KafkaError.retriable``) is about transactions only."""

_BUSY_BROKERS = [
    "CONCURRENT_TRANSACTIONS",
    "THROTTLING_QUOTA_EXCEEDED",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "UNSTABLE_OFFSET_COMMIT",
    "STALE_CTRL_EPOCH",
    "STALE_BROKER_EPOCH",
    "INCONSISTENT_TOPIC_ID",
    "UNKNOWN_TOPIC_ID",
]

_NO_WORD = [
    "_DESTROY",
    "_FAIL",
    "_WAIT_COORD",
    "_TIMED_OUT_QUEUE",
    "_WAIT_CACHE",
    "_RETRY",
    "_UNKNOWN_BROKER",
    "_NODE_UPDATE",
    "_INTR",
    "_IN_PROGRESS",
    "_PREV_IN_PROGRESS",
    "_OUTDATED",
    "_DESTROY_BROKER",
    "_LOG_TRUNCATION",
    "_MAX_POLL_EXCEEDED",
]
"""librdkafka's own codes: it could not ask in time, or did not know which broker to ask."""

CONSEQUENCES = frozenset(
    {KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL}
)
"""Codes that follow the failure of a producer, and never its cause."""

MEANINGS: Mapping[str, Meaning] = {
    # No answer, or none yet.
    **dict.fromkeys(_MOVING, _PASSES),
    **dict.fromkeys(_BUSY_BROKERS, _PASSES),
    **dict.fromkeys(_NO_WORD, _AWAY),
    **dict.fromkeys(("_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_TIMED_OUT"), _AWAY),
    **dict.fromkeys(("_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT"), _PASSES),
    # What list_offsets answers while no partition of those it was asked about has a leader.
    "_NOENT": _PASSES,
    # Access.
    **dict.fromkeys(
        (
            "_SSL",
            "_AUTHENTICATION",
            "UNSUPPORTED_SASL_MECHANISM",
            "ILLEGAL_SASL_STATE",
            "SASL_AUTHENTICATION_FAILED",
        ),
        ACCESS,
    ),
    "TOPIC_AUTHORIZATION_FAILED": _ACL_TOPIC,
    "GROUP_AUTHORIZATION_FAILED": _ACL_GROUP,
    "CLUSTER_AUTHORIZATION_FAILED": _ACL_CLUSTER,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _ACL_ID,
    "POLICY_VIOLATION": Meaning(
        RefusedError, "a policy of the brokers forbids it: ask the person who set it."
    ),
    "UNSUPPORTED_VERSION": Meaning(RefusedError, "use a broker of version 3.0 or newer."),
    "_UNSUPPORTED_FEATURE": Meaning(RefusedError, "use a broker of version 3.0 or newer."),
    # What the job asks for.
    **dict.fromkeys(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"), _NO_TOPIC),
    "TOPIC_EXCEPTION": Meaning(SchemaError, "correct the topic's name."),
    **dict.fromkeys(("_INVALID_ARG", "_CONFLICT"), _OPTION),
    "INVALID_TRANSACTION_TIMEOUT": Meaning(
        PreflightError,
        "set kafka.transaction.timeout.ms to at most the broker's transaction.max.timeout.ms.",
    ),
    # Records.
    "_UNKNOWN_PARTITION": Meaning(RowError, "correct the column partition."),
    **dict.fromkeys(("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"), _TOO_LARGE),
    "INVALID_TIMESTAMP": Meaning(
        RowError, "correct the column timestamp, or message.timestamp.* of the topic."
    ),
    "INVALID_RECORD": Meaning(
        RowError,
        "compare the batch's records with the topic's settings: a compacted topic accepts none without "
        "a key, and message.timestamp.* limit the column timestamp.",
    ),
    "INVALID_MSG": _DAMAGED,
    **dict.fromkeys(("_BAD_MSG", "_BAD_COMPRESSION"), _NOT_UNPACKED),
    # Transactions.
    **dict.fromkeys(("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"), _FENCED),
    **dict.fromkeys(
        (
            "INVALID_TXN_STATE",
            "INVALID_PRODUCER_ID_MAPPING",
            "UNKNOWN_PRODUCER_ID",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "TRANSACTION_ABORTABLE",
        ),
        _CONTENDED,
    ),
    # A reader's place: whoever reads decides what it means, before it comes here.
    **dict.fromkeys(("_PARTITION_EOF", "OFFSET_OUT_OF_RANGE"), Meaning(TargetError)),
}

_NUMBERS: Mapping[str, int] = {"TRANSACTION_ABORTABLE": 120}
"""The numbers of names that an older binding does not have."""


def number_of(name: str) -> int:
    """The code with this name."""
    return int(getattr(KafkaError, name, _NUMBERS.get(name, 0)))


def _numbers(names: Iterable[str]) -> frozenset[int]:
    return frozenset(map(number_of, names))


BY_NUMBER = {number_of(name): meaning for name, meaning in MEANINGS.items()}
"""The meaning of each code in the table."""

UNHEARD = _numbers(
    ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
)
"""The broker that was asked does not know the topic or partition: it may be new, or gone."""

PRODUCE_RETRIABLE = _numbers(
    (*_MOVING, "INVALID_MSG", "UNKNOWN_TOPIC_OR_PART", "THROTTLING_QUOTA_EXCEEDED")
)
"""Errors of the protocol that it calls retriable, as far as they can answer a produce request."""

CONSUMER_RETRIES = frozenset(
    number for number, meaning in BY_NUMBER.items() if meaning.kind.retryable
) | _numbers(("GROUP_AUTHORIZATION_FAILED",))
"""Events after which a consumer of librdkafka continues by itself; the caller decides for how long.

No group is joined here, so the group's coordinator does not matter."""
