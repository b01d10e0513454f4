"""Configurations of both clients: librdkafka writes, kafka-python talks to coordinators.

Both are made from the same ``kafka.*`` settings, which are librdkafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from abs_clients.kafka import timeouts
from abs_clients.kafka.certificates import ssl_context
from abs_clients.kafka.errors import is_auth_failure
from abs_clients.kafka.login import for_librdkafka, login_of
from abs_clients.kafka.login_rules import OAUTH, mechanism_of
from abs_clients.kafka.settings import Settings

QUEUE_KBYTES = 65_536
"""What a producer holds unsent at most; more costs memory and gains nothing (measured)."""

librdkafka_log = logging.getLogger("abs_clients.kafka.librdkafka")
# What matters becomes an error; without a handler the rest would go to standard error.
librdkafka_log.addHandler(logging.NullHandler())

_QUIET: dict[str, Any] = {"log_level": "2"}
"""Lost connections are tried again, and not logged; what fails for good is an error."""

_CONSUMER_ONLY = (
    "isolation.level",
    "group.",
    "fetch.",
    "queued.",
    "check.crcs",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "client.rack",
)


def producer_settings(
    settings: Settings,
    transactional_id: str | None,
    on_delivery: Callable[[Any, Any], None],
    patience_seconds: float = 0.0,
) -> dict[str, Any]:
    """Configuration of a producer that reports failed messages to ``on_delivery``.

    Keys are placed as by the Java client (murmur2). A record is retried until its transaction times
    out, not for librdkafka's five minutes: a shorter timeout could only turn a slow broker into a
    failed epoch.

    Args:
        transactional_id: None: no transactions, but idempotence.
        on_delivery: called from ``poll`` and ``flush`` with (error, message) for each failure.
        patience_seconds: least time to retry a record, if the settings have none.
    """
    timeout = settings.transaction_timeout_ms
    defaults: dict[str, Any] = {
        "partitioner": "murmur2_random",
        "linger.ms": "20",
        # A record that is larger than the queue would find it full for ever.
        "queue.buffering.max.kbytes": str(
            max(QUEUE_KBYTES, 2 * settings.message_max_bytes // 1024)
        ),
        "queue.buffering.max.messages": "1000000",
        "allow.auto.create.topics": "false",
        "log.connection.close": "false",
        **_QUIET,
    }
    if not {"message.timeout.ms", "delivery.timeout.ms"} & {n for n, _ in settings.pairs}:
        defaults["message.timeout.ms"] = str(
            min(timeout, max(300_000, round(patience_seconds * 1000)))
        )
    ours: dict[str, Any] = {
        "enable.idempotence": "true",
        "delivery.report.only.error": True,
        "on_delivery": on_delivery,
        "logger": librdkafka_log,
    }
    if transactional_id is not None:
        ours["transactional.id"] = transactional_id
        ours["transaction.timeout.ms"] = str(timeout)
    return {**defaults, **_client(settings), **ours}


def consumer_settings(
    settings: Settings, defaults: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    """Configuration of a consumer to which partitions are assigned, and which commits no offsets.

    Args:
        defaults: what the settings may change.
        ours: what they may not.
    """
    always: dict[str, Any] = {
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        # Markers of transactions and aborted records take up offsets: where a partition ends is told
        # by this event, a count of records would never get there.
        "enable.partition.eof": True,
        "logger": librdkafka_log,
    }
    return {**_QUIET, **defaults, **_client(settings), **always, **ours}


def _client(settings: Settings) -> dict[str, Any]:
    """The settings of a client of librdkafka; it doubts a token with which it is not let in.

    Otherwise it would show that token until it expires, while its messages time out.
    """
    pairs, login = for_librdkafka(settings), login_of(settings)
    if login is None:
        return pairs

    def heard(error: KafkaError) -> None:
        if is_auth_failure(error):
            login.doubt()

    return {**pairs, "error_cb": heard}


def admin_settings(settings: Settings) -> dict[str, Any]:
    """Configuration of librdkafka's client for topics and offsets, without consumer settings.

    It does not log failing connections: they are retried ten times a second, and a final failure is
    an error.
    """
    own = {"allow.auto.create.topics": "false", **_QUIET, "logger": librdkafka_log}
    pairs = for_librdkafka(settings)
    return {k: v for k, v in pairs.items() if not k.startswith(_CONSUMER_ONLY)} | own


def control_settings(settings: Settings) -> dict[str, Any]:
    """Configuration of kafka-python's admin client. Raises as ``access_settings``."""
    pairs = dict(settings.pairs)
    own: dict[str, Any] = {
        "bootstrap_servers": [s.strip() for s in settings.bootstrap.split(",") if s.strip()],
        "client_id": pairs.get("client.id", "abs-sinks"),
        "request_timeout_ms": int(timeouts.REQUEST_SECONDS * 1000),
        "bootstrap_timeout_ms": int(timeouts.REQUEST_SECONDS * 1000),
        "reconnect_backoff_max_ms": 500,
    }
    return own | access_settings(settings)


def access_settings(settings: Settings) -> dict[str, Any]:
    """Protocol, login and certificates for any client of kafka-python.

    Raises OptionError if a certificate cannot be read, and as ``Login.current``.
    """
    pairs = dict(settings.pairs)
    protocol = pairs.get("security.protocol", "plaintext").upper()
    access: dict[str, Any] = {"security_protocol": protocol}
    if (login := login_of(settings)) is not None:
        login.current()  # who cannot get one is told why, before a client is made
        access |= {"sasl_mechanism": OAUTH, "sasl_oauth_token_provider": login}
    elif (mechanism := mechanism_of(pairs)) is not None:
        access |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": _user(mechanism, pairs.get("sasl.username")),
            "sasl_plain_password": pairs.get("sasl.password"),
        }
    if protocol.endswith("SSL"):
        access["ssl_context"] = ssl_context(pairs)
        access["ssl_check_hostname"] = access["ssl_context"].check_hostname
    return access


def _user(mechanism: str, name: str | None) -> str | None:
    """The user's name as kafka-python sends it, which does not escape it for SCRAM (RFC 5802, 5.1)."""
    if name is None or not mechanism.startswith("SCRAM"):
        return name
    return name.replace("=", "=3D").replace(",", "=2C")
