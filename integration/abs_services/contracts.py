"""What a service is, however it is got: native process, container, or somebody else's server.

Three kinds (PostgreSQL, Kafka, S3) and three ways (:class:`Way`). Tests and the command line are
written against these protocols only, so the same test runs on each way.

Every method raises :class:`abs_core.errors.ConfigError` where this machine lacks what it takes
(the message says how to install it) and :class:`abs_core.errors.UnavailableError` where a server
does not come up in time. No message, log or repr holds a credential (I9).
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


class Way(StrEnum):
    """How real servers are got. Chosen by the environment variable ``ABS_SERVICES``."""

    NATIVE = "native"
    DOCKER = "docker"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Running:
    """One service that runs, as another process can find and end it.

    Attributes:
        env: the variables by which clients find it; holds credentials, hence not in the repr.
        process: its main process, where it is native.
        container: the container's full id, where it is in one.
        folder: where its data is, where it is native.
    """

    kind: Kind
    way: Way
    env: Mapping[str, str] = field(repr=False)
    process: ProcessId | None = None
    container: str | None = None
    folder: Path | None = None


@runtime_checkable
class Service(Protocol):
    """One real server. It starts empty, and keeps data and address over ``kill`` and ``start``.

    As a context manager it is started on entry and closed on exit.
    """

    @property
    def kind(self) -> Kind: ...

    @property
    def controllable(self) -> bool:
        """True where ``stop`` and ``kill`` act on a server of our own; False for external ones."""

    @property
    def is_running(self) -> bool: ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables by which ``ABS_SERVICES=external`` finds this server.

        Holds credentials: for a child's environment or for a person who asked, never for a log.
        """

    def start(self) -> None:
        """Starts the server and returns when it serves. Nothing happens where it already runs."""

    def stop(self) -> None:
        """Ends the server in an orderly way; its data stays. Idempotent."""

    def kill(self) -> None:
        """Ends the server as a power cut would, and returns when all of its processes are gone.

        Data that the server had made durable stays. ``start()`` serves it again at the same
        address. Raises ConfigError on an external server.
        """

    def close(self) -> None:
        """Stops the server and deletes what it kept, where it was temporary. Idempotent."""

    @property
    def running(self) -> Running:
        """What finds this server again from another process. The server must run."""

    def detach(self) -> None:
        """From now on the server outlives this process. Only for lasting ones."""

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
    """One way to get servers. ``postgres``, ``kafka``, ``s3`` give new services, not started yet."""

    @property
    def way(self) -> Way: ...

    def postgres(self) -> PostgresService: ...

    def kafka(self) -> KafkaService: ...

    def s3(self) -> S3Service: ...

    def is_up(self, running: Running) -> bool:
        """Whether a detached service still runs."""

    def end(self, running: Running) -> None:
        """Ends a detached service in an orderly way. Nothing happens where it ended before."""

    def delete_data(self, kind: Kind) -> None:
        """Deletes what lasting services of this kind kept, and no running one uses."""


def service_of(kind: Kind, given: Services) -> Service:
    """The service of a kind that is only known at run time."""
    match kind:
        case "postgres":
            return given.postgres()
        case "kafka":
            return given.kafka()
        case "s3":
            return given.s3()
