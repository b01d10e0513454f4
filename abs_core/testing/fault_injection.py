"""A simulated network that loses and delays calls to a register and a committer.

Every call takes the next planned fault. The test decides when a delayed call takes effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TypeVar

from abs_core.births.certificate import Certificate, CertificateStore, Origin
from abs_core.contracts import (
    CoCommitter,
    Committer,
    Composer,
    Conflict,
    RegisterStore,
    Stored,
    Version,
)
from abs_core.errors import AbsError, UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.testing.cuts import Halted

T = TypeVar("T")


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
    """Carries calls and injects faults.

    Args:
        overtake: what happens first where a call is overtaken.
    """

    def __init__(self, overtake: Callable[[], None] = lambda: None) -> None:
        self.planned: deque[Fault] = deque()
        self.seen: list[str] = []
        """Names of the calls so far, in order."""
        self.again: tuple[int, int] | None = None
        """The number of the call to repeat, and of the call before which it is repeated."""
        self.ends: Callable[[str], bool] = lambda name: True
        """Which calls may be repeated; if that call may not, the next one that may is."""
        self.repeated = False
        self._kept: Callable[[], object] | None = None
        self._kept_at = 0
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
        if self._kept is None and self._may_come_again(name):
            self._kept, self._kept_at = call, len(self.seen)
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

    def deliver(self, position: int) -> None:
        """Make one delayed call now; its error is dropped."""
        call = self.delayed.pop(position % len(self.delayed))
        with suppress(AbsError):  # its caller has long given up
            call()

    def _comes_again(self) -> bool:
        assert self.again is not None
        return len(self.seen) - self._kept_at == self.again[1] - self.again[0]

    def _may_come_again(self, name: str) -> bool:
        return self.again is not None and self.again[0] <= len(self.seen) and self.ends(name)

    def _next(self, name: str) -> Fault:
        self.seen.append(name)
        if self._kept is not None and self._comes_again():
            self.repeated = True
            with suppress(AbsError):  # its answer is dropped
                self._kept()
        fault = self.planned.popleft() if self.planned else Fault.NONE
        if fault is Fault.OVERTAKEN:
            self._overtake()
        if fault is Fault.HALTED:
            raise Halted(fault.value)
        return fault


class FaultyStore:
    """A register store behind the wire."""

    def __init__(self, store: RegisterStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    def load(self, job: str) -> Stored | None:
        return self._wire.read("load", lambda: self._store.load(job))

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        return self._wire.write(
            "compare_and_set", lambda: self._store.compare_and_set(job, expected, state)
        )


class FaultyCertificates:
    """A certificate store behind the wire."""

    def __init__(self, store: CertificateStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    def read(self) -> Origin:
        return self._wire.read("certificate", self._store.read)

    def write(self, certificate: Certificate) -> None:
        self._wire.write("certify", lambda: self._store.write(certificate))


class FaultyCommitter:
    """A committer behind the wire. Commits and aborts travel handle by handle."""

    def __init__(self, committer: Committer, wire: Wire) -> None:
        self._committer = committer
        self._wire = wire

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return self._wire.read("inspect", lambda: self._committer.inspect(committables))

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        outcomes: dict[HandleName, Outcome] = {}
        for one in committables:
            outcomes |= self._wire.write("commit", partial(self._committer.commit, [one]))
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        for one in handles:
            self._wire.write("abort", partial(self._committer.abort, [one]))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return self._wire.read("in_doubt", lambda: self._committer.in_doubt(job))

    def forget(self, state: JobState) -> None:
        self._wire.write("forget", lambda: self._committer.forget(state))


class FaultyCoCommitter(FaultyCommitter):
    """The same for one that co-commits."""

    def __init__(self, committer: CoCommitter, wire: Wire) -> None:
        super().__init__(committer, wire)
        self._co_committer = committer

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        return self._wire.write(
            "co_commit", lambda: self._co_committer.co_commit(committables, expected, state)
        )


class FaultyComposer(FaultyCommitter):
    """The same for one that composes."""

    def __init__(self, committer: Composer, wire: Wire) -> None:
        super().__init__(committer, wire)
        self._composer = committer

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        return self._wire.write("compose", lambda: self._composer.compose(committables))


def faulty_committer(committer: Committer, wire: Wire) -> Committer:
    """The committer behind the wire; it co-commits, or composes, where the committer does."""
    if isinstance(committer, CoCommitter):
        return FaultyCoCommitter(committer, wire)
    if isinstance(committer, Composer):
        return FaultyComposer(committer, wire)
    return FaultyCommitter(committer, wire)
