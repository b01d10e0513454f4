"""An Apache Kafka broker (KRaft) as a native process: a whole cluster, or one node."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from abs_core.durable import replace_durably
from abs_services.contracts import KafkaService
from abs_services.java import find_java
from abs_services.native.kafka_jars import KAFKA as RELEASE
from abs_services.native.kafka_jars import broker_jars
from abs_services.native.lifecycle import Command, NativeService
from abs_services.paths import cache_folder
from abs_services.processes import free_ports, run_tool
from abs_services.settings import KAFKA, KAFKA_READY, new_cluster_id

_JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


@dataclass(frozen=True)
class ServerIdentity:
    """Constant over restarts; kept in the broker's folder."""

    port: int
    controller_port: int
    cluster_id: str
    node: int = 1
    voters: str = ""
    """Of the controllers' quorum, as ``controller.quorum.voters``; itself alone where empty."""

    @classmethod
    def new(cls) -> ServerIdentity:
        """Free ports, and a new cluster id."""
        port, controller_port = free_ports(2)
        return cls(port, controller_port, new_cluster_id())

    @property
    def voter(self) -> str:
        return f"{self.node}@127.0.0.1:{self.controller_port}"


class NativeKafka(NativeService[ServerIdentity], KafkaService):
    """A broker: plain text on 127.0.0.1, no authentication.

    Args:
        settings: broker settings (``server.properties``), over those of
            :mod:`abs_services.settings`. Read at each ``start()``, so they may be changed between.
        identity: of a node of a cluster, see :mod:`tests.kit.kafka_cluster`; it serves as
            soon as most of the others run. None: it is a cluster of its own.
    """

    stop_signals = (signal.SIGTERM,)
    ready_s = 90.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        identity: ServerIdentity | None = None,
    ) -> None:
        super().__init__(folder)
        self._given_identity = identity
        self.settings: dict[str, str] = {**KAFKA, **(settings or {})}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.identity.port}"

    def _set_up(self) -> Command:
        java = find_java()
        jars = broker_jars(java)
        identity = self._keep(ServerIdentity, lambda: self._given_identity or ServerIdentity.new())
        properties = self.folder / "server.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties().items()))
        jvm = [*_JVM, *shlex.split(os.environ.get("ABS_KAFKA_JVM", ""))]
        classes = ["-cp", f"{jars}/*"]
        tool = [str(java), *jvm, *classes, "kafka.tools.StorageTool", "format"]
        self._format([*tool, "-t", identity.cluster_id, "-c", str(properties)])
        argv = [str(java), *jvm, *classes, "kafka.Kafka", str(properties)]
        return Command(argv, cwd=self.folder)

    def _properties(self) -> dict[str, str]:
        identity = self.identity
        return {
            **self.settings,
            "process.roles": "broker,controller",
            "node.id": str(identity.node),
            "controller.quorum.voters": identity.voters or identity.voter,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{identity.port},"
            f"CONTROLLER://127.0.0.1:{identity.controller_port}",
            "log.dirs": str(self.folder / "data"),
        }

    def _format(self, tool: Sequence[str]) -> None:
        """Make the node's data folder, if it has none.

        Kafka's tool, a JVM, takes a second. With the same settings it writes the same features for each
        node: they are kept in the cache folder, and only the first node needs the tool.
        """
        data = self.folder / "data"
        meta, features = data / "meta.properties", data / "bootstrap.checkpoint"
        if meta.exists():
            return
        known_by = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        kept = cache_folder() / f"kafka-{RELEASE}-{known_by[:12]}.checkpoint"
        if not kept.exists():
            run_tool("the Kafka storage tool", tool, self.folder)
            replace_durably(kept, features.read_bytes())
            return
        data.mkdir(exist_ok=True)
        replace_durably(features, kept.read_bytes())
        ids = {
            "version": 1,
            "cluster.id": self.identity.cluster_id,
            "node.id": self.identity.node,
            "directory.id": new_cluster_id(),
        }
        replace_durably(meta, "".join(f"{k}={v}\n" for k, v in ids.items()).encode())

    def _is_ready(self) -> bool:
        return KAFKA_READY in self.said()
