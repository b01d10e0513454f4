"""Protocols of a service: native process, container, or external server.

Three kinds (PostgreSQL, Kafka, S3) and three providers (:class:`Provider`). Tests and the command line
use only these protocols, so the same test runs on each provider.

Every method raises :class:`abs_core.errors.ConfigError` if a requirement is missing (the message
says how to install it) and :class:`abs_core.errors.UnavailableError` if a server does not start in
time. No message, log or repr contains a credential (I9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

from abs_services.processes import ProcessId

Kind = Literal["postgres", "kafka", "s3"]
KINDS: tuple[Kind, ...] = ("postgres", "kafka", "s3")


class Provider(StrEnum):
    """The provider of servers. Chosen by the environment variable ``ABS_SERVICES``."""

    NATIVE = "native"
    DOCKER = "docker"
    EXTERNAL = "external"


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


@runtime_checkable
class Service(Protocol):
    """One server. It starts empty, and keeps data and address over ``kill`` and ``start``.

    As a context manager it is started on entry and closed on exit.
    """

    @property
    def kind(self) -> Kind: ...

    @property
    def controllable(self) -> bool:
        """Whether ``stop`` and ``kill`` act on the server; False for external ones."""

    @property
    def is_running(self) -> bool: ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables for ``ABS_SERVICES=external`` to find this server.

        Holds credentials: for a child's environment or for a person who asked, never for a log.
        """

    def start(self) -> None:
        """Start the server and wait until it serves. Does nothing if it runs."""

    def stop(self) -> None:
        """End the server in an orderly way; its data stays. Idempotent."""

    def kill(self) -> None:
        """End the server as a power cut would; returns when all of its processes are gone.

        Durable data stays: ``start()`` serves it again at the same address. Raises ConfigError on
        an external server.
        """

    def close(self) -> None:
        """Stop the server and delete its data if it was temporary. Idempotent."""

    @property
    def running(self) -> Running:
        """How another process finds this server. The server must run."""

    def detach(self) -> None:
        """Let the server outlive this process. Only for lasting ones."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class PostgresService(Service, Protocol):
    """A PostgreSQL server with a superuser and an ordinary role that owns the database ``abs``."""

    @property
    def url(self) -> str:
        """libpq URI of the ordinary role (no superuser), with its password."""

    @property
    def admin_url(self) -> str:
        """libpq URI of the superuser, with its password."""


@runtime_checkable
class KafkaService(Service, Protocol):
    """A Kafka broker (KRaft, one node, no authentication)."""

    @property
    def bootstrap(self) -> str:
        """host:port for ``bootstrap.servers``."""


@runtime_checkable
class S3Service(Service, Protocol):
    """An S3 server with one bucket."""

    @property
    def endpoint(self) -> str:
        """Base URL, path-style addressing."""

    @property
    def bucket(self) -> str: ...

    @property
    def access_key(self) -> str: ...

    @property
    def secret_key(self) -> str: ...

    @property
    def region(self) -> str: ...


class Services(Protocol):
    """One provider. ``postgres``, ``kafka``, ``s3`` return new services, not started yet."""

    @property
    def provider(self) -> Provider: ...

    def postgres(self) -> PostgresService: ...

    def kafka(self) -> KafkaService: ...

    def s3(self) -> S3Service: ...

    def is_up(self, running: Running) -> bool:
        """Whether a detached service still runs."""

    def end(self, running: Running) -> None:
        """End a detached service in an orderly way, if it runs."""

    def delete_data(self, kind: Kind) -> None:
        """Delete the data of lasting services of this kind that no running one uses."""


def service_of(kind: Kind, given: Services) -> Service:
    """The service of a kind that is only known at run time."""
    match kind:
        case "postgres":
            return given.postgres()
        case "kafka":
            return given.kafka()
        case "s3":
            return given.s3()
