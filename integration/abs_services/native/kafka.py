"""An Apache Kafka broker (KRaft) as a native process: a whole cluster, or one node."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from abs_core.errors import ConfigError, UnavailableError
from abs_services.contracts import Kind
from abs_services.native.kafka_classes import archive_flags, make_class_archive
from abs_services.native.kafka_jars import broker_jars, find_java
from abs_services.native.kafka_secured import AUTHORITY, make_certificate, secured_settings
from abs_services.native.lifecycle import Command, NativeService, read_private, write_private
from abs_services.native.server import ServerProcess
from abs_services.processes import clean_environment, free_port
from abs_services.settings import KAFKA, KAFKA_READY

_JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


@dataclass(frozen=True)
class Identity:
    """Constant over restarts; kept in the broker's folder."""

    port: int
    controller_port: int
    cluster_id: str
    secured_port: int = 0
    password_port: int = 0
    certificate_port: int = 0
    store_password: str = field(default="", repr=False)
    node: int = 1
    voters: str = ""
    """Of the controllers' quorum, as ``controller.quorum.voters``; itself alone where empty."""

    @property
    def voter(self) -> str:
        return f"{self.node}@127.0.0.1:{self.controller_port}"


class NativeKafka(NativeService):
    """A broker in ``folder`` (made and formatted if absent), or in a temporary one.

    Plain text on 127.0.0.1, no authentication.

    Args:
        folder: for data and log; it stays after ``close()``. None: a temporary folder that is
            deleted by ``close()`` or with this Python process.
        settings: broker settings (``server.properties``), over those of
            :mod:`abs_services.settings`. Read at each ``start()``, so they may be changed between.
        secured: add listeners with passwords and ACLs, with and without TLS; see
            :mod:`abs_services.native.kafka_secured`.
        clients: with ``secured``: certificates (PEM) of the authorities for client certificates.
        identity: of a node of a cluster, see :mod:`tests.kit.kafka_cluster`; it serves as
            soon as most of the others run. None: it is a cluster of its own.
        jvm: more options for Java, after those of the environment variable ``ABS_KAFKA_JVM``.
    """

    kind: ClassVar[Kind] = "kafka"
    stop_signals = (signal.SIGTERM,)
    ready_s = 90.0

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        secured: bool = False,
        clients: Path | None = None,
        identity: Identity | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._given_identity = identity
        self._secured = secured
        self._clients = clients
        self._identity: Identity | None = None
        self._jvm = tuple(jvm)
        self.settings: dict[str, str] = {**KAFKA, **(settings or {})}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._known().port}"

    @property
    def secured_bootstrap(self) -> str:
        """host:port of the listener with passwords over TLS (``sasl_ssl``)."""
        return f"127.0.0.1:{self._known().secured_port}"

    @property
    def password_bootstrap(self) -> str:
        """host:port of the listener with passwords, without TLS (``sasl_plaintext``)."""
        return f"127.0.0.1:{self._known().password_port}"

    @property
    def certificate_bootstrap(self) -> str:
        """host:port of the listener for client certificates (``ssl``)."""
        return f"127.0.0.1:{self._known().certificate_port}"

    @property
    def authority(self) -> Path:
        """``ssl.ca.location`` for clients of the TLS listeners."""
        return self.folder / AUTHORITY

    @property
    def env(self) -> Mapping[str, str]:
        return {"ABS_KAFKA_BOOTSTRAP": self.bootstrap}

    def _set_up(self) -> Command:
        java = find_java()
        jars = broker_jars(java)
        path = self.folder / "identity.json"
        if not path.exists():
            made = self._given_identity or new_identity()
            if self._secured:
                made = replace(made, store_password=make_certificate(java, self.folder))
            write_private(path, asdict(made))
        self._identity = Identity(**read_private(path))
        properties = self.folder / "server.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties().items()))
        jvm = [*_JVM, *archive_flags(java), *shlex.split(os.environ.get("ABS_KAFKA_JVM", ""))]
        classes = ["-cp", f"{jars}/*"]
        if not (self.folder / "data" / "meta.properties").exists():
            tool = [str(java), *jvm, *classes, "kafka.tools.StorageTool", "format"]
            self._format(tool, properties)
        argv = [str(java), *jvm, *self._jvm, *classes, "kafka.Kafka", str(properties)]
        return Command(argv, cwd=self.folder)

    def _properties(self) -> dict[str, str]:
        known = self._known()
        listeners = [f"PLAINTEXT://127.0.0.1:{known.port}"]
        listeners.append(f"CONTROLLER://127.0.0.1:{known.controller_port}")
        more: Mapping[str, str] = {}
        if self._secured:
            listeners.append(f"SECURED://127.0.0.1:{known.secured_port}")
            listeners.append(f"PASSWORD://127.0.0.1:{known.password_port}")
            if self._clients is not None:
                listeners.append(f"CERTIFICATE://127.0.0.1:{known.certificate_port}")
            more = secured_settings(self.folder, known.store_password, self._clients)
        return {
            **self.settings,
            **more,
            "process.roles": "broker,controller",
            "node.id": str(known.node),
            "controller.quorum.voters": known.voters or known.voter,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(self.folder / "data"),
        }

    def _format(self, command: list[str], properties: Path) -> None:
        done = subprocess.run(
            [*command, "-t", self._known().cluster_id, "-c", str(properties)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=clean_environment(),
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UnavailableError(
                f"the Kafka storage tool failed in {self.folder}: {' | '.join(said[-3:])}",
                remedy="act on what it says; an empty, writable folder is needed.",
            )

    def _is_ready(self, server: ServerProcess) -> bool:
        return KAFKA_READY in server.said()

    def _known(self) -> Identity:
        if self._identity is None:
            raise ConfigError("this Kafka broker was never started", remedy="call start() first.")
        return self._identity


def archive_classes() -> None:
    """Let brokers start from a class archive from now on; 10 s the first time."""

    def dump(archive: Path) -> None:
        with NativeKafka(jvm=[f"-XX:ArchiveClassesAtExit={archive}"]) as broker:
            broker.stop()

    make_class_archive(dump)


def new_identity() -> Identity:
    """Free ports, and a new cluster id."""
    ports: set[int] = set()
    while len(ports) < 5:
        ports.add(free_port())
    port, controller_port, secured_port, password_port, certificate_port = ports
    return Identity(
        port, controller_port, new_cluster_id(), secured_port, password_port, certificate_port
    )


def new_cluster_id() -> str:
    """Like Kafka's random uuids: 16 bytes, URL-safe base64, no padding, no leading dash."""
    made = "-"
    while made.startswith("-"):
        made = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    return made
