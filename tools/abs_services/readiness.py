"""A service that is started here: launched, and waited for until it serves."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from typing import ClassVar

from abs_core.errors import UnavailableError
from abs_services.contracts import Service

_PAUSE_S = 0.05
_LOG_LINES = 3
_TELLING = re.compile(r"FATAL|ERROR|Exception|invalid|unrecognized|could not|already in use")


class StartedService(Service):
    """A service in a process or a container of our own."""

    ready_s: ClassVar[float]
    """Seconds to become ready."""

    @abstractmethod
    def said(self) -> str:
        """The server's log."""

    @abstractmethod
    def _launch(self) -> None:
        """Prepare and launch the server, anew or again."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the launched server serves. Polled; must not raise."""

    def _complete(self) -> None:
        """Hook: the server serves."""

    def start(self) -> None:
        """Launch the server and wait until it serves. Does nothing if it runs.

        Raises ConfigError (something is not installed, or the folder cannot be used) or
        UnavailableError (no container engine; or the server ended, or is not ready in time: with the
        end of its log).
        """
        if not self.is_running:
            self._launch()
            self._await_ready()
            self._complete()

    def _await_ready(self) -> None:
        give_up = time.monotonic() + self.ready_s
        state = "ended while it started"
        while self.is_running:
            if self._is_ready():
                return
            if time.monotonic() > give_up:
                state = f"is not ready after {self.ready_s:.0f} s"
                break
            time.sleep(_PAUSE_S)
        lines = [line for line in self.said().splitlines() if line.strip()]
        telling = [line for line in lines if _TELLING.search(line)] or lines
        raise UnavailableError(
            f"{self.kind} {state}; its log says: {' | '.join(telling[-_LOG_LINES:])}",
            remedy="act on what the log says, then start again.",
        )
