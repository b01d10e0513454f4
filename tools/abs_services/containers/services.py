"""The three services in containers. Data is deleted with the container."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import psycopg

from abs_core.errors import ConfigError
from abs_services.buckets import new_keys, takes_objects
from abs_services.containers.engine import engine, is_container_running, remove
from abs_services.containers.lifecycle import DockerService
from abs_services.contracts import (
    KafkaService,
    Outage,
    PostgresService,
    Provider,
    Running,
    S3Service,
    Services,
)
from abs_services.databases import DATABASE, ROLE, ensure_role, postgres_url
from abs_services.settings import (
    KAFKA,
    KAFKA_READY,
    POSTGRES,
    S3_FLAGS,
    S3_STOP_S,
    new_cluster_id,
    s3_credentials,
)

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer


class DockerPostgres(DockerService, PostgresService):
    """Images: those that take POSTGRES_PASSWORD and server options as the public one does."""

    inner_port = 5432

    @cached_property
    def _passwords(self) -> tuple[str, str]:
        """Of the superuser and of the ordinary role."""
        return secrets.token_urlsafe(18), secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        return postgres_url(self.host, self.port, ROLE, self._passwords[1], DATABASE)

    @property
    def admin_url(self) -> str:
        return postgres_url(self.host, self.port, "postgres", self._passwords[0], "postgres")

    def _complete(self) -> None:
        ensure_role(self.admin_url, self._passwords[1])

    def _configure(self, container: DockerContainer) -> Mapping[str, Any]:
        container.with_env("POSTGRES_PASSWORD", self._passwords[0])
        options = [part for k, v in POSTGRES.items() for part in ("-c", f"{k}={v}")]
        container.with_command(["postgres", *options])
        # The engine gives 64 MiB of shared memory by default: too little for parallel queries.
        return {"shm_size": "256m"}

    def _is_ready(self) -> bool:
        # While the cluster is made, the server listens on its unix socket only.
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.admin_url, connect_timeout=2).close()
            return True
        return False


class DockerKafka(DockerService, KafkaService):
    """Images: those that take KAFKA_* and CLUSTER_ID as the public one does."""

    inner_port = 9092
    _starts_before = 0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def _configure(self, container: DockerContainer) -> Mapping[str, Any]:
        settings = {
            **KAFKA,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            # The broker calls itself to verify transactions, and cannot reach the published port.
            "listeners": "PLAINTEXT://0.0.0.0:9092,BROKER://127.0.0.1:9094,"
            "CONTROLLER://127.0.0.1:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},BROKER://127.0.0.1:9094",
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "log.dirs": "/var/lib/kafka/data",
        }
        container.with_env("CLUSTER_ID", new_cluster_id())
        for name, value in settings.items():
            container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
        return {}

    def _before_launch(self) -> None:
        self._starts_before = self._starts() if self._started else 0

    def _is_ready(self) -> bool:
        return self._starts() > self._starts_before

    def _starts(self) -> int:
        return self.said().count(KAFKA_READY)


class DockerS3(DockerService, S3Service):
    """Images: SeaweedFS with the program at /usr/bin/weed, as in the public one."""

    inner_port = 8333
    stop_s = S3_STOP_S

    @cached_property
    def keys(self) -> tuple[str, str]:
        return new_keys()

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _configure(self, container: DockerContainer) -> Mapping[str, Any]:
        access_key, secret_key = self.keys
        credentials = json.dumps(s3_credentials(access_key, secret_key))
        container.with_copy_into_container(credentials.encode(), "/etc/abs-s3.json", 0o600)
        # By its own address: the container's may be another after a restart.
        command = ["-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=0.0.0.0"]
        container.with_command(
            [*command, "-dir=/data", "-filer", "-s3", "-s3.config=/etc/abs-s3.json", *S3_FLAGS]
        )
        return {"entrypoint": ["/usr/bin/weed"]}

    def _is_ready(self) -> bool:
        return takes_objects(self)


class DockerServices(Services):
    """Services in containers; removed with this process unless ``lasting``."""

    provider = Provider.DOCKER

    def __init__(self, *, lasting: bool = False) -> None:
        self.postgres = partial(DockerPostgres, lasting=lasting)
        self.kafka = partial(DockerKafka, lasting=lasting)
        self.s3 = partial(DockerS3, lasting=lasting)

    def is_up(self, running: Running) -> bool:
        return running.container is not None and is_container_running(running.container)

    def end(self, running: Running) -> None:
        if running.container is None:
            raise ConfigError("the state names no container", remedy="delete the state file.")
        remove(running.container)

    @contextlib.contextmanager
    def outage(self, running: Running, how: Outage) -> Iterator[None]:
        with engine() as client:
            container = client.containers.get(running.container)
            match how:
                case Outage.FREEZE:
                    container.pause()
                case Outage.STOP:
                    container.stop()
                case Outage.CUT:
                    container.kill(signal="SIGKILL")
                    container.wait()
            try:
                yield
            finally:
                # Not removed: data and address go with the container.
                if how is Outage.FREEZE:
                    container.unpause()
                else:
                    container.start()
