"""A clock that jumps inside a change of a register: at the nth function that the change calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from abs_core import contracts
from abs_core.contracts import Conflict, RegisterStore, Version
from abs_core.errors import UnavailableError
from abs_core.model import JobState

ROOT = str(Path(__file__).parents[2])
LONG = 1000.0

Choose = Callable[[int], Sequence[int]]
"""Of so many positions, those to try."""


class JumpingClock:
    """Counts the product's functions that this thread calls; at one of them, a long time passes.

    Args:
        sends: the function whose calls are noted.
    """

    def __init__(self, sends: CodeType) -> None:
        self.calls, self.jumped = 0, 0.0
        self.sent: list[float] = []
        """When the function was called, since the last ``jumping`` began."""
        self._sends = sends

    def monotonic(self) -> float:
        return time.monotonic() + self.jumped

    @contextmanager
    def jumping(self, at: int) -> Iterator[None]:
        self.calls, self.jumped = 0, 0.0
        self.sent.clear()

        def called(frame: FrameType, event: str, arg: object) -> None:
            name = frame.f_code.co_filename
            if event == "call" and frame.f_code is self._sends:
                self.sent.append(self.monotonic())
            if event == "call" and name.startswith(ROOT) and "/abs_" in name:
                self.calls += 1
                if self.calls == at:
                    self.jumped = LONG

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            yield
        finally:
            sys.setprofile(before)


class Stalls:
    """Changes a cell of its own, with a stall at each position in turn.

    Args:
        new_store: opens the store anew, as a new process would.
        first, changed: the cell's content before and after.
        sends: what has the function that sends the change, and its name.
    """

    def __init__(
        self,
        new_store: Callable[[], RegisterStore],
        first: JobState,
        changed: JobState,
        sends: tuple[Any, str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self._new_store, self._first, self._changed = new_store, first, changed
        self._clock = JumpingClock(getattr(*sends).__code__)
        patch.setattr(contracts, "time", SimpleNamespace(monotonic=self._clock.monotonic))

    def check(self, choose: Choose = lambda count: range(1, count + 1)) -> int:
        """Return the number of positions.

        Raises:
            AssertionError: the change was sent after its deadline, or is not what was told.
        """
        version = self._new_store().compare_and_set(self._first.job, None, self._first)
        assert not isinstance(version, Conflict)
        version, told = self._change(version, sys.maxsize)
        assert told, "nothing stalled, and the change is not there"
        count = self._clock.calls
        for at in choose(count):
            version, told = self._change(version, at)
        return count

    def _change(self, version: Version, at: int) -> tuple[Version, bool]:
        """The version of the first content again, and whether the change was told to be there."""
        store, job, told = self._new_store(), self._first.job, True
        deadline = time.monotonic() + LONG / 2
        try:
            with self._clock.jumping(at):
                store.compare_and_set(job, version, self._changed, deadline)
        except UnavailableError:
            told = False
        late = [moment for moment in self._clock.sent if moment >= deadline]
        assert self._clock.sent or not told, "the change is there, and nothing has sent it"
        assert not late, f"the change was sent after its deadline, with a stall at call {at}"
        stored = store.load(job)
        assert stored is not None
        assert (stored.state == self._changed) is told, f"with a stall at call {at}"
        again = store.compare_and_set(job, stored.version, self._first)
        assert not isinstance(again, Conflict)
        return again, told
