"""Servers of ``abs up`` that go away under the job, and come back."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from abs_chaos.schedule import Blow
from abs_services.contracts import Outage
from abs_services.lasting import away

_WHAT = {Outage.STOP: "stopped", Outage.FREEZE: "frozen", Outage.CUT: "killed"}


class Servers:
    """Carries out one blow after the other, beside the loop that watches the job."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "abs-chaos-servers")
        self._running: Future[None] | None = None

    @property
    def is_one_away(self) -> bool:
        """Whether a blow is not over yet. Raises its error if it failed."""
        if self._running is not None and self._running.done():
            running, self._running = self._running, None
            running.result()
        return self._running is not None

    def begin(self, blow: Blow) -> None:
        """Let the server go away; it comes back by itself."""
        self._running = self._thread.submit(_strike, blow)

    def close(self) -> None:
        """Wait until every server is back. Raises the error of the last blow."""
        self._thread.shutdown()
        _ = self.is_one_away


def _strike(blow: Blow) -> None:
    with away(blow.kind, blow.how):
        time.sleep(blow.seconds)


def told_of(blow: Blow) -> str:
    """For people."""
    return f"{blow.kind} {_WHAT[blow.how]} for {blow.seconds:.1f} s"
