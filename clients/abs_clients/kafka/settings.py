"""Settings of the Kafka client, as ``kafka.*``: librdkafka's names, checked, never shown in full.

Spark users know the Java client's names. Most are the same; those that are not are refused, with the
equivalent named. What this sink must set itself is refused, too: a transaction without idempotence,
or under somebody else's id, could not be committed exactly once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, Producer

from abs_clients.options import GIVE_ONCE, Problems, is_text
from abs_core.errors import OptionError
from abs_core.strictjson import decimal

PREFIX = "kafka."

_JAVA_ONLY = {
    "sasl.jaas.config": "set kafka.sasl.username and kafka.sasl.password (for Kerberos: "
    "kafka.sasl.kerberos.principal and kafka.sasl.kerberos.keytab).",
    "sasl.client.callback.handler.class": "set kafka.sasl.oauthbearer.method and its siblings.",
    "sasl.login.callback.handler.class": "set kafka.sasl.oauthbearer.method and its siblings.",
    "sasl.login.class": "leave it out.",
    "ssl.truststore.location": "set kafka.ssl.ca.location to a file of PEM certificates.",
    "ssl.truststore.password": "leave it out; kafka.ssl.ca.location takes PEM certificates.",
    "ssl.truststore.type": "leave it out; kafka.ssl.ca.location takes PEM certificates.",
    "ssl.truststore.certificates": "set kafka.ssl.ca.pem.",
    "ssl.keystore.type": "leave it out: certificates and keys are read as PEM.",
    "ssl.keystore.certificate.chain": "set kafka.ssl.certificate.pem.",
    "ssl.keystore.key": "set kafka.ssl.key.pem.",
    "ssl.protocol": "leave it out: the best that both sides know is taken.",
    "ssl.enabled.protocols": "leave it out: the best that both sides know is taken.",
    "key.serializer": "leave it out: columns are strings or binaries, and sent as they are.",
    "value.serializer": "leave it out: columns are strings or binaries, and sent as they are.",
    "partitioner.class": "set kafka.partitioner (murmur2_random is the default, and Java's).",
    "partitioner.ignore.keys": "set kafka.partitioner=random.",
    "interceptor.classes": "leave it out: there are no interceptors here.",
    "metric.reporters": "leave it out: see the metrics of the query.",
    "buffer.memory": "set kafka.queue.buffering.max.kbytes.",
    "max.request.size": "set kafka.message.max.bytes.",
    "max.block.ms": "leave it out: a full queue is waited for.",
    "compression.gzip.level": "set kafka.compression.level.",
    "compression.lz4.level": "set kafka.compression.level.",
    "compression.zstd.level": "set kafka.compression.level.",
    "send.buffer.bytes": "set kafka.socket.send.buffer.bytes.",
    "receive.buffer.bytes": "set kafka.socket.receive.buffer.bytes.",
    "group.id": "leave it out: a sink reads nothing.",
    "auto.offset.reset": "leave it out: a sink reads nothing.",
}
"""Names of the Java client that librdkafka does not have, and what to do instead."""

_OURS = {
    "transactional.id": "leave it out: this sink names its transactions itself, so that each can be "
    "found again after a crash.",
    "delivery.report.only.error": "leave it out: this sink reads the reports.",
    "enable.gapless.guarantee": "leave it out: transactions give more.",
    "plugin.library.paths": "leave it out: no code is loaded.",
}
_NO_STORE = (
    "give certificate and key as PEM (openssl pkcs12 takes them out): kafka.ssl.certificate.location "
    "and kafka.ssl.key.location, with kafka.ssl.key.password if the key has one."
)
_UNREADABLE = {"ssl.keystore.location": _NO_STORE, "ssl.keystore.password": _NO_STORE}
"""Settings of librdkafka that the client which ends transactions has no equivalent for."""

_NUMBERS = {
    "transaction.timeout.ms": "milliseconds",
    "batch.size": "bytes",
    "message.max.bytes": "bytes",
}
"""That this sink reads, too. librdkafka takes 0x10, and of 1e3 it takes the 1."""

_PYTHONS = (
    "default.topic.config",
    "error_cb",
    "logger",
    "oauth_cb",
    "on_commit",
    "on_delivery",
    "stats_cb",
    "throttle_cb",
)
"""Settings of confluent-kafka that no text can be."""

_REQUIRED = {
    "enable.idempotence": ("true",),
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
}
"""What a transaction needs; to write it down is harmless, to contradict it is not."""

_SHOWN = (
    "bootstrap.servers metadata.broker.list security.protocol sasl.mechanism sasl.mechanisms "
    "sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab "
    "sasl.oauthbearer.method sasl.oauthbearer.grant.type sasl.oauthbearer.assertion.algorithm "
    "enable.sasl.oauthbearer.unsecure.jwt ssl.ca.location ssl.certificate.location "
    "ssl.key.location ssl.crl.location ssl.endpoint.identification.algorithm ssl.cipher.suites "
    "ssl.curves.list ssl.sigalgs.list enable.ssl.certificate.verification client.id client.rack "
    "compression.type compression.codec compression.level batch.size acks request.required.acks "
    "enable.idempotence retries message.send.max.retries partitioner socket.keepalive.enable "
    "socket.nagle.disable broker.address.family client.dns.lookup "
    "max.in.flight max.in.flight.requests.per.connection debug log_level"
)
_SHOWN_ENDINGS = (".ms", ".bytes", ".kbytes", ".messages")
"""Numbers. What is not known to be harmless is hidden: each release has new settings."""

_NAMES = (
    "bootstrap.servers security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password "
    "sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.keytab "
    "sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret "
    "sasl.oauthbearer.token.endpoint.url ssl.ca.location ssl.ca.pem ssl.certificate.location "
    "ssl.certificate.pem ssl.key.location ssl.key.pem ssl.key.password "
    "ssl.endpoint.identification.algorithm ssl.cipher.suites client.id "
    "compression.type compression.codec compression.level linger.ms batch.size "
    "batch.num.messages message.max.bytes queue.buffering.max.kbytes queue.buffering.max.messages "
    "message.timeout.ms delivery.timeout.ms request.timeout.ms transaction.timeout.ms retries "
    "retry.backoff.ms reconnect.backoff.ms reconnect.backoff.max.ms socket.timeout.ms "
    "socket.keepalive.enable metadata.max.age.ms client.rack partitioner "
    "max.in.flight.requests.per.connection acks enable.idempotence"
)
"""The settings that a mistyped one is compared with."""

_PROBE = "abs.no.such.setting"

_OF_CONNECTIONS = (
    "bootstrap.",
    "metadata.broker.list",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
)

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""15 minutes: the most that a broker grants by default (transaction.max.timeout.ms)."""

