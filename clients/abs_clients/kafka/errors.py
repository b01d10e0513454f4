"""Errors of both clients, mapped once to the project's own, by Kafka's error codes.

Broker codes are the protocol's (KafkaError of librdkafka and the errors of kafka-python share them);
negative ones are librdkafka's own (``rdkafka.h``). No message of either holds a record or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors
from confluent_kafka import KafkaError, KafkaException

from abs_clients.kafka.settings import Settings, without_secrets
from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    FencedError,
    PreflightError,
    RefusedError,
    RowError,
    SchemaError,
    TargetError,
    UnavailableError,
)

_Mapped = tuple[type[AbsError], str]

_FENCED = (
    "this task or run was taken for dead, and its transaction ended by a newer one: let it stop."
)

CONSEQUENCES = frozenset({-172, -152, -151, -150})
"""What follows when a producer has failed, and never why it did: _STATE, _PURGE_QUEUE,
_PURGE_INFLIGHT, _FATAL."""

AWAY = (
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    kafka.errors.UnknownBrokerIdError,  # it has left since its address was last asked for
    kafka.errors.KafkaTimeoutError,
    kafka.errors.RequestTimedOutError,
)
"""What kafka-python raises where no broker has answered."""

_NO_TRANSACTIONS = -145  # _NOT_CONFIGURED
_LISTED = "`abs doctor` lists what else it lacks."
_ACL_TOPIC = (
    "allow the principal on the topic what it lacks: WRITE and DESCRIBE for records, READ, CREATE and "
    f"DESCRIBE_CONFIGS too where the job keeps its own there; {_LISTED}"
)
_ACL_CLUSTER = f"allow the principal what it lacks on the cluster; {_LISTED}"
_ACL_ID = (
    "allow the principal WRITE and DESCRIBE on transactional ids that begin with abs1: and with "
    f"abs-register. (prefixed ACLs); {_LISTED}"
)
_DOOR = (
    "check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*; brokers that ask for a certificate "
    "take one that an authority of theirs has signed (kafka.ssl.certificate.location)."
)
_BUSY = "nothing of the epoch is lost: it is tried again."
_SIZE = "raise max.message.bytes of the topic and kafka.message.max.bytes, or shrink the record."
_TIMEOUT = "set kafka.transaction.timeout.ms to at most the broker's transaction.max.timeout.ms."

_PASSING = (5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 56, 72, 74, 75, 78, 80)
"""Leaders, coordinators, replicas and disks that are moving or away: the protocol's retriable errors.

