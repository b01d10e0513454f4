"""Settings of the Kafka client (``kafka.*``) by librdkafka's names, checked, never shown in full.

Sinks and sources read them by the same rules (``setting_rules``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, Producer

from abs_clients.kafka.login_rules import CALLABLE, ID, MSK, check_login, mechanism_of
from abs_clients.kafka.setting_rules import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    SINK,
    Role,
    check,
    check_own_certificate,
)
from abs_clients.kafka.setting_table import NAMES, OWN, TWO_PHASE, is_secret
from abs_clients.options import GIVE_ONCE, Problems, is_text
from abs_core.errors import OptionError

PREFIX = "kafka."

LIBRDKAFKA_BYTES = 1_000_000
"""librdkafka's batch.size and message.max.bytes, where they are not given."""

_CONFIG_OF_TOKENS = re.compile(r"(beginning at:?).*", re.DOTALL)
_USER_INFO = re.compile(r"://[^/@\s]*@")


def without_secrets(text: str, settings: Settings | None = None) -> str:
    """A client's message without quoted settings that may be secret (I9).

    librdkafka quotes ``sasl.oauthbearer.config`` and the URL of a token's endpoint.
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
        """The given value of a setting, if any."""
        return next((value for key, value in self.pairs if key == name), None)

    def with_(self, **more: str) -> Self:
        """These and more settings, which take precedence; unchecked."""
        return self.of({**dict(self.pairs), **more})

    def without(self, name: str) -> Self:
        """These but one; unchecked."""
        return self.of({n: v for n, v in self.pairs if n != name})

    @property
    def bootstrap(self) -> str:
        return dict(self.pairs)["bootstrap.servers"]

    @property
    def is_guarded(self) -> bool:
        """Whether the connection uses TLS or a password."""
        return (self.get("security.protocol") or "plaintext").lower() != "plaintext"

    @property
    def is_msk(self) -> bool:
        """Whether the login is Amazon MSK's IAM."""
        return mechanism_of(dict(self.pairs)) == MSK

    @property
    def principal(self) -> str:
        """The principal, as far as the settings tell; no secret."""
        if self.get("sasl.username") is not None:
            return f"user {self.get('sasl.username')}"
        if self.is_msk:
            return "the AWS identity that boto3 finds"
        if self.get(CALLABLE) is not None:
            return f"who the token of {self.get(CALLABLE)} names"
        if (client := next(filter(None, map(self.get, ID)), None)) is not None:
            return f"client {client}"
        if self.get("ssl.certificate.pem") is not None:
            return "the subject of the certificate in kafka.ssl.certificate.pem"
        file = self.get("ssl.certificate.location") or self.get("ssl.keystore.location")
        return "anonymous" if file is None else f"the subject of the certificate in {file}"

    @property
    def transaction_timeout_ms(self) -> int:
        """Milliseconds after which the broker aborts a transaction."""
        return int(self.get("transaction.timeout.ms") or DEFAULT_TRANSACTION_TIMEOUT_MS)

    @property
    def two_phase(self) -> bool:
        """Whether a task's transaction has no timeout (KIP-939)."""
        return self.get(TWO_PHASE) == "true"

    @property
    def message_max_bytes(self) -> int:
        """Most bytes of a record, or of a request of records."""
        return int(self.get("message.max.bytes") or LIBRDKAFKA_BYTES)

    @property
    def batch_size_bytes(self) -> int:
        """``batch.size``: most bytes of a batch, before compression."""
        return int(self.get("batch.size") or LIBRDKAFKA_BYTES)

    @classmethod
    def of(cls, pairs: Mapping[str, str]) -> Self:
        """These, unchecked."""
        return cls(tuple(sorted(pairs.items())))

    @classmethod
    def read(cls, options: Mapping[str, str], problems: Problems, role: Role = SINK) -> Self:
        """The ``kafka.*`` options of a job, without that prefix; notes their problems."""
        pairs: dict[str, str] = {}
        for option, text in options.items():
            name = option.lower().removeprefix(PREFIX)
            if name == option.lower() or not is_text(option, str(text), problems):
                continue
            if pairs.setdefault(name, str(text)) != str(text):
                problems.add(
                    f"The option {option} is given twice, with different values.", GIVE_ONCE
                )
            check(name, str(text), role, problems)
        if not pairs.get("bootstrap.servers", "").strip():
            wrong = "empty" if "bootstrap.servers" in pairs else "missing"
            problems.add(f"The option kafka.bootstrap.servers is {wrong}.", "it names the brokers.")
        check_own_certificate(pairs, problems)
        if not problems:
            check_login(pairs, problems)
        settings = cls.of(pairs)
        asked = tuple(pair for pair in settings.pairs if pair[0] not in OWN)
        refusal = None if problems else refusal_of(asked, writes=role.writes)
        if refusal is not None:
            sentence, remedy = refusal
            problems.add(without_secrets(sentence, settings), remedy)
        return settings