LIBRDKAFKA_BYTES = 1_000_000
"""librdkafka's batch.size and message.max.bytes, where they are not given."""

_CONFIG_OF_TOKENS = re.compile(r"(beginning at:?).*", re.DOTALL)
_USER_INFO = re.compile(r"://[^/@\s]*@")


def is_secret(name: str) -> bool:
    """Whether the value of this setting is not known to be harmless, and must not be shown (I9)."""
    return name not in _SHOWN.split() and not name.endswith(_SHOWN_ENDINGS)


def without_secrets(text: str, settings: Settings | None = None) -> str:
    """What a client says, without what it quotes of the settings that may be secret (I9).

    librdkafka quotes ``sasl.oauthbearer.config`` and the URL of a token's endpoint.

    Args:
        settings: of the client, where they are known.
    """
    for name, value in () if settings is None else settings.pairs:
        if is_secret(name) and len(value) > 2:
            text = text.replace(value, "***")
    return _USER_INFO.sub("://***@", _CONFIG_OF_TOKENS.sub(r"\1 ***", text))


@dataclass(frozen=True, slots=True)
class Settings:
    """librdkafka settings by name, sorted. Hashable; its ``repr`` shows names and no secret (I9)."""

    pairs: tuple[tuple[str, str], ...] = field(repr=False)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={'***' if is_secret(k) else v}" for k, v in self.pairs)
        return f"Settings({shown})"

    def get(self, name: str) -> str | None:
        """The value given for a setting; None where none was."""
        return dict(self.pairs).get(name)

    @property
    def bootstrap(self) -> str:
        return dict(self.pairs)["bootstrap.servers"]

    @property
    def is_guarded(self) -> bool:
        """Whether the brokers are reached by TLS or with a password."""
        return (self.get("security.protocol") or "plaintext").lower() != "plaintext"

    @property
    def principal(self) -> str:
        """Who the brokers take us for, as far as the settings tell; no secret."""
        if self.get("sasl.username") is not None:
            return f"user {self.get('sasl.username')}"
        if self.get("sasl.kerberos.principal") is not None:
            return f"{self.get('sasl.kerberos.principal')}"
        if self.get("ssl.certificate.pem") is not None:
            return "the subject of the certificate in kafka.ssl.certificate.pem"
        given = self.get("ssl.certificate.location")
        return "anonymous" if given is None else f"the subject of the certificate in {given}"

    @property
    def transaction_timeout_ms(self) -> int:
        """After so many milliseconds the broker aborts a transaction on its own."""
        given = self.get("transaction.timeout.ms")
        return DEFAULT_TRANSACTION_TIMEOUT_MS if given is None else int(given)

    @property
    def message_max_bytes(self) -> int:
        """So many bytes the client takes for a record, or a request of them."""
        return int(self.get("message.max.bytes") or LIBRDKAFKA_BYTES)

    @property
    def batch_size_bytes(self) -> int:
        """So many bytes a batch may have, before it is compressed."""
        return int(self.get("batch.size") or LIBRDKAFKA_BYTES)

    @classmethod
    def read(cls, given: Mapping[str, str], problems: Problems) -> Self:
        """The ``kafka.*`` among a job's options, without that prefix; notes what is wrong."""
        pairs: dict[str, str] = {}
        for option, text in given.items():
            name = option.lower().removeprefix(PREFIX)
            if name == option.lower() or not is_text(option, str(text), problems):
                continue
            if pairs.setdefault(name, str(text)) != str(text):
                problems.add(
                    f"The option {option} is given twice, with different values.", GIVE_ONCE
                )
            _check(name, str(text), problems)
        if "bootstrap.servers" not in pairs:
            problems.add("The option kafka.bootstrap.servers is missing.", "it names the brokers.")
        _check_own_certificate(pairs, problems)
        if not problems:
            _try(pairs, problems)
        return cls(tuple(sorted(pairs.items())))


