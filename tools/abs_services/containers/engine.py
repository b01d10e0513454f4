"""Access to the container engine, and removal of this project's containers."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from abs_core.errors import ConfigError, UnavailableError
from abs_services.contracts import Kind
from abs_services.processes import ProcessId


@dataclass(frozen=True)
class Image:
    """One service's image.

    Attributes:
        variable: environment variable that overrides it.
        built: tag of ``docker/build-images.sh``.
        public: the project's own image on the public registry, of a fixed version.
    """

    variable: str
    built: str
    public: str


IMAGES: Mapping[Kind, Image] = {
    "postgres": Image("ABS_POSTGRES_IMAGE", "abs-sinks/postgres:18", "postgres:18.1"),
    "kafka": Image("ABS_KAFKA_IMAGE", "abs-sinks/kafka:4.1.1", "apache/kafka:4.1.1"),
    "s3": Image("ABS_S3_IMAGE", "abs-sinks/s3:4", "chrislusf/seaweedfs:4.48"),
}


def image_of(kind: Kind, is_here: Callable[[str], bool]) -> str:
    """The image to use; ``is_here`` tells whether the engine has an image."""
    image = IMAGES[kind]
    named = os.environ.get(image.variable)
    if named:
        return named
    return image.built if is_here(image.built) else image.public


_OWNER = "abs-sinks.owner"
_TIMEOUT_S = 60
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_REMEDY = "start one (docker/engine.sh start does, for root), or set ABS_SERVICES=native."


@contextlib.contextmanager
def engine() -> Iterator[Any]:
    """A docker client for testcontainers' engine, closed at the end; maps the engine's errors inside.

    Raises ConfigError if testcontainers is not installed, UnavailableError if no engine answers or
    if it refuses.
    """
    # Ryuk would remove what `abs up` leaves running, and its image is not to be had everywhere. The
    # reaper removes containers, and `remove_orphans` those whose reaper died as well.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    try:
        import docker.errors
        from requests.exceptions import RequestException
        from testcontainers.core.docker_client import DockerClient, get_docker_host
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the Python package testcontainers is not installed",
            remedy="pip install testcontainers, or set ABS_SERVICES=native.",
        ) from error
    _knock(get_docker_host() or _DEFAULT_HOST)
    try:
        with contextlib.closing(DockerClient(timeout=_TIMEOUT_S).client) as client:
            yield client
    except (docker.errors.DockerException, RequestException) as error:
        raise UnavailableError(
            f"the container engine refuses, or has gone away: {error}", remedy=_REMEDY
        ) from error


def _knock(host: str) -> None:
    """Raise UnavailableError if nothing listens at a unix socket.

    The docker client would find out, but would leave a socket open for the collector.
    """
    scheme, _, path = host.partition("://")
    if scheme != "unix":
        return
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(_TIMEOUT_S)
        try:
            door.connect(path)
        except OSError as error:
            raise UnavailableError(
                f"no container engine answers at {host}: {error.strerror}", remedy=_REMEDY
            ) from error


def is_here(client: Any, image: str) -> bool:
    """Whether the engine has an image of this name."""
    from docker.errors import ImageNotFound

    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


def find_image(client: Any, kind: Kind) -> str:
    """The image to use, pulled if it is missing; ConfigError if that fails."""
    from docker.errors import DockerException

    name = image_of(kind, partial(is_here, client))
    if not is_here(client, name):
        try:
            client.images.pull(name)
        except DockerException as error:
            raise ConfigError(
                f"the container image {name} is not here and cannot be pulled: {error}",
                remedy=f"run docker/build-images.sh, or set {IMAGES[kind].variable} to another.",
            ) from error
    return name


def owner_label() -> dict[str, str]:
    """Label that marks a container as this process's, on this host."""
    me = ProcessId.of(os.getpid())
    assert me is not None
    return {_OWNER: f"{socket.gethostname()}/{me.pid}/{me.started}"}


def remove_orphans() -> None:
    """Remove containers of ended processes of this host: their reaper died with them."""
    with engine() as client:
        for container in client.containers.list(all=True, filters={"label": _OWNER}):
            host, pid, started = container.labels[_OWNER].rsplit("/", 2)
            owner = ProcessId(int(pid), float(started))
            if host == socket.gethostname() and not owner.is_alive:
                remove(container.id)


def remove(container: str) -> None:
    """Kill and remove a container with its volumes, if it exists."""
    from docker.errors import NotFound

    with engine() as client, contextlib.suppress(NotFound):
        client.containers.get(container).remove(force=True, v=True)


def is_container_running(container: str) -> bool:
    from docker.errors import NotFound

    with engine() as client:
        try:
            return bool(client.containers.get(container).status == "running")
        except NotFound:
            return False
