"""The limit of files and bytes for one epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abs_core.source import Limit
from abs_sources.files.log import PER_ENTRY
from abs_sources.files.model import Pin


class EpochBudget:
    """Counts files against a limit; the first is always taken, none after a refused one."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._files = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return (self._limit.files is not None and self._files >= self._limit.files) or (
            self._limit.bytes is not None and self._files > 0 and self._bytes >= self._limit.bytes
        )

    def takes(self, pin: Pin) -> bool:
        """Take the file unless full; returns whether it was taken."""
        if self.full:
            return False
        self._files += 1
        self._bytes += pin.size
        return True


def parts(pins: Sequence[Pin]) -> Iterator[Sequence[Pin]]:
    """Split files into entries of bounded size."""
    for begin in range(0, len(pins), PER_ENTRY):
        yield pins[begin : begin + PER_ENTRY]