def from_file(path: Path, bootstrap: str) -> Settings:
    """Settings from a file of lines ``name=value``, to keep passwords off command lines.

    Lines of ``registry.*`` are the schema registry's, and passed over.

    Raises OptionError if it cannot be read, or a setting is wrong.
    """
    lines = lines_of(path).items()
    pairs = {f"{PREFIX}{name}": value for name, value in lines if not name.startswith("registry.")}
    problems = Problems(f"kafka settings in {path}")
    settings = Settings.read({**pairs, f"{PREFIX}bootstrap.servers": bootstrap}, problems)
    problems.raise_any()
    return settings


def lines_of(path: Path) -> dict[str, str]:
    """The lines ``name=value`` of a file; raises OptionError if it cannot be read."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The settings of the Kafka client cannot be read from {path}: {type(error).__name__}.",
            remedy="name a file with librdkafka's settings, a line name=value for each.",
        ) from error
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


_PROBE = "abs.no.such.setting"

_OF_CONNECTIONS = (
    "bootstrap.",
    "metadata.broker.list",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
)


@lru_cache(maxsize=64)
def refusal_of(pairs: tuple[tuple[str, str], ...], *, writes: bool) -> tuple[str, str] | None:
    """What librdkafka refuses in these settings, and the remedy; None if nothing. Does not connect.

    Names and values are checked without a client. Whether they contradict each other for a
    transactional producer is found by making one. Reports one problem, as librdkafka does. The text
    may quote a secret. With ``writes``, the settings are for producers with transactions.
    """
    by_name = dict(pairs)
    text = _refusal(by_name)
    if text is None:
        text = _contradiction(by_name) if writes else None
        if text is None:
            return None
        return (
            f"With these kafka.* settings there can be no transaction: {text}.",
            "correct or remove the setting that it names.",
        )
    # By some names librdkafka means another: what was written down is looked for by itself.
    culprit = next((n for n, v in by_name.items() if _refusal({n: v}) is not None), None)
    if culprit is None:
        return f"librdkafka refuses the kafka.* settings: {text}.", "correct the one that it names."
    if "No such" in text:
        near = difflib.get_close_matches(culprit, NAMES, n=3, cutoff=0.5)
        meant = " or ".join(f"kafka.{n}" for n in near)
        hint = f"did you mean {meant}?" if near else "leave it out, or see librdkafka's list."
        return f"There is no setting kafka.{culprit} in librdkafka.", hint
    shown = "" if is_secret(culprit) else f": {text}"
    return f"The value of kafka.{culprit} cannot be used{shown}.", "correct it, or leave it out."


def _refusal(pairs: Mapping[str, str]) -> str | None:
    """Why librdkafka refuses a name or value; no client is made, as the last setting is invalid."""
    try:
        Producer({**pairs, _PROBE: "1"})
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
        return None if _PROBE in text else text
    except (TypeError, ValueError, AttributeError) as error:
        return str(error)
    return None


def _contradiction(pairs: Mapping[str, str]) -> str | None:
    """Why librdkafka makes no transactional producer with these; it does not connect."""
    others = {n: v for n, v in pairs.items() if not n.startswith(_OF_CONNECTIONS)}
    timeout = {"transaction.timeout.ms": str(DEFAULT_TRANSACTION_TIMEOUT_MS)}
    try:
        Producer({**timeout, **others, "transactional.id": _PROBE, "log_level": "0"})
    except KafkaException as error:
        return str(error.args[0].str()).strip().removeprefix("Failed to create producer: ")
    return None
