"""Rules for librdkafka's settings in a job, by name, for sinks and sources.

Spark users know the Java client's names; those that librdkafka does not have are refused with the
equivalent. Settings that a sink or source must set itself are refused, too: a transaction without
idempotence, or under another id, could not be committed exactly once; a consumer that commits
offsets would keep a second record of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from abs_clients.kafka.login_rules import javas_equivalent
from abs_clients.kafka.setting_table import JAVA_ONLY, TWO_PHASE
from abs_clients.options import Problems
from abs_core.strictjson import decimal

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""15 minutes: the most that a broker grants by default (transaction.max.timeout.ms)."""

PYTHONS = (
    "default.topic.config",
    "error_cb",
    "logger",
    "on_commit",
    "on_delivery",
    "stats_cb",
    "throttle_cb",
)
"""Settings of confluent-kafka that no text can be."""


@dataclass(frozen=True, slots=True)
class Role:
    """A client's purpose, and the settings that it excludes.

    Args:
        refused: settings of the role's own, and what to do instead.
        required: settings that may be given with these values only.
        one_of: settings that take one of these values.
        numbers: settings that must be plain digits, because we read them, too; with their unit.
        writes: whether it makes producers with transactions.
    """

    refused: Mapping[str, str]
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    one_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    writes: bool = False


_NO_STORE = (
    "give certificate and key as PEM (openssl pkcs12 takes them out): kafka.ssl.certificate.location "
    "and kafka.ssl.key.location, with kafka.ssl.key.password if the key has one."
)

SINK = Role(
    refused={
        "transactional.id": "leave it out: this sink names its transactions itself, so that each can "
        "be found again after a crash.",
        "delivery.report.only.error": "leave it out: this sink reads the reports.",
        "enable.gapless.guarantee": "leave it out: transactions give more.",
        "plugin.library.paths": "leave it out: no code is loaded.",
        "group.id": "leave it out: a sink reads nothing.",
        "auto.offset.reset": "leave it out: a sink reads nothing.",
        # The client that ends transactions (kafka-python) has no equivalent for these.
        "ssl.keystore.location": _NO_STORE,
        "ssl.keystore.password": _NO_STORE,
    },
    # What a transaction needs; to write it down is harmless, to contradict it is not.
    required={
        "enable.idempotence": ("true",),
        "acks": ("all", "-1"),
        "request.required.acks": ("all", "-1"),
    },
    one_of={TWO_PHASE: ("true", "false")},
    # librdkafka takes 0x10, and of 1e3 it takes the 1.
    numbers={
        "transaction.timeout.ms": "milliseconds",
        "batch.size": "bytes",
        "message.max.bytes": "bytes",
    },
    writes=True,
)

_KEPT = "leave it out: the engine keeps the offsets; none are committed to Kafka."

SOURCE = Role(
    refused={
        "enable.auto.commit": _KEPT,
        "enable.auto.offset.store": _KEPT,
        "auto.commit.interval.ms": _KEPT,
        "auto.offset.reset": "use startingOffsets and failOnDataLoss.",
        "enable.partition.eof": "leave it out: the source sets it.",
        "group.instance.id": "leave it out: the source joins no group.",
        TWO_PHASE: "leave it out: a source writes nothing.",
        "allow.auto.create.topics": "leave it out: a source creates no topics.",
        "plugin.library.paths": "leave it out: no code is loaded.",
    },
    one_of={"isolation.level": ("read_committed", "read_uncommitted")},
)


def check(name: str, text: str, role: Role, problems: Problems) -> None:
    """Note the problems of one setting, without asking librdkafka."""
    if name in PYTHONS:
        problems.add(f"kafka.{name} takes an object of Python, no text.", "leave it out.")
    elif name in JAVA_ONLY:
        named = javas_equivalent(text) if name.startswith("sasl.") else None
        problems.add(
            f"kafka.{name} is a setting of the Java client only.", named or JAVA_ONLY[name]
        )
    elif name in role.refused:
        problems.add(f"kafka.{name} is not for the job to set.", role.refused[name])
    elif name in role.required and text.strip().lower() not in role.required[name]:
        problems.add(
            f"kafka.{name}={text} contradicts exactly-once: it needs {role.required[name][0]}.",
            "leave it out.",
        )
    elif role.writes and name.startswith("max.in.flight") and not _is_number(text, 1, 5):
        problems.add(
            f"kafka.{name}={text} contradicts exactly-once: an idempotent producer has at most 5.",
            "leave it out.",
        )
    elif name in role.numbers and not _is_number(text, 1, (1 << 31) - 1):
        problems.add(
            f"kafka.{name} must be a number of {role.numbers[name]} in plain digits, not "
            f"{text[:100]!r}.",
            "correct it, or leave it out.",
        )
    elif name in role.one_of and text not in role.one_of[name]:
        problems.add(
            f"kafka.{name} must be {' or '.join(role.one_of[name])}, not {text[:100]!r}.",
            "leave it out.",
        )


def check_own_certificate(pairs: Mapping[str, str], problems: Problems) -> None:
    """Note a certificate without its key, or the reverse: librdkafka silently ignores both."""
    shown = {"ssl.certificate.location", "ssl.certificate.pem"} & pairs.keys()
    held = {"ssl.key.location", "ssl.key.pem"} & pairs.keys()
    if bool(shown) != bool(held):
        problems.add(
            f"kafka.{min(shown | held)} is given, and no {'key' if shown else 'certificate'}.",
            "give both: kafka.ssl.certificate.location and kafka.ssl.key.location.",
        )


def _is_number(text: str, least: int, most: int) -> bool:
    try:
        decimal(text, least, most)
    except ValueError:
        return False
    return True
