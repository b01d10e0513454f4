"""Calls of a job that makes more of them than it must, and not in each run as many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from abs_core.errors import UnavailableError
from abs_testing.calls import ContractCalls, Loss


class Asking(ContractCalls):
    """There are some before those of the job.

    Args:
        asks: how many, of one run after another.
        name: of these calls.
    """

    def __init__(self, asks: Iterator[int], name: str = "ask") -> None:
        super().__init__()
        self._asks, self._name = asks, name

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        super().arm(number, loss, name)
        for _ in range(next(self._asks)):
            with suppress(UnavailableError):
                self.read(self._name, lambda: None)
