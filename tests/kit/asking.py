"""A job that makes more calls than it must, and not in each run as many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from abs_core.errors import UnavailableError
from abs_testing.calls import ContractCalls, Loss


class Asking:
    """Makes calls before those of the job.

    Args:
        asks: how many, of one run after another.
        name: of these calls.
    """

    def __init__(self, calls: ContractCalls, asks: Iterator[int], name: str = "ask") -> None:
        self._calls, self._asks, self._name = calls, asks, name
        self.losses, self.release = calls.losses, calls.release

    @property
    def seen(self) -> Sequence[str]:
        return self._calls.seen

    @property
    def fired(self) -> bool:
        return self._calls.fired

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        self._calls.arm(number, loss, name)
        for _ in range(next(self._asks)):
            with suppress(UnavailableError):
                self._calls.read(self._name, lambda: None)
