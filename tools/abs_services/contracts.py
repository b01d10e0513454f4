"""What a service is: native process, container, or external server.

Three kinds (PostgreSQL, Kafka, S3), a stand-in for a schema registry beside them, and three providers
(:class:`Provider`). Tests and the command line use only these classes, so the same test runs on each
provider.

Every method raises :class:`abs_core.errors.ConfigError` if a requirement is missing (the message
says how to install it) and :class:`abs_core.errors.UnavailableError` if a server does not start in
time. No message, log or repr contains a credential (I9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Literal, Self

from abs_services.processes import ProcessId

Kind = Literal["postgres", "kafka", "s3", "registry"]
KINDS: tuple[Kind, ...] = ("postgres", "kafka", "s3")
"""The real servers."""
REGISTRY: Kind = "registry"
"""A stand-in: see :class:`RegistryService`. Started only where it is named."""

BUCKET = "abs"
REGION = "us-east-1"


class Provider(StrEnum):
    """The provider of servers. Chosen by the environment variable ``ABS_SERVICES``."""

    NATIVE = "native"
    DOCKER = "docker"
    EXTERNAL = "external"


class Outage(StrEnum):
    """How a server goes away for a while. It comes back at the same address, with its data."""

    STOP = "stop"
    """It ends in an orderly way, and is started again."""
    FREEZE = "freeze"
    """Its processes stand still: connections stay open, and nothing answers."""
    CUT = "cut"
    """SIGKILL, as a power cut: connections break in the middle; then it is started again."""


@dataclass(frozen=True)
class Running:
    """A running service, as another process can find and end it.

    Attributes:
        env: variables for clients; holds credentials, hence not in the repr.
        process: its main process, if it is native.
        container: the container's full id, if any.
        folder: its data, if it is native.
    """

    kind: Kind
    provider: Provider
    env: Mapping[str, str] = field(repr=False)
    process: ProcessId | None = None
    container: str | None = None
    folder: Path | None = None


class Service(ABC):
    """One server. It starts empty, and keeps data and address over ``kill`` and ``start``.

    As a context manager it is started on entry and closed on exit.
    """

    kind: ClassVar[Kind]
    controllable: ClassVar[bool] = True
    """Whether ``stop`` and ``kill`` act on the server; False for external ones."""

    @property
    @abstractmethod
    def is_running(self) -> bool: ...

    @property
    @abstractmethod
    def env(self) -> Mapping[str, str]:
        """The environment variables for ``ABS_SERVICES=external`` to find this server.

        Holds credentials: for a child's environment or for a person who asked, never for a log.
        """

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it serves. Does nothing if it runs."""

    @abstractmethod
    def stop(self) -> None:
        """End the server in an orderly way; its data stays. Idempotent."""

    @abstractmethod
    def kill(self) -> None:
        """End the server as a power cut would; returns when all of its processes are gone.

        Durable data stays: ``start()`` serves it again at the same address. Raises ConfigError on
        an external server.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the server and delete its data if it was temporary. Idempotent."""

    @property
    @abstractmethod
    def running(self) -> Running:
        """How another process finds this server. The server must run."""

    @abstractmethod
    def detach(self) -> None:
        """Let the server outlive this process. Only for lasting ones."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PostgresService(Service):
    """A PostgreSQL server with a superuser and an ordinary role that owns the database ``abs``."""

    kind: ClassVar[Kind] = "postgres"

    @property
    @abstractmethod
    def url(self) -> str:
        """libpq URI of the ordinary role (no superuser), with its password."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """libpq URI of the superuser, with its password."""

    @property
    def env(self) -> Mapping[str, str]:
        return {"ABS_POSTGRES_URL": self.url, "ABS_POSTGRES_ADMIN_URL": self.admin_url}


class KafkaService(Service):
    """A Kafka broker (KRaft, one node, no authentication)."""

    kind: ClassVar[Kind] = "kafka"

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """host:port for ``bootstrap.servers``."""

    @property
    def env(self) -> Mapping[str, str]:
        return {"ABS_KAFKA_BOOTSTRAP": self.bootstrap}


class S3Service(Service):
    """An S3 server with one bucket."""

    kind: ClassVar[Kind] = "s3"

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Base URL, path-style addressing."""

    @property
    def bucket(self) -> str:
        return BUCKET

    @property
    @abstractmethod
    def keys(self) -> tuple[str, str]:
        """The access key and the secret key."""

    @property
    def access_key(self) -> str:
        return self.keys[0]

    @property
    def secret_key(self) -> str:
        return self.keys[1]

    @property
    def region(self) -> str:
        return REGION

    @property
    def env(self) -> Mapping[str, str]:
        """boto3 reads the AWS ones itself."""
        return {
            "ABS_S3_ENDPOINT": self.endpoint,
            "ABS_S3_BUCKET": self.bucket,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }


class RegistryService(Service):
    """A stand-in for a schema registry, without login; it checks no compatibility.

    A native process, whatever the provider of the others is.
    """

    kind: ClassVar[Kind] = "registry"

    @property
    @abstractmethod
    def url(self) -> str:
        """For the option ``registry.url``."""

    @property
    def env(self) -> Mapping[str, str]:
        return {"ABS_REGISTRY_URL": self.url}


class Services(ABC):
    """One provider. ``postgres``, ``kafka``, ``s3`` return new services, not started yet."""

    provider: ClassVar[Provider]
    postgres: Callable[[], PostgresService]
    kafka: Callable[[], KafkaService]
    s3: Callable[[], S3Service]

    def of(self, kind: Kind) -> Service:
        """The service of a kind that is only known at run time."""
        made: Service = getattr(self, kind)()
        return made

    @abstractmethod
    def is_up(self, running: Running) -> bool:
        """Whether a detached service still runs."""

    @abstractmethod
    def end(self, running: Running) -> None:
        """End a detached service in an orderly way, if it runs."""

    @abstractmethod
    def outage(self, running: Running, how: Outage) -> AbstractContextManager[None]:
        """A detached service that is away inside the block.

        After it a frozen one, and a container, serve again; ``lasting.bring_up`` starts another.
        """

    def delete_data(self, kind: Kind) -> None:  # noqa: B027
        """Delete the data of lasting services of this kind that no running one uses.

        Nothing to do where a service's end deletes it, or it is somebody else's.
        """
