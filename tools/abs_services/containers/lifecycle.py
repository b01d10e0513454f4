"""Lifecycle of a service in one container, from start to close."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from abs_core.errors import ConfigError
from abs_services.containers.engine import (
    engine,
    find_image,
    owner_label,
    remove,
    remove_orphans,
)
from abs_services.contracts import Provider, Running
from abs_services.processes import free_port
from abs_services.readiness import StartedService
from abs_services.reaper import REAPER

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_orphans_removed_once = functools.cache(remove_orphans)


class DockerService(StartedService):
    """A service as one container, started by testcontainers, on a port of 127.0.0.1.

    Args:
        lasting: whether it may outlive this process; its data is deleted with the container.
    """

    inner_port: ClassVar[int]
    stop_s: ClassVar[float] = 30
    ready_s = 90.0

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting
        self._started: DockerContainer | None = None
        self.host = "127.0.0.1"
        self._port = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.host}:{self._port})"

    @abstractmethod
    def _configure(self, container: DockerContainer) -> Mapping[str, Any]:
        """Set environment, command and files; returns further arguments for the engine."""

    @property
    def port(self) -> int:
        if not self._port:
            raise ConfigError(f"this {self.kind} was never started", remedy="call start() first.")
        return self._port

    @property
    def container(self) -> Any:
        """The engine's own handle: pause, unpause, networks, exec. ConfigError before start."""
        if self._started is None:
            raise ConfigError(f"this {self.kind} was never started", remedy="call start() first.")
        return self._started.get_wrapped_container()

    @property
    def is_running(self) -> bool:
        if self._started is None:
            return False
        with engine():
            self.container.reload()
            return bool(self.container.status == "running")

    @property
    def running(self) -> Running:
        return Running(self.kind, Provider.DOCKER, self.env, container=self.container.id)

    def _launch(self) -> None:
        with engine():
            self._before_launch()
            if self._started is None:
                self._create()
            else:
                self.container.start()

    def stop(self) -> None:
        if self.is_running:
            with engine():
                self.container.stop(timeout=int(self.stop_s))

    def kill(self) -> None:
        """SIGKILL everything in the container; returns when it has ended."""
        if self.is_running:
            with engine():
                self.container.kill(signal="SIGKILL")
                self.container.wait()

    def detach(self) -> None:
        REAPER.unregister(self.container.id)

    def close(self) -> None:
        """Remove the container with its data."""
        if self._started is not None:
            name = self.container.id
            remove(name)
            REAPER.unregister(name)
            self._started.get_docker_client().client.close()
            self._started = None

    def said(self) -> str:
        """The container's stdout and stderr, over restarts."""
        with engine():
            return bytes(self.container.logs()).decode(errors="replace")

    def _before_launch(self) -> None:
        """Hook before each start of the container."""

    def _create(self) -> None:
        from testcontainers.core.container import DockerContainer

        _orphans_removed_once()
        with engine() as client:
            name = find_image(client, self.kind)
        container = DockerContainer(name)
        host = container.get_docker_client().host()
        # "localhost" may mean ::1 first, where nothing listens.
        self.host = "127.0.0.1" if host == "localhost" else host
        self._port = free_port()
        # Published to this machine only, unless the engine is on another one.
        ports: dict[str, Any] = container.ports
        local = self.host == "127.0.0.1"
        ports[f"{self.inner_port}/tcp"] = ("127.0.0.1", self._port) if local else self._port
        more = self._configure(container)
        container.with_kwargs(labels={} if self._lasting else owner_label(), **more)
        self._started = container
        container.start()
        REAPER.register(self.container.id)
