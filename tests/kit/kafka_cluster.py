"""Three Apache Kafka brokers (KRaft) as processes here: leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from abs_services.native.kafka import NativeKafka, ServerIdentity

BROKERS = 3

# Over the settings of one node: what is acknowledged is on two of them. The controllers and the brokers
# see within two or three seconds that one is gone (9 s with the defaults).
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "100",
}


class NativeKafkaCluster:
    """Three brokers in temporary folders, each of them a controller too; any one may be missing.

    Replication 3, ``min.insync.replicas`` 2: nothing acknowledged (``acks=all``) is lost while one of
    them is dead. Plain text on 127.0.0.1, no authentication. ``start()`` takes some 10 s.
    """

    def __init__(self) -> None:
        self.brokers: Sequence[NativeKafka] = [
            NativeKafka(identity=identity, settings=SETTINGS) for identity in _identities()
        ]
        """By node id, from 1 on. Each may be killed and started by itself."""

    @property
    def bootstrap(self) -> str:
        """All of them, for ``bootstrap.servers``."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, node: int) -> NativeKafka:
        """The broker of this node id."""
        return self.brokers[node - 1]

    def start(self) -> None:
        """Start those that do not run, all at once, and return when they serve.

        Raises:
            ConfigError, UnavailableError: as :meth:`NativeKafka.start`.
        """
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(lambda broker: broker.start(), self.brokers))

    def close(self) -> None:
        """Kill them, and delete what they kept."""
        for broker in self.brokers:
            broker.kill()
        for broker in self.brokers:
            broker.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _identities() -> list[ServerIdentity]:
    alone: dict[int, ServerIdentity] = {}
    while len(alone) < BROKERS:
        made = ServerIdentity.new()
        taken = {port for each in alone.values() for port in (each.port, each.controller_port)}
        if not {made.port, made.controller_port} & taken:
            node = len(alone) + 1
            alone[node] = replace(made, node=node)
    voters = ",".join(each.voter for each in alone.values())
    cluster_id = alone[1].cluster_id
    return [replace(each, cluster_id=cluster_id, voters=voters) for each in alone.values()]