librdkafka tries them again by itself, and reports the last when its time is up; its own word for
whether a retry helps (``KafkaError.retriable``) is about transactions only."""

_NO_WORD = (-197, -196, -180, -166, -164, -153, -146)
"""librdkafka's, where it was not let ask in time, or nobody has told it whom: _DESTROY, _FAIL,
_WAIT_COORD, _TIMED_OUT_QUEUE, _WAIT_CACHE, _RETRY, _UNKNOWN_BROKER."""

_BY_CODE: dict[int, _Mapped] = {
    # librdkafka's own
    -181: (RefusedError, _DOOR),  # _SSL
    -169: (RefusedError, _DOOR),  # _AUTHENTICATION
    -195: (UnavailableError, ""),  # _TRANSPORT
    -193: (UnavailableError, "check kafka.bootstrap.servers."),  # _RESOLVE
    -192: (UnavailableError, _BUSY),  # _MSG_TIMED_OUT
    -191: (TargetError, ""),  # _PARTITION_EOF
    -190: (RowError, "correct the column partition."),  # _UNKNOWN_PARTITION
    -188: (SchemaError, "create the topic, or correct its name."),  # _UNKNOWN_TOPIC
    -187: (UnavailableError, "check kafka.bootstrap.servers."),  # _ALL_BROKERS_DOWN
    -185: (UnavailableError, ""),  # _TIMED_OUT
    **dict.fromkeys(_NO_WORD, (UnavailableError, "")),
    -186: (PreflightError, "check the kafka.* settings."),  # _INVALID_ARG
    -152: (UnavailableError, _BUSY),  # _PURGE_QUEUE
    -151: (UnavailableError, _BUSY),  # _PURGE_INFLIGHT
    -144: (FencedError, _FENCED),  # _FENCED
    # the broker's
    1: (TargetError, ""),
    2: (CorruptionError, "a record was damaged on its way; it is tried again."),
    3: (SchemaError, "create the topic, or correct its name."),
    10: (RowError, _SIZE),
    17: (SchemaError, "correct the topic's name."),
    18: (RowError, _SIZE),
    29: (RefusedError, _ACL_TOPIC),
    30: (RefusedError, "allow the principal READ on the group."),
    31: (RefusedError, _ACL_CLUSTER),
    32: (RowError, "correct the column timestamp, or message.timestamp.* of the topic."),
    33: (RefusedError, _DOOR),
    34: (RefusedError, _DOOR),
    35: (RefusedError, "take a broker of version 3.0 or newer."),
    44: (RefusedError, ""),
    47: (FencedError, _FENCED),
    48: (ContentionError, _BUSY),
    49: (ContentionError, _BUSY),
    50: (PreflightError, _TIMEOUT),
    51: (UnavailableError, ""),  # CONCURRENT_TRANSACTIONS
    53: (RefusedError, _ACL_ID),
    58: (RefusedError, _DOOR),
    59: (ContentionError, _BUSY),
    45: (ContentionError, _BUSY),
    87: (RowError, "a compacted topic takes no record without a key."),
    89: (UnavailableError, ""),  # THROTTLING_QUOTA_EXCEEDED
    90: (FencedError, _FENCED),
    120: (ContentionError, _BUSY),  # TRANSACTION_ABORTABLE
    **dict.fromkeys(_PASSING, (UnavailableError, _BUSY)),
}


_REFUSING_ALERTS = (40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 116)
"""TLS alerts by which a broker refuses a client: no certificate, or none that it knows or takes."""


def is_auth_failure(error: KafkaError) -> bool:
    """Whether the brokers refuse password or certificate, or we theirs: no retry helps.

    With TLS 1.3 a broker judges the client's certificate when its handshake is over for the client:
    librdkafka tells the alert as a lost connection.
    """
    if error.code() == KafkaError._TRANSPORT:
        alert = re.search(r"SSL alert number (\d+)", error.str())
        return alert is not None and int(alert[1]) in _REFUSING_ALERTS
    return error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)


def to_abs_error(
    error: BaseException | KafkaError, doing: str, who: Settings | None = None
) -> AbsError:
    """The project's error for one of either client.

    Args:
        error: a KafkaError, a KafkaException around one, or an exception of kafka-python.
        doing: what was asked for, as the end of a sentence: ``sending to topic t``.
        who: settings of the connection; where it is refused, its principal is named.
    """
    if isinstance(error, KafkaException):
        error = error.args[0]
    code, text, retriable = _facts(error)
    text = without_secrets(text, who)
    found = None if code is None else _BY_CODE.get(code)
    if found is None:
        found = (UnavailableError if retriable else TargetError, "")
    if isinstance(error, KafkaError) and is_auth_failure(error):
        found = (RefusedError, _DOOR)
    kind, remedy = found
    shown = "" if code is None else f" [{code}]"
    if who is not None and kind is RefusedError:
        shown += f"; the principal is {who.principal}"
    return kind(f"Kafka failed while {doing}: {text}{shown}.", remedy=remedy)


def reason_of(producer: Any) -> KafkaError | None:
    """Why a producer's open transaction has failed; None where it has not, or nobody can tell.

    librdkafka tells it to who would begin another one. Where all is well that is refused, because one
    is open, and changes nothing: ask only between the beginning of a transaction and its end. A
    producer without transactions cannot be asked.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return None if found.code() in (*CONSEQUENCES, _NO_TRANSACTIONS) else found
    return None


@contextmanager
def translate_errors(doing: str, who: Settings | None = None) -> Iterator[None]:
    """Let only the project's errors out; arguments as for ``to_abs_error``."""
    try:
        yield
    except (KafkaException, kafka.errors.KafkaError) as error:
        raise to_abs_error(error, doing, who) from error
    except (BufferError, TimeoutError, OSError) as error:
        raise UnavailableError(
            f"Kafka did not answer while {doing}: {type(error).__name__}: "
            f"{without_secrets(str(error), who)}."
        ) from error


def _facts(error: Any) -> tuple[int | None, str, bool]:
    """Code, text on one line, and whether the client itself would try again."""
    if isinstance(error, KafkaError):
        return error.code(), _line(error.str()), bool(error.retriable())
    text = _line(str(error)) or type(error).__name__
    code = getattr(error, "errno", None)
    if isinstance(error, kafka.errors.SaslAuthenticationFailedError):
        return 58, text, False
    known = code if isinstance(code, int) and code > 0 else None
    return (
        known,
        text if type(error).__name__ in text else f"{type(error).__name__}: {text}",
        isinstance(error, AWAY) or bool(getattr(error, "retriable", False)),
    )


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
