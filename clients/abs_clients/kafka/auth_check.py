"""Whether the brokers let this process in, and if not, why: asked before anything else is.

A password or certificate that is refused is an event to librdkafka, which goes on trying; kafka-python
tries for 15 seconds and then says that there is no broker. Here the event becomes an error.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from abs_clients.kafka.configs import CERTIFICATES_REMEDY, librdkafka_log
from abs_clients.kafka.errors import is_auth_failure, to_abs_error, translate_errors
from abs_clients.kafka.settings import Settings, without_secrets
from abs_core.errors import OptionError, UnavailableError

CHECK_SECONDS = 10.0
"""For how long a broker's first word is waited for."""

_lock = threading.Lock()
_admins: dict[tuple[int, Settings], AdminClient] = {}


def admin_client(settings: Settings) -> AdminClient:
    """This process's librdkafka client for topics and their settings; makes no topic by asking.

    Raises:
        OptionError: see ``check_access``.
        RefusedError: the brokers let nobody in with these settings.
    """
    key = os.getpid(), settings
    with _lock:
        if key not in _admins:
            if settings.is_guarded:
                check_access(settings)
            _admins[key] = _client(settings)
        return _admins[key]


@contextmanager
def asking(settings: Settings, doing: str) -> Iterator[AdminClient]:
    """The client, for requests under ``with``; its errors are mapped by ``translate_errors``.

    One that gets no answer is not asked again: librdkafka goes on to wait for a controller that has
    died, for as long as it remembers it as that; a new client asks who it is.
    """
    client = admin_client(settings)
    try:
        with translate_errors(doing, settings):
            yield client
    except UnavailableError:
        with _lock:
            if _admins.get((os.getpid(), settings)) is client:
                del _admins[os.getpid(), settings]
        raise


def forget(settings: Settings) -> None:
    """Let the client go, if there is one; the next use makes another."""
    with _lock:
        _admins.pop((os.getpid(), settings), None)


def check_access(settings: Settings) -> None:
    """Return when a broker has let us in, or when none answers: who asks next is told that.

    Where brokers expect TLS and are spoken to without, nothing is to be heard from them.

    Raises:
        OptionError: a file of the settings cannot be read, or its password is wrong.
        RefusedError: password or certificate are not those of the brokers.
    """
    events: list[KafkaError] = []
    client = _client(settings, error_cb=events.append)
    deadline = time.monotonic() + CHECK_SECONDS
    while time.monotonic() < deadline:
        client.poll(0.01)
        down = any(event.code() == KafkaError._ALL_BROKERS_DOWN for event in events)
        if down:
            client.poll(0.2)  # that they are down may be told before why
        for event in events:
            if is_auth_failure(event):
                raise to_abs_error(event, f"connecting to {settings.bootstrap}", settings)
        if down:
            return
        with suppress(KafkaException):
            client.cluster_id(0.05)
            return


def _client(settings: Settings, **more: Any) -> AdminClient:
    given: dict[str, Any] = {
        **dict(settings.pairs),
        "allow.auto.create.topics": "false",
        "log_level": "2",
        "logger": librdkafka_log,
        **more,
    }
    try:
        return AdminClient(given)
    except KafkaException as error:  # what librdkafka reads only now: files, and their passwords
        text = error.args[0].str()
        named = "set them, as kafka.*." if "sasl." in text else CERTIFICATES_REMEDY
        raise OptionError(
            f"librdkafka refuses the kafka.* settings: {without_secrets(text, settings)}.",
            remedy=named,
        ) from error
