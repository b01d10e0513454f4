"""The settings of Kafka's clients: who takes each, whether it is shown, and Java's name for it.

One table for every use: what errors and ``repr`` may show, what the columnar producer heeds, what a
mistyped name is compared with, what a name of the Java client means here, and the documentation.
A setting that is not listed is librdkafka's alone, and its value is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from abs_clients.kafka.login_rules import BY_OIDC, BY_PASSWORD, CALLABLE

TWO_PHASE = "transaction.two.phase.commit.enable"
"""The setting by which transactions have no timeout (KIP-939). Java's name; librdkafka has none."""

AUDIENCE = "sasl.oauthbearer.audience"
"""The audience that a token server is asked for; librdkafka has no such setting."""

OWN = (CALLABLE, TWO_PHASE, AUDIENCE)
"""The settings that librdkafka is not given as they are."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting by librdkafka's name.

    Args:
        everywhere: both clients heed it, and so does the columnar producer.
        secret: its value may be secret, and is never shown (I9).
        javas: names that only the Java client has for it.
        hint: what an error adds for a user who gives Java's name.
    """

    name: str
    everywhere: bool = False
    secret: bool = False
    javas: tuple[str, ...] = ()
    hint: str = ""


def _all(names: str, *, everywhere: bool = False, secret: bool = False) -> tuple[Setting, ...]:
    return tuple(Setting(name, everywhere, secret) for name in names.split())


_PEM = " to a file of PEM certificates"
_LEVELS = ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")

SETTINGS = (
    *_all("bootstrap.servers client.id security.protocol", everywhere=True),
    *_all("sasl.mechanism sasl.mechanisms", everywhere=True),
    *_all("sasl.username sasl.password", everywhere=True, secret=True),
    *_all("sasl.oauthbearer.method sasl.oauthbearer.grant.type", everywhere=True),
    *_all(f"sasl.oauthbearer.scope {AUDIENCE}", everywhere=True),
    *_all(
        "sasl.oauthbearer.client.id sasl.oauthbearer.client.secret "
        "sasl.oauthbearer.client.credentials.client.id "
        "sasl.oauthbearer.client.credentials.client.secret "
        "sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.config "
        "https.ca.pem",
        everywhere=True,
        secret=True,
    ),
    Setting(CALLABLE, everywhere=True),
    Setting("https.ca.location", everywhere=True),
    Setting("ssl.ca.location", True, javas=("ssl.truststore.location",), hint=_PEM),
    Setting("ssl.ca.pem", True, True, ("ssl.truststore.certificates",)),
    Setting("ssl.certificate.location", everywhere=True),
    Setting("ssl.certificate.pem", True, True, ("ssl.keystore.certificate.chain",)),
    Setting("ssl.key.location", everywhere=True),
    Setting("ssl.key.pem", True, True, ("ssl.keystore.key",)),
    Setting("ssl.key.password", everywhere=True, secret=True),
    *_all(
        "ssl.endpoint.identification.algorithm enable.ssl.certificate.verification "
        "compression.type compression.codec batch.size transaction.timeout.ms "
        "acks request.required.acks enable.idempotence",
        everywhere=True,
    ),
    Setting(TWO_PHASE, everywhere=True),
    Setting("compression.level", True, javas=_LEVELS),
    Setting("message.max.bytes", True, javas=("max.request.size",)),
    Setting(
        "partitioner",
        True,
        javas=("partitioner.class",),
        hint=" (murmur2_random is the default, and Java's)",
    ),
    Setting("queue.buffering.max.kbytes", javas=("buffer.memory",)),
    Setting("socket.send.buffer.bytes", javas=("send.buffer.bytes",)),
    Setting("socket.receive.buffer.bytes", javas=("receive.buffer.bytes",)),
    Setting("fetch.message.max.bytes", javas=("max.partition.fetch.bytes",)),
    *_all(
        "metadata.broker.list ssl.crl.location ssl.cipher.suites ssl.curves.list ssl.sigalgs.list "
        "client.rack retries message.send.max.retries socket.keepalive.enable "
        "socket.nagle.disable broker.address.family client.dns.lookup max.in.flight "
        "max.in.flight.requests.per.connection debug log_level linger.ms batch.num.messages "
        "queue.buffering.max.messages message.timeout.ms delivery.timeout.ms request.timeout.ms "
        "retry.backoff.ms reconnect.backoff.ms reconnect.backoff.max.ms socket.timeout.ms "
        "metadata.max.age.ms"
    ),
)

NAMES = tuple(each.name for each in SETTINGS)
"""The settings that a mistyped one is compared with."""

EVERYWHERE = frozenset(each.name for each in SETTINGS if each.everywhere)

_SECRET = {each.name: each.secret for each in SETTINGS}
_NUMBERS = (".ms", ".bytes", ".kbytes", ".messages")

_NO_STORES = "leave it out; kafka.ssl.ca.location takes PEM certificates."
_BEST = "leave it out: the best version that both sides support is used."
_AS_THEY_ARE = "leave it out: columns are strings or binaries, and sent as they are."
_BINARY = "leave it out: keys and values are binary; decode them in the query."

NO_EQUIVALENT = {
    "sasl.jaas.config": BY_PASSWORD,
    "sasl.client.callback.handler.class": BY_OIDC,
    "sasl.login.callback.handler.class": BY_OIDC,
    "sasl.login.class": "leave it out.",
    "ssl.truststore.password": _NO_STORES,
    "ssl.truststore.type": _NO_STORES,
    "ssl.keystore.type": "leave it out: certificates and keys are read as PEM.",
    "ssl.protocol": _BEST,
    "ssl.enabled.protocols": _BEST,
    "key.serializer": _AS_THEY_ARE,
    "value.serializer": _AS_THEY_ARE,
    "partitioner.ignore.keys": "set kafka.partitioner=random.",
    "interceptor.classes": "leave it out: there are no interceptors here.",
    "metric.reporters": "leave it out: see the metrics of the query.",
    "max.block.ms": "leave it out: the sink waits if the queue is full.",
    "key.deserializer": _BINARY,
    "value.deserializer": _BINARY,
    "max.poll.records": "leave it out; a source takes batchsize.",
}
"""Names of the Java client that no one setting here stands for, and what to do."""

JAVA_ONLY = NO_EQUIVALENT | {
    java: f"set kafka.{each.name}{each.hint}." for each in SETTINGS for java in each.javas
}
"""Names of the Java client that librdkafka does not have, and what to do instead."""


def is_secret(name: str) -> bool:
    """Whether the setting's value may be secret and must not be shown (I9).

    What is not listed is hidden, numbers excepted: each release of librdkafka has new settings.
    """
    return _SECRET.get(name, not name.endswith(_NUMBERS))
