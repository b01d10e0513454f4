"""Maps errors of both clients to the project's own, by the table of ``codes``.

No message of either contains a record or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors
from confluent_kafka import KafkaError, KafkaException

from abs_clients.causes import local_error, name_open_files
from abs_clients.kafka.codes import ACCESS, BY_NUMBER, CONSEQUENCES, Meaning
from abs_clients.kafka.login import login_of
from abs_clients.kafka.settings import Settings, without_secrets
from abs_core.durable import RAISE_FILES
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError

SYSTEM = "Kafka"

AWAY = (
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    kafka.errors.UnknownBrokerIdError,  # it has left since its address was last asked for
    kafka.errors.KafkaTimeoutError,
    kafka.errors.RequestTimedOutError,
)
"""What kafka-python raises where no broker has answered."""

_NO_TOKEN = ("Failed to acquire SASL OAUTHBEARER token", "OAuth token not set")
"""librdkafka's words if its ``oauth_cb`` has raised: that is no refusal of a broker."""

_LATER = Meaning(
    UnavailableError,
    "the token has expired, or is not to be had; each new connection asks for one.",
)

_REFUSING_ALERTS = (40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 116)
"""TLS alerts by which a broker refuses a client: no certificate, or none that it knows or takes."""


def is_auth_failure(error: KafkaError) -> bool:
    """Whether either side refuses the other's password or certificate: no retry helps.

    librdkafka reports two of these as lost connections: a handshake that fails within OpenSSL's first
    call, because the broker's answer was already there, and a broker's refusal after the client's
    handshake (TLS 1.3).
    """
    if error.code() == KafkaError._TRANSPORT:
        text = error.str()
        if "SSL routines:" in text and "in state SSL_HANDSHAKE" in text:
            return True
        alert = re.search(r"SSL alert number (\d+)", text)
        return alert is not None and int(alert[1]) in _REFUSING_ALERTS
    refuses = error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)
    return refuses and not _lacks_token(error.str())


def _lacks_token(text: str) -> bool:
    return any(words in text for words in _NO_TOKEN)


def to_abs_error(
    error: BaseException | KafkaError,
    doing: str,
    who: Settings | None = None,
    *,
    new: bool = False,
) -> AbsError:
    """The project's error for one of either client.

    Args:
        error: a KafkaError, a KafkaException around one, or an exception of kafka-python.
        doing: the action, as the end of a sentence: ``sending to topic t``.
        who: the connection's settings; if it is refused, its principal is named.
        new: the client has just been made, with a token that is good: a refusal of it is final. A
            token may expire under an older one while no new one is to be had.
    """
    if isinstance(error, KafkaException):
        error = error.args[0]
    code, text, retriable = _facts(error)
    text = without_secrets(text, who)
    meaning = None if code is None else BY_NUMBER.get(code)
    if meaning is None:
        meaning = Meaning(UnavailableError if retriable else TargetError)
    if isinstance(error, KafkaError) and is_auth_failure(error):
        meaning = ACCESS
    elif _lacks_token(text):
        meaning = _LATER
    login = None if who is None else login_of(who)
    if login is not None and meaning in (ACCESS, _LATER) and not new:
        why = login.failure
        meaning = _LATER if why is None else Meaning(type(why), why.remedy)
        text = text if why is None else why.what.rstrip(".")
    if login is not None and issubclass(meaning.kind, UnavailableError):
        if (outage := login.outage) is not None:
            # A broker ends a session whose token has expired: kafka-python tells a lost connection.
            meaning, text = Meaning(type(outage), outage.remedy), outage.what.rstrip(".")
        login.doubt()
    shown = "" if code is None else f" [{code}]"
    if who is not None and meaning.kind is RefusedError:
        shown += f"; the principal is {who.principal}"
    sentence = f"Kafka failed while {doing}: {text}{shown}."
    mapped = meaning.kind(sentence, remedy=meaning.remedy)
    if code is None or code < 0:  # else a broker has answered
        mapped = name_open_files(mapped, error if isinstance(error, BaseException) else None)
    return mapped.of(SYSTEM)


def naming(error: AbsError, who: Settings, brokers: Iterable[Any]) -> None:
    """Add to an outage's remedy where the brokers say that they listen, if that is elsewhere.

    Args:
        brokers: of the cluster's metadata, with ``host`` and ``port``.
    """
    addresses = {f"{broker.host}:{broker.port}" for broker in brokers}
    if error.remedy == RAISE_FILES:
        return
    if elsewhere := sorted(addresses - set(who.bootstrap.replace(" ", "").split(","))):
        error.remedy = (
            f"check that the brokers are up, and that {', '.join(elsewhere[:8])} can be reached from "
            "here: there they say that they listen (advertised.listeners)."
        )


def reason_of(producer: Any) -> KafkaError | None:
    """Why a producer's open transaction has failed; None if it has not, or if unknown.

    librdkafka tells the reason when another transaction is begun. In a healthy one that is refused
    without a change, so call this only within a transaction. Producers without transactions have no
    reason.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        return None if reason.code() in (*CONSEQUENCES, KafkaError._NOT_CONFIGURED) else reason
    return None


@contextmanager
def translate_errors(doing: str, who: Settings | None = None) -> Iterator[None]:
    """Map both clients' errors; arguments as for ``to_abs_error``."""
    try:
        yield
    except (KafkaException, kafka.errors.KafkaError) as error:
        raise to_abs_error(error, doing, who) from error
    except (BufferError, TimeoutError, OSError) as error:
        if local := local_error(error, doing, SYSTEM):
            raise local from error
        raise name_open_files(
            UnavailableError(
                f"Kafka did not answer while {doing}: {type(error).__name__}: "
                f"{without_secrets(str(error), who)}."
            ),
            error,
        ).of(SYSTEM) from error


def _facts(error: Any) -> tuple[int | None, str, bool]:
    """Code, text on one line, and whether the client itself would retry."""
    if isinstance(error, KafkaError):
        return error.code(), _line(error.str()), bool(error.retriable())
    text = _line(str(error)) or type(error).__name__
    code = getattr(error, "errno", None)
    if isinstance(error, kafka.errors.SaslAuthenticationFailedError):
        return KafkaError.SASL_AUTHENTICATION_FAILED, text, False
    number = code if isinstance(code, int) and code > 0 else None
    return (
        number,
        text if type(error).__name__ in text else f"{type(error).__name__}: {text}",
        isinstance(error, AWAY) or bool(getattr(error, "retriable", False)),
    )


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
