"""The process's connection to brokers and coordinators, by kafka-python's admin client.

One per use, set of settings and process: it runs its I/O on a thread of its own, and takes calls
from any thread. librdkafka has no request to describe, list or end a transaction.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from enum import Enum, auto
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import kafka.errors
from kafka import KafkaAdminClient

from abs_clients.kafka import private
from abs_clients.kafka.auth_check import check_access
from abs_clients.kafka.configs import control_settings
from abs_clients.kafka.errors import AWAY, translate_errors
from abs_clients.kafka.private import Work
from abs_clients.kafka.routing import invalidate
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, UnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Lane(Enum):
    """Which of a process's connections: megabytes of records must not stand before a question."""

    CONTROL = auto()
    DATA = auto()


IN_FLIGHT = 64
"""Requests on one connection at a time; kafka-python refuses more instead of queueing them."""

# It logs whole requests and every lost connection; what matters becomes an error here.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

LIMIT_SECONDS = 60.0
"""For how long one call may take. Each request has a limit of its own (``REQUEST_SECONDS``), but
kafka-python has none for the handshake of TLS, and a broker that stands still never ends it."""

ALONE_SECONDS = 10.0
"""A client that has reached no broker for so long is made anew: it asks only those that it has last
heard of, never the bootstrap servers again, and those may all have gone meanwhile."""

_Key = tuple[int, Settings, Lane]

_lock = threading.Lock()
_clients: dict[_Key, KafkaAdminClient] = {}
_turns: dict[_Key, threading.Lock] = {}
"""Who connects keeps waiting only those who want the same connection."""
_alone: WeakKeyDictionary[KafkaAdminClient, float] = WeakKeyDictionary()
"""Since when each client has reached nobody; one that has answers is not here."""


def admin(settings: Settings, over: Lane = Lane.CONTROL) -> KafkaAdminClient:
    """The client of this process for these settings, connected.

    Its exceptions are kafka-python's: map them with ``errors.translate_errors``.

    Raises:
        OptionError: a way to authenticate that this client does not know.
        RefusedError: the brokers let nobody in with these settings.
        UnavailableError: none answers.
    """
    key = (os.getpid(), settings, over)
    with _lock:
        for gone in [k for k in _clients if k[0] != key[0]]:
            del _clients[gone]  # of the process that forked this one: its thread is not here
        if key in _clients:
            return _clients[key]
        turn = _turns.setdefault(key, threading.Lock())
    with turn:
        if (there := _clients.get(key)) is not None:
            return there
        made = _connected(settings)
        with _lock:
            _clients[key] = made
        return made


def _connected(settings: Settings) -> KafkaAdminClient:
    """A client that has reached a broker, at the first try or at the second.

    kafka-python gives one broker, drawn by lot, all the time there is; and one that accepts and never
    ends the handshake of TLS takes it.
    """
    whole = control_settings(settings)["bootstrap_timeout_ms"]
    try:
        return _bootstrapped(settings, whole // 3)
    except UnavailableError as error:
        log.debug("connecting once more: %s", error)
        return _bootstrapped(settings, whole - whole // 3)


def _bootstrapped(settings: Settings, timeout_ms: int) -> KafkaAdminClient:
    if settings.is_guarded:
        check_access(settings)
    config = {**control_settings(settings), "bootstrap_timeout_ms": timeout_ms}
    with private.connections(keep=True) as connections:
        try:
            with translate_errors(f"connecting to {settings.bootstrap}"):
                client = KafkaAdminClient(
                    **config,
                    kafka_client=connections,
                    max_in_flight_requests_per_connection=IN_FLIGHT,
                )
        except UnavailableError as error:
            error.remedy = (
                "see that the brokers are up, and kafka.bootstrap.servers; and where they are reached "
                "by TLS or with a password, that kafka.security.protocol says so."
            )
            raise
        return client


def forget(
    settings: Settings, over: Lane = Lane.CONTROL, client: KafkaAdminClient | None = None
) -> None:
    """Close the client, if there is one; the next use connects anew.

    Args:
        client: close none but this: another thread may have done so, and have made the next one.
    """
    key = (os.getpid(), settings, over)
    with _lock:
        there = _clients.get(key)
        if there is None or client not in (None, there):
            return
        del _clients[key]
    private.close(there)


def close_all() -> None:
    """Close every client of this process."""
    with _lock:
        clients = [_clients.pop(key) for key in list(_clients) if key[0] == os.getpid()]
    for client in clients:
        private.close(client)


def run(settings: Settings, doing: str, work: Work[T], over: Lane = Lane.CONTROL) -> T:
    """Run a coroutine on the client's thread and wait for it.

    Where it fails, what the connection knew of coordinators and leaders is forgotten (``routing``).

    Args:
        doing: what it does, as the end of a sentence.
        work: gets the client's connection manager, whose ``send(request, node_id=...)`` returns a
            future to await.

    Raises:
        TargetError: by the error of the broker, or because none answers.
    """
    client = admin(settings, over)
    with translate_errors(doing, settings):
        try:
            found = private.run(client, work, LIMIT_SECONDS)
        except RuntimeError as error:  # the client's loop has ended
            forget(settings, over, client)
            raise UnavailableError(f"Kafka's client ended while {doing}: {error}.") from error
        except kafka.errors.IncompatibleBrokerVersion as error:
            raise RefusedError(
                f"The broker does not know a request that is needed for {doing}.",
                remedy="take a broker of version 3.0 or newer.",
            ) from error
        except BaseException as error:
            invalidate(private.manager_of(client))
            # A loop that has failed is started again by nobody.
            if private.loop_error(client) is not None or _is_alone(client, error):
                forget(settings, over, client)
            raise
        _alone.pop(client, None)
        return found


def _is_alone(client: KafkaAdminClient, error: BaseException) -> bool:
    """Whether it has reached nobody for too long, by this error too."""
    if not isinstance(error, AWAY):
        _alone.pop(client, None)
        return False
    now = time.monotonic()
    return now - _alone.setdefault(client, now) >= ALONE_SECONDS


def gather(*works: Work[Any]) -> Work[list[Any]]:
    """Several coroutines as one: none waits for another's answers. It fails as the first that fails."""

    async def work(manager: Any) -> list[Any]:
        begun = [manager.call_soon(each, manager) for each in works]
        return [await each for each in begun]

    return work


def raise_for(code: int, what: str) -> None:
    """Raise what a broker answers, by its code; nothing where that says that all is well."""
    kind = kafka.errors.for_code(code)
    if kind is not kafka.errors.NoError:
        raise kind(what)
