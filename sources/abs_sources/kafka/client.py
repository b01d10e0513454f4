"""The ``kafka.*`` options: librdkafka's configuration of a client, with what a source forbids."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from abs_clients.options import GIVE_ONCE, Problems, is_text

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"

log = logging.getLogger("abs_sources.kafka")

client_log = logging.getLogger("abs_sources.kafka.librdkafka")
# What matters becomes an error; without a handler librdkafka's lines would go to standard error.
client_log.addHandler(logging.NullHandler())

_QUIET = {"log_level": "2"}
"""librdkafka tells of each connection that fails, and of each client that ends, by default."""

_FORBIDDEN = {
    "enable.auto.commit": "the engine keeps the offsets; none are committed to Kafka.",
    "enable.auto.offset.store": "the engine keeps the offsets; none are committed to Kafka.",
    "auto.offset.reset": "use startingOffsets and failOnDataLoss.",
    "enable.partition.eof": "the source sets it.",
    "group.instance.id": "the source joins no group.",
    "auto.commit.interval.ms": "the engine keeps the offsets; none are committed to Kafka.",
    "allow.auto.create.topics": "a source creates no topics.",
    "enable.auto.commit.interval.ms": "the engine keeps the offsets.",
    **dict.fromkeys(
        ("default.topic.config", "error_cb", "logger", "oauth_cb", "on_commit", "stats_cb"),
        "leave it out: it takes an object of Python, no text.",
    ),
    "throttle_cb": "leave it out: it takes an object of Python, no text.",
}
_JAVA = {
    "sasl.jaas.config": "use kafka.sasl.username and kafka.sasl.password.",
    "ssl.truststore.location": "use kafka.ssl.ca.location (PEM).",
    "ssl.truststore.password": "use kafka.ssl.ca.location (PEM has no password).",
    "ssl.truststore.type": "use kafka.ssl.ca.location (PEM).",
    "ssl.truststore.certificates": "use kafka.ssl.ca.pem.",
    "ssl.keystore.type": "use kafka.ssl.keystore.location (PKCS#12).",
    "ssl.keystore.key": "use kafka.ssl.key.pem.",
    "ssl.keystore.certificate.chain": "use kafka.ssl.certificate.pem.",
    "key.deserializer": "keys and values are binary; decode them in Spark.",
    "value.deserializer": "keys and values are binary; decode them in Spark.",
    "interceptor.classes": "the client is librdkafka, not Java.",
    "sasl.client.callback.handler.class": "the client is librdkafka, not Java.",
    "sasl.login.callback.handler.class": "the client is librdkafka, not Java.",
    "max.poll.records": "use batchsize.",
    "max.partition.fetch.bytes": "use kafka.fetch.message.max.bytes.",
}
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
_OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A place that is gone is an error to decide about, never a reason to begin elsewhere.
    "auto.offset.reset": "error",
    # Markers of transactions and aborted records take up offsets: where a partition ends is told by
    # this event, a count of records would never get there.
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
_DEFAULTS = {
    "group.id": "abs-sources",
    "isolation.level": "read_committed",
    # The default, 1000 ms, lets a fast reader wait most of the time once its queue was full.
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
}


def client_settings(given: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """librdkafka's settings among a job's options; notes what a source cannot take."""
    settings: dict[str, str] = {}
    for name, value in given.items():
        if not name.lower().startswith(PREFIX) or not is_text(name, str(value), problems):
            continue
        key = name.lower().removeprefix(PREFIX)
        if settings.get(key, value) != value:
            problems.add(f"The option {name} is given twice, with different values.", GIVE_ONCE)
        if key in _FORBIDDEN:
            problems.add(f"The option {name} is not for a source.", _FORBIDDEN[key])
        elif key in _JAVA:
            problems.add(f"The option {name} is one of Java's client.", _JAVA[key])
        else:
            settings[key] = value
    if not settings.get(BOOTSTRAP, "").strip():
        problems.add(f"The option {PREFIX}{BOOTSTRAP} is missing.", "it names the brokers.")
    level = settings.get("isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        problems.add(
            f"The option {PREFIX}isolation.level must be read_committed or read_uncommitted, not "
            f"{level!r}.",
            "leave it out: it is read_committed then.",
        )
    return settings


def principal(settings: Mapping[str, str]) -> str:
    """Who the brokers take us for, as far as the settings tell; no secret."""
    if "sasl.username" in settings:
        return f"user {settings['sasl.username']}"
    if "ssl.certificate.pem" in settings:
        return "the subject of the certificate in kafka.ssl.certificate.pem"
    given = settings.get("ssl.certificate.location") or settings.get("ssl.keystore.location")
    return "anonymous" if given is None else f"the subject of the certificate in {given}"


def consumer_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """For the client that reads records."""
    return {**_QUIET, **_DEFAULTS, **settings, **_OWN}


def admin_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """For the client that asks for topics and offsets: what only a consumer knows is left out.

    It keeps quiet on connections that fail: they are tried again, ten times a second, and what fails
    for good is an error.
    """
    return _QUIET | {k: v for k, v in settings.items() if not k.startswith(_CONSUMER_ONLY)}
