"""Servers that stand still: alive for the kernel, which takes what clients send, and silent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import psutil
import pytest

from abs_services.contracts import Service


@contextlib.contextmanager
def standing_still(service: Service) -> Iterator[None]:
    """SIGSTOP for the server and all of its processes; SIGCONT at the end."""
    process = service.running.process
    if process is None:
        pytest.skip("the server is not ours to stop")
    root = psutil.Process(process.pid)
    _send(root, signal.SIGSTOP)  # first, so that it makes no further child
    try:
        for child in root.children(recursive=True):
            _send(child, signal.SIGSTOP)
        yield
    finally:
        for each in [*root.children(recursive=True), root]:
            _send(each, signal.SIGCONT)


class StandsStill:
    """A server that stands still for some seconds, while the test goes on. A context manager."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service = service
        self._seconds = seconds
        self._over = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._stand)

    def begin(self) -> None:
        """Returns when it stands still."""
        self._thread.start()
        self._stopped.wait()

    def __enter__(self) -> StandsStill:
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _stand(self) -> None:
        try:
            with standing_still(self._service):
                self._stopped.set()
                self._over.wait(self._seconds)
        finally:
            self._stopped.set()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
