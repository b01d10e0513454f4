"""Checks authentication before anything else is sent to the brokers.

librdkafka reports a refused password or certificate as an event and keeps trying; kafka-python
tries for 15 seconds and then says that there is no broker. Here the event becomes an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from abs_clients.kafka import timeouts
from abs_clients.kafka.certificates import CERTIFICATES_REMEDY
from abs_clients.kafka.configs import admin_settings
from abs_clients.kafka.errors import is_auth_failure, to_abs_error
from abs_clients.kafka.login import login_of
from abs_clients.kafka.settings import Settings, without_secrets
from abs_core.errors import OptionError


def check_access(settings: Settings, *, again: bool = False, fresh: bool = False) -> None:
    """Return when a broker has accepted us, or when none answers: the next request reports that.

    A broker that expects TLS does not answer a client without it.

    Args:
        again: the second look: a busy machine may have reported the reason too late for the first.
        fresh: a token has just been obtained for this look; else another one is, if it is refused.

    Raises:
        OptionError: a file of the settings cannot be read, or its password is wrong.
        RefusedError: the brokers refuse password or certificate.
    """
    event = _refusal(settings, again)
    if event is None:
        return
    if (login := login_of(settings)) is not None:
        login.close()  # the next try gets a new token
        if not fresh:
            check_access(settings, again=again, fresh=True)
            return
    raise to_abs_error(event, f"connecting to {settings.bootstrap}", settings, new=True)


def _refusal(settings: Settings, again: bool) -> KafkaError | None:
    """With what the brokers refuse a new client, which is closed when this returns."""
    events: list[KafkaError] = []
    client = new_client(settings, events.append)
    deadline = time.monotonic() + timeouts.CHECK_SECONDS
    while (now := time.monotonic()) < deadline:
        client.poll(0.01)
        if refusal := next(filter(is_auth_failure, events), None):
            return refusal
        codes = [event.code() for event in events]
        if KafkaError._ALL_BROKERS_DOWN in codes:
            # That they are down may be told before why; a busy machine takes its time between the two.
            has_reason = any(code != KafkaError._ALL_BROKERS_DOWN for code in codes)
            more = timeouts.REASON_SECONDS if has_reason else timeouts.FIRST_REASON_SECONDS
            deadline = min(deadline, now + more * (timeouts.REASON_AGAIN if again else 1))
            continue
        with suppress(KafkaException):
            client.cluster_id(0.05)
            return None
    return None


def new_client(settings: Settings, on_error: Callable[[KafkaError], object]) -> AdminClient:
    """A librdkafka client for topics and their settings; its queries create no topic.

    Args:
        on_error: gets connection events whenever the client is polled.

    Raises:
        OptionError: a file of the settings cannot be read, or its password is wrong.
    """
    try:
        return AdminClient(admin_settings(settings) | {"error_cb": on_error})
    except KafkaException as error:  # what librdkafka reads only now: files, and their passwords
        text = error.args[0].str()
        named = "set them, as kafka.*." if "sasl." in text else CERTIFICATES_REMEDY
        raise OptionError(
            f"librdkafka refuses the kafka.* settings: {without_secrets(text, settings)}.",
            remedy=named,
        ) from error
