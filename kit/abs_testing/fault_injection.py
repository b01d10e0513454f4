"""A simulated network that loses, delays and stops the calls to a register and a committer.

``behind`` sends the calls of a sink over it. Every call takes the next planned fault. The test decides
when a delayed call takes effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TypeVar

from abs_core.errors import AbsError, UnavailableError
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_testing.cuts import Cut, Halted

T = TypeVar("T")
Commit = Callable[[Sequence[Committable]], Mapping[HandleName, Outcome]]
Abort = Callable[[Sequence[HandleName]], None]


class Fault(Enum):
    """The fault of one call."""

    NONE = "it happens, and is answered"
    LOST = "the request is lost: it never happens"
    UNANSWERED = "it happens, and the reply is lost"
    DELAYED = "it happens later, and nobody hears of it"
    DOUBLED = "it happens twice, and the second answer is given"
    OVERTAKEN = "something else happens first"
    HALTED = "the process dies before it"
    ENDED = "it happens, and the process dies before it hears"


class Wire:
    """Carries calls and injects faults. Commits travel handle by handle, or all that go together.

    So do aborts.

    Args:
        overtake: what happens first where a call is overtaken.
    """

    def __init__(self, overtake: Callable[[], None] = lambda: None) -> None:
        self.planned: deque[Fault] = deque()
        self.seen: list[str] = []
        """Names of the calls so far, in order."""
        self.delayed: list[Callable[[], object]] = []
        self._overtake = overtake

    def read(self, name: str, call: Callable[[], T]) -> T:
        """A call that changes nothing: losing the request or the reply is the same."""
        fault = self._next(name)
        if fault is Fault.ENDED:
            raise Halted(fault.value)
        if fault in (Fault.LOST, Fault.UNANSWERED, Fault.DELAYED):
            raise UnavailableError(f"{fault.value} (on purpose)")
        return call()

    def write(self, name: str, call: Callable[[], T]) -> T:
        """A call that changes something."""
        fault = self._next(name)
        if fault is Fault.DELAYED:
            self.delayed.append(call)
        if fault in (Fault.UNANSWERED, Fault.ENDED):
            call()
        if fault is Fault.ENDED:
            raise Halted(fault.value)
        if fault is Fault.DOUBLED:
            with suppress(AbsError):  # only the second answer counts
                call()
        if fault in (Fault.LOST, Fault.UNANSWERED, Fault.DELAYED):
            raise UnavailableError(f"{fault.value} (on purpose)")
        return call()

    def swap(self, name: str, state: JobState, call: Callable[[], T]) -> T:
        """A call that puts this state into the register."""
        return self.write(name, call)

    def commit(
        self, committables: Sequence[Committable], commit: Commit, *, whole: bool = False
    ) -> Mapping[HandleName, Outcome]:
        if whole and committables:
            return self.write("commit", lambda: commit(committables))
        outcomes: dict[HandleName, Outcome] = {}
        for one in committables:
            outcomes |= self.write("commit", partial(commit, [one]))
        return outcomes

    def abort(self, handles: Sequence[HandleName], abort: Abort) -> None:
        for one in handles:
            self.write("abort", partial(abort, [one]))

    def deliver(self, position: int) -> None:
        """Make one delayed call now; its error is dropped."""
        call = self.delayed.pop(position % len(self.delayed))
        with suppress(AbsError):  # its caller has long given up
            call()

    def _next(self, name: str) -> Fault:
        self.seen.append(name)
        fault = self.planned.popleft() if self.planned else Fault.NONE
        if fault is Fault.OVERTAKEN:
            self._overtake()
        if fault is Fault.HALTED:
            raise Halted(fault.value)
        return fault


class CutWire(Wire):
    """Carries calls up to the cut; commits and aborts as they were made, all handles in one call."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self._cut = cut
        self._done = False

    def swap(self, name: str, state: JobState, call: Callable[[], T]) -> T:
        if name != self._cut.before:
            return super().swap(name, state, call)
        if self._done or not self._cut.where(state):
            return call()
        self._done = True
        if not self._cut.lose_reply:
            raise Halted(f"before {name}")
        call()
        raise UnavailableError(f"The reply of {name} was lost (on purpose).", job=state.job)

    def commit(
        self, committables: Sequence[Committable], commit: Commit, *, whole: bool = False
    ) -> Mapping[HandleName, Outcome]:
        if self._cut.before == "commit" and self._cut.handles:
            commit(committables if whole else committables[: self._cut.handles])
        return self.write("commit", lambda: commit(committables))

    def abort(self, handles: Sequence[HandleName], abort: Abort) -> None:
        self.write("abort", lambda: abort(handles))

    def _next(self, name: str) -> Fault:
        if name == self._cut.before:
            raise Halted(f"before {name}")
        return super()._next(name)
