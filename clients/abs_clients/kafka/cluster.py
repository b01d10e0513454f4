"""One Kafka cluster in this process: its connections and cached answers.

Sinks and sources are made anew for each task; connections and answers outlive them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any, TypeVar

from kafka import KafkaAdminClient

from abs_clients.kafka.admin import Admin
from abs_clients.kafka.certificates import certificate_files
from abs_clients.kafka.private import Work
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.wire import Connection
from abs_clients.per_process import PerProcess

log = logging.getLogger(__name__)

T = TypeVar("T")


class Channel(Enum):
    """Separate connections, so that megabytes of records do not delay requests."""

    CONTROL = auto()
    DATA = auto()


class Cluster:
    """Connections to one address with one set of settings; use ``cluster`` to get it.

    A forked child has its own: the thread that runs a connection's I/O is not forked.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._files = certificate_files(settings)
        self.admin = Admin(settings)
        self._connections = {channel: Connection(settings) for channel in Channel}
        self._lock = threading.Lock()
        self._kept: dict[Hashable, Any] = {}
        """Cached answers, and users' own objects."""

    def connection(self, channel: Channel = Channel.CONTROL) -> Connection:
        """The connection of a channel."""
        return self._connections[channel]

    def client(self, channel: Channel = Channel.CONTROL) -> KafkaAdminClient:
        """The connected client of a channel, as ``Connection.client``."""
        return self._connections[channel].client()

    def run(self, doing: str, work: Work[T], channel: Channel = Channel.CONTROL) -> T:
        """Run a coroutine on a channel, as ``Connection.run``."""
        return self._connections[channel].run(doing, work)

    def learnt(self, key: Hashable) -> Any:
        """The cached answer under this key, if any."""
        with self._lock:
            return self._kept.get(key)

    def learn(self, key: Hashable, value: object) -> None:
        """Cache an answer until the cluster is closed, or ``drop``."""
        with self._lock:
            self._kept[key] = value

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """A user's own object, made at the first request, closed with the cluster.

        ``make`` is called under a lock, so it must not use the cluster.
        """
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            held: T = self._kept[key]
            return held

    def drop(self, *keys: Hashable) -> None:
        """Clear cached answers, and close users' own objects, that exist under these keys."""
        with self._lock:
            dropped = [self._kept.pop(key, None) for key in keys]
        for held in dropped:
            if hasattr(held, "close"):
                held.close()

    def renew_if_replaced(self) -> None:
        """Connect anew from now on if files of certificates were replaced; answers stay.

        What is under way ends on its old connections. A user's object that has ``renew`` is told;
        another one with connections of its own is left to whoever uses it, and made anew by the next.
        """
        if not self._files.replaced():
            return
        log.info("certificates for %s were replaced: connecting anew", self.settings.bootstrap)
        with self._lock:
            kept = dict(self._kept)
        for key, held in kept.items():
            if hasattr(held, "renew"):
                held.renew()
            elif hasattr(held, "close"):
                with self._lock:
                    self._kept.pop(key, None)
        self.admin.close()
        for connection in self._connections.values():
            connection.renew()

    def close(self) -> None:
        """Close connections and users' objects, clear the cache; the next use connects anew.

        A thread that connects meanwhile gets its client; another ``close`` closes that one.
        """
        with self._lock:
            keys = list(self._kept)
        self.drop(*keys)
        self.admin.close()
        for connection in self._connections.values():
            connection.close()


# At the end of a process its connections go with their threads: closing one whose brokers are away
# could only hold it up.
_clusters: PerProcess[Settings, Cluster] = PerProcess(Cluster, at_exit=False)


def cluster(settings: Settings) -> Cluster:
    """This process's cluster with these settings."""
    current = _clusters.of(settings)
    current.renew_if_replaced()
    return current


def close_clusters(settings: Settings | None = None) -> None:
    """Close this process's clusters, or the one with these settings, and clear their caches."""
    _clusters.close(settings)
