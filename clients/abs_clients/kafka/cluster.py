"""One Kafka cluster, as this process reaches it: its connections, and what was learnt of it.

Sinks and sources are made anew for each task; connections and what brokers have said outlive them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any, TypeVar

from kafka import KafkaAdminClient

from abs_clients.kafka.admin import Admin
from abs_clients.kafka.private import Work
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.wire import Connection
from abs_clients.per_process import PerProcess

T = TypeVar("T")


class Lane(Enum):
    """Which of a process's connections: megabytes of records must not stand before a question."""

    CONTROL = auto()
    DATA = auto()


class Cluster:
    """Of one address and set of settings. Use ``cluster``: a process then has one of each.

    A forked child has its own: the thread that runs a connection's I/O is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.admin = Admin(settings)
        self._lanes = {lane: Connection(settings) for lane in Lane}
        self._lock = threading.Lock()
        self._learnt: dict[Hashable, Any] = {}
        self._kept: dict[Hashable, Any] = {}

    def connection(self, lane: Lane = Lane.CONTROL) -> Connection:
        """One of its connections."""
        return self._lanes[lane]

    def client(self, lane: Lane = Lane.CONTROL) -> KafkaAdminClient:
        """The client of one of its connections, connected, as ``Connection.client``."""
        return self._lanes[lane].client()

    def run(self, doing: str, work: Work[T], lane: Lane = Lane.CONTROL) -> T:
        """Run a coroutine with one of its connections, as ``Connection.run``."""
        return self._lanes[lane].run(doing, work)

    def learnt(self, key: Hashable) -> Any:
        """What was learnt under this key; None where it has to be asked."""
        with self._lock:
            return self._learnt.get(key)

    def learn(self, key: Hashable, value: object) -> None:
        """Keep what the brokers have said, for as long as the process lives, or ``forget``."""
        with self._lock:
            self._learnt[key] = value

    def forget(self, *keys: Hashable) -> None:
        """Ask the brokers again the next time."""
        with self._lock:
            for key in keys:
                self._learnt.pop(key, None)

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """A user's own object, made when it is first asked for; it ends with the cluster.

        Args:
            make: called under a lock, so it must not ask the cluster for anything.
        """
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            found: T = self._kept[key]
            return found

    def drop(self, key: Hashable) -> None:
        """Close a user's own object, if there is one."""
        with self._lock:
            found = self._kept.pop(key, None)
        _close(found)

    def close(self) -> None:
        """Close what it keeps and its connections; the next use connects anew."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for each in kept.values():
            _close(each)
        self.admin.close()
        for connection in self._lanes.values():
            connection.close()


def _close(kept: Any) -> None:
    if hasattr(kept, "close"):
        kept.close()


# At the end of a process its connections go with their threads: closing one whose brokers are away
# could only hold it up.
_clusters: PerProcess[Settings, Cluster] = PerProcess(Cluster, at_exit=False)


def cluster(settings: Settings) -> Cluster:
    """This process's cluster with these settings."""
    return _clusters.of(settings)


def close_clusters(settings: Settings | None = None) -> None:
    """Close this process's clusters, or the one with these settings; what was learnt goes too."""
    _clusters.close(settings)
