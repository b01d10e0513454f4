"""Lets librdkafka check ``kafka.*`` settings, once for each set of them, without connecting.

Names and values are checked without a client. Whether they contradict each other for a
transactional producer is found by making one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache

from confluent_kafka import KafkaException, Producer

from abs_clients.kafka.setting_rules import DEFAULT_TRANSACTION_TIMEOUT_MS
from abs_clients.kafka.setting_table import NAMES, is_secret

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
    """What librdkafka refuses in these settings, and the remedy; None if nothing.

    Reports one problem, as librdkafka does. The text may quote a secret. With ``writes``, the
    settings are for producers with transactions.
    """
    given = dict(pairs)
    text = _refusal(given)
    if text is None:
        text = _contradiction(given) if writes else None
        if text is None:
            return None
        return (
            f"With these kafka.* settings there can be no transaction: {text}.",
            "correct or remove the setting that it names.",
        )
    # By some names librdkafka means another: what was written down is looked for by itself.
    culprit = next((n for n, v in given.items() if _refusal({n: v}) is not None), None)
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
    given = {n: v for n, v in pairs.items() if not n.startswith(_OF_CONNECTIONS)}
    timeout = {"transaction.timeout.ms": str(DEFAULT_TRANSACTION_TIMEOUT_MS)}
    try:
        Producer({**timeout, **given, "transactional.id": _PROBE, "log_level": "0"})
    except KafkaException as error:
        return str(error.args[0].str()).strip().removeprefix("Failed to create producer: ")
    return None