def from_file(path: Path, bootstrap: str) -> Settings:
    """Settings from a file of lines ``name=value``: so that a password is on no command line.

    Raises:
        OptionError: it cannot be read, or a setting is wrong.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The settings of the Kafka client cannot be read from {path}: {type(error).__name__}.",
            remedy="name a file with librdkafka's settings, a line name=value for each.",
        ) from error
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    given = {f"{PREFIX}{name.strip()}": value.strip() for name, _, value in pairs}
    problems = Problems(f"kafka settings in {path}")
    settings = Settings.read({**given, f"{PREFIX}bootstrap.servers": bootstrap}, problems)
    problems.raise_any()
    return settings


def _check(name: str, text: str, problems: Problems) -> None:
    if name in _PYTHONS:
        problems.add(f"kafka.{name} takes an object of Python, no text.", "leave it out.")
    elif name in _JAVA_ONLY:
        problems.add(f"kafka.{name} is a setting of the Java client only.", _JAVA_ONLY[name])
    elif name in _OURS:
        problems.add(f"kafka.{name} is not for the job to set.", _OURS[name])
    elif name in _UNREADABLE:
        problems.add(
            f"kafka.{name} cannot be read by the client that ends transactions.", _UNREADABLE[name]
        )
    elif name in _REQUIRED and text.strip().lower() not in _REQUIRED[name]:
        problems.add(
            f"kafka.{name}={text} contradicts exactly-once: it needs {_REQUIRED[name][0]}.",
            "leave it out.",
        )
    elif name.startswith("max.in.flight") and not _is_number(text, 1, 5):
        problems.add(
            f"kafka.{name}={text} contradicts exactly-once: an idempotent producer has at most 5.",
            "leave it out.",
        )
    elif name in _NUMBERS and not _is_number(text, 1, (1 << 31) - 1):
        problems.add(
            f"kafka.{name} must be a number of {_NUMBERS[name]} in plain digits, not {text[:100]!r}.",
            "correct it, or leave it out.",
        )
    elif name == "bootstrap.servers" and not text.strip():
        problems.add("The option kafka.bootstrap.servers is empty.", "it names the brokers.")


def _is_number(text: str, least: int, most: int) -> bool:
    try:
        decimal(text, least, most)
    except ValueError:
        return False
    return True


def _check_own_certificate(pairs: Mapping[str, str], problems: Problems) -> None:
    """librdkafka leaves out a certificate without a key in silence, and is let in nowhere."""
    shown = {"ssl.certificate.location", "ssl.certificate.pem"} & pairs.keys()
    held = {"ssl.key.location", "ssl.key.pem"} & pairs.keys()
    if bool(shown) != bool(held):
        problems.add(
            f"kafka.{min(shown | held)} is given, and no {'key' if shown else 'certificate'}.",
            "give both: kafka.ssl.certificate.location and kafka.ssl.key.location.",
        )


def _try(pairs: Mapping[str, str], problems: Problems) -> None:
    """Let librdkafka read names and values, and then what contradicts a transaction.

    One thing that is wrong is found at a time, as librdkafka stops at the first.
    """
    text = _refusal(pairs)
    if text is None:
        text = _contradiction(pairs)
        if text is not None:
            problems.add(
                "With these kafka.* settings there can be no transaction: "
                f"{without_secrets(text, Settings(tuple(pairs.items())))}.",
                "leave out or correct what it names.",
            )
        return
    # By some names librdkafka means another: what was written down is looked for by itself.
    culprit = next((n for n, v in pairs.items() if _refusal({n: v}) is not None), None)
    if culprit is None:
        shown = without_secrets(text, Settings(tuple(pairs.items())))
        problems.add(f"librdkafka refuses the kafka.* settings: {shown}.", "correct what it names.")
    elif "No such" in text:
        near = difflib.get_close_matches(culprit, _NAMES.split(), n=3, cutoff=0.5)
        meant = " or ".join(f"kafka.{n}" for n in near)
        hint = f"did you mean {meant}?" if near else "leave it out, or see librdkafka's list."
        problems.add(f"There is no setting kafka.{culprit} in librdkafka.", hint)
    else:
        shown = "" if is_secret(culprit) else f": {text}"
        problems.add(
            f"The value of kafka.{culprit} cannot be used{shown}.", "correct it, or leave it out."
        )


def _refusal(pairs: Mapping[str, str]) -> str | None:
    """Why librdkafka takes a name or value not; no client is made, as the last setting is nowhere."""
    try:
        Producer({**pairs, _PROBE: "1"})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
        return None if _PROBE in text else text
    except (TypeError, ValueError, AttributeError) as error:
        return str(error)
    return None


def _contradiction(pairs: Mapping[str, str]) -> str | None:
    """Why librdkafka makes no transactional producer with these; it connects to nobody."""
    given = {n: v for n, v in pairs.items() if not n.startswith(_OF_CONNECTIONS)}
    timeout = {"transaction.timeout.ms": str(DEFAULT_TRANSACTION_TIMEOUT_MS)}
    try:
        Producer({**timeout, **given, "transactional.id": _PROBE, "log_level": "0"})
    except KafkaException as error:
        return str(error.args[0].str()).strip().removeprefix("Failed to create producer: ")
    return None
