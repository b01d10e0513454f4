"""A connection to brokers and coordinators, by kafka-python's admin client.

Its I/O runs on a thread of its own, and any thread may call it. librdkafka has no request to
describe, list or end a transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import kafka.errors
from kafka import KafkaAdminClient

from abs_clients.kafka import private, timeouts
from abs_clients.kafka.auth_check import check_access
from abs_clients.kafka.configs import control_settings
from abs_clients.kafka.errors import AWAY, SYSTEM, naming, translate_errors
from abs_clients.kafka.login import login_of
from abs_clients.kafka.private import Work
from abs_clients.kafka.routing import invalidate
from abs_clients.kafka.settings import Settings
from abs_core.errors import RefusedError, UnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")


IN_FLIGHT = 64
"""Requests on one connection at a time; kafka-python refuses more instead of queueing them."""


class Connection:
    """One of a cluster's connections: connects at the first use, and again when needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """A thread that connects blocks only those that want the same connection."""
        self._client: KafkaAdminClient | None = None
        self._left: list[tuple[threading.Timer, KafkaAdminClient]] = []
        """Each closes a client that ``renew`` has replaced."""
        self._alone_since: float | None = None
        """Since when the client has reached no broker; None if it has answers."""

    def client(self) -> KafkaAdminClient:
        """The connected client. Its exceptions are kafka-python's: map them (``translate_errors``).

        Raises:
            OptionError: an authentication that this client does not support.
            RefusedError: the brokers refuse these settings.
            UnavailableError: none answers.
        """
        with self._lock:
            if self._client is not None:
                return self._client
        with self._turn:
            if self._client is None:
                made = _connected(self._settings)
                with self._lock:
                    self._client, self._alone_since = made, None
            return self._client

    def close(self, client: KafkaAdminClient | None = None) -> None:
        """Close the client, if any; the next use connects anew.

        Only if it is still ``client``: another thread may have replaced it.
        """
        if client is None:
            with self._lock:
                left, self._left = self._left, []
            for ending, old in left:
                ending.cancel()
                private.close(old)
        with self._lock:
            there = self._client
            if there is None or client not in (None, there):
                return
            self._client = None
        private.close(there)

    def renew(self) -> None:
        """Connect anew at the next use; what is under way ends on the old connection."""
        with self._lock:
            there, self._client = self._client, None
            self._left = [(timer, old) for timer, old in self._left if timer.is_alive()]
            if there is not None:
                ending = threading.Timer(timeouts.CALL_SECONDS, private.close, [there])
                ending.daemon = True
                ending.start()
                self._left.append((ending, there))

    def run(self, doing: str, work: Work[T]) -> T:
        """Run a coroutine on the client's thread and wait for it; raises the broker's TargetError.

        A failure clears the connection's ``routing``.

        Args:
            doing: the action, as the end of a sentence.
            work: gets the connection manager, whose ``send(request, node_id=...)`` returns a
            future.
        """
        client = self.client()
        with self._naming_brokers(client), translate_errors(doing, self._settings):
            try:
                result = private.run(client, work, timeouts.CALL_SECONDS)
            except RuntimeError as error:  # the client's loop has ended
                self.close(client)
                sentence = f"Kafka's client ended while {doing}: {error}."
                raise UnavailableError(sentence).of(SYSTEM) from error
            except kafka.errors.IncompatibleBrokerVersion as error:
                raise RefusedError(
                    f"The broker does not know a request that is needed for {doing}.",
                    remedy="use a broker of version 3.0 or newer.",
                ) from error
            except BaseException as error:
                invalidate(private.manager_of(client))
                # A loop that has failed is started again by nobody.
                if private.loop_error(client) is not None or self._is_alone(error):
                    self.close(client)
                raise
            self._alone_since = None
            return result

    @contextmanager
    def _naming_brokers(self, client: KafkaAdminClient) -> Iterator[None]:
        """Tell in an outage where the brokers say that they listen: it may not be reached from here."""
        try:
            yield
        except UnavailableError as error:
            naming(error, self._settings, private.manager_of(client).cluster.brokers())
            raise

    def _is_alone(self, error: BaseException) -> bool:
        """Whether it has reached no broker for too long, including this error."""
        if not isinstance(error, AWAY):
            self._alone_since = None
            return False
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
        return now - self._alone_since >= timeouts.ALONE_SECONDS


def _connected(settings: Settings) -> KafkaAdminClient:
    """A client that has reached a broker, at the first or second try.

    kafka-python spends all of its time on one random broker, even one that never ends the TLS
    handshake.
    """
    whole = control_settings(settings)["bootstrap_timeout_ms"]
    try:
        return _bootstrapped(settings, whole // 3)
    except UnavailableError as error:
        log.debug("reconnecting: %s", error)
        return _bootstrapped(settings, whole - whole // 3, again=True)


def _quieten() -> None:
    """Keep whole requests and lost connections out of the log: relevant ones become errors here.

    Not if a level is set for the logger ``kafka``: that is how to see them.
    """
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def _bootstrapped(settings: Settings, timeout_ms: int, *, again: bool = False) -> KafkaAdminClient:
    _quieten()
    if settings.is_guarded:
        check_access(settings, again=again)
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
            if (login := login_of(settings)) is not None:
                login.doubt()
            error.remedy = (
                "check that the brokers are up, and check kafka.bootstrap.servers; if the "
                "brokers need TLS or a password, check kafka.security.protocol, too."
            )
            raise
        return client


def gather(*works: Work[Any]) -> Work[list[Any]]:
    """Run several coroutines concurrently; fails with the first failure."""

    async def work(manager: Any) -> list[Any]:
        begun = [manager.call_soon(one, manager) for one in works]
        return [await future for future in begun]

    return work
