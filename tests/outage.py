"""Servers that are away: stopped, killed; or standing still, while the kernel takes what is sent."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import psutil
import pytest

from abs_services.contracts import Service
from abs_testing.case import within


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


@contextlib.contextmanager
def stopped(service: Service) -> Iterator[None]:
    """The server ends in an orderly way, and starts again at the end."""
    if not service.controllable:
        pytest.skip("the server is not ours to stop")
    service.stop()
    try:
        yield
    finally:
        service.start()


@contextlib.contextmanager
def killed(service: Service) -> Iterator[None]:
    """SIGKILL for the server and all of its processes; it starts again at the end."""
    if not service.controllable:
        pytest.skip("the server is not ours to kill")
    service.kill()
    try:
        yield
    finally:
        service.start()


Way = Callable[[Service], AbstractContextManager[None]]
"""How a server is away: ``standing_still``, ``stopped`` or ``killed``."""


class Away:
    """A server that is away for some seconds, while the test goes on. A context manager.

    Args:
        seconds: it comes back after so long, or when the context ends.
        until: it comes back as soon as this is true.
    """

    def __init__(
        self, service: Service, way: Way, seconds: float, until: Callable[[], bool] = lambda: False
    ) -> None:
        self._away = partial(way, service)
        self._seconds = seconds
        self._until = until
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._done: Future[None] | None = None

    def begin(self) -> None:
        """Returns when it is away."""
        began = threading.Event()
        self._done = self._pool.submit(self._be_away, began)
        self._done.add_done_callback(lambda _: began.set())
        began.wait()
        if self._done.done():
            self._done.result()

    def __enter__(self) -> Away:
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._pool.shutdown()
        if self._done is not None and exc[0] is None:
            self._done.result()

    def _be_away(self, began: threading.Event) -> None:
        with self._away():
            began.set()
            within(self._seconds, lambda: self._over.is_set() or self._until())


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
