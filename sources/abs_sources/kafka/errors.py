"""librdkafka's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from abs_core.errors import AbsError, OptionError, RefusedError, UnavailableError

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant READ and DESCRIBE on the topic.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant DESCRIBE on the cluster.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant READ on the group, or name one by kafka.group.id.",
    KafkaError.SASL_AUTHENTICATION_FAILED: "look at the kafka.sasl.* options.",
    KafkaError._AUTHENTICATION: "look at the kafka.sasl.* options.",
    KafkaError._SSL: "look at the kafka.ssl.* options and at kafka.security.protocol; a certificate of "
    "one's own needs its key, too (kafka.ssl.certificate.location, kafka.ssl.key.location).",
    KafkaError.UNSUPPORTED_VERSION: "Kafka brokers of version 3.0 or newer are needed.",
    KafkaError.TOPIC_EXCEPTION: "look at the name of the topic.",
}


_REFUSING_ALERTS = (40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 116)
"""TLS alerts by which a broker refuses a client: no certificate, or none that it knows or takes."""

_CONFIG_OF_TOKENS = re.compile(r"(beginning at:?).*", re.DOTALL)
_USER_INFO = re.compile(r"://[^/@\s]*@")

DATA_LOSS_REMEDY = (
    "if these records are not needed, set failOnDataLoss=false for one start; else restore the topic. "
    "With a new checkpoint the job begins at startingOffsets, and may write rows a second time."
)
"""What to do where records are gone that are still to be read."""


def is_auth_failure(error: KafkaError) -> bool:
    """Whether the brokers refuse password or certificate, or we theirs: no retry helps.

    With TLS 1.3 a broker judges the client's certificate when its handshake is over for the client:
    librdkafka tells the alert as a lost connection.
    """
    if error.code() == KafkaError._TRANSPORT:
        alert = re.search(r"SSL alert number (\d+)", error.str())
        return alert is not None and int(alert[1]) in _REFUSING_ALERTS
    return error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)


def to_abs_error(error: KafkaError, doing: str, who: str = "") -> AbsError:
    """The error of ours for one of librdkafka's.

    Args:
        doing: what was being done, as in "looking up the topics".
        who: the principal, to be named where it is refused.
    """
    # Of sasl.oauthbearer.config and of a token's endpoint it quotes what may be secret (I9).
    shown = _USER_INFO.sub("://***@", _CONFIG_OF_TOKENS.sub(r"\1 ***", error.str()))
    said = f"Kafka: {doing} failed: {shown} ({error.name()})."
    remedy = _REFUSED.get(KafkaError._SSL if is_auth_failure(error) else error.code())
    if remedy is not None:
        named = f" The principal is {who}." if who else ""
        return RefusedError(f"{said}{named}", remedy=remedy)
    if error.code() in (KafkaError._INVALID_ARG, KafkaError._CONFLICT):
        return OptionError(
            said, remedy="kafka.* options have librdkafka's names; see its CONFIGURATION.md."
        )
    return UnavailableError(
        said, remedy="look at the brokers and at kafka.bootstrap.servers; then start again."
    )


@contextmanager
def translate_errors(doing: str, who: str = "") -> Iterator[None]:
    """Raises librdkafka's errors as ours.

    Raises:
        UnavailableError, RefusedError, OptionError: see ``to_abs_error``.
    """
    try:
        yield
    except KafkaException as error:
        raise to_abs_error(error.args[0], doing, who) from error
