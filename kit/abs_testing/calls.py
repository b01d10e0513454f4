"""Counts a job's calls to its target's system and injects a fault into one of them.

``Calls`` is the interface that ``check_positions`` needs: a relay of messages, a proxy of HTTP
requests, or ``by_calls``, which is between the coordinator and the sink in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from abs_core.certificate import CertificateStore
from abs_core.contracts import Sink
from abs_core.errors import AbsError
from abs_testing.behind import CertificatesBehind, SinkBehind
from abs_testing.fault_injection import Fault, Wire
from abs_testing.harness import Harness, Opener, Row

T = TypeVar("T")


class Loss(Enum):
    """The fault of a request; but for DOUBLE, the client sees a broken connection."""

    REQUEST = Fault.LOST
    REPLY = Fault.UNANSWERED
    DELAY = Fault.DELAYED
    """The server gets it at ``release``."""
    DOUBLE = Fault.DOUBLED


class Calls(Protocol):
    """Carries a job's calls to the target's system, counts them, and loses one."""

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        """Restart the count; one call meets ``loss`` once (None: no fault).

        It is call ``number`` (from 1) among those of this name; among all calls where none is given.
        """
        ...

    @property
    def seen(self) -> Sequence[str]:
        """The kind of each call since ``arm``, in order, such as ``PutIf`` or ``commit``."""
        ...

    @property
    def fired(self) -> bool:
        """Whether the fault was injected."""
        ...

    def losses(self, name: str) -> Sequence[Loss]:
        """The ways in which a call of this name can be lost."""
        ...

    def release(self) -> None:
        """Apply the delayed call and wait for it; called once, if it ``fired``."""
        ...


@dataclass(slots=True)
class Again(Generic[T]):
    """Keeps one call, and brings it again before a later one.

    Args:
        name: of the call to keep.
        number: of it among the calls of its name, from 1.
        before: the name of the call before which it comes again.
        nth: of that one among the calls of its name after the kept one, from 1.
    """

    name: str
    number: int
    before: str
    nth: int
    kept: T | None = None
    done: bool = False

    def meets(self, seen: Sequence[str], call: T) -> T | None:
        """The earlier call to repeat before this one; None: none.

        Args:
            seen: the names of all calls up to this one.
        """
        if self.kept is None:
            if seen[-1] == self.name and seen.count(self.name) == self.number:
                self.kept = call
            return None
        self.nth -= seen[-1] == self.before
        if self.nth or self.done:
            return None
        self.done = True
        return self.kept


PositionOpener = Callable[[], AbstractContextManager[tuple[Harness, Calls]]]
"""Opens a harness on an empty target, whose sinks go through the calls; it looks at the target past
them. Both end with the context."""


def by_calls(opener: Opener, new_calls: Callable[[], ContractCalls] | None = None) -> ReadOpener:
    """Loses calls of the contract itself, in this process: of register, committer and writers.

    Args:
        new_calls: makes what carries them, for each target; default: ``ContractCalls``.
    """

    @contextmanager
    def opened() -> Iterator[tuple[Harness, ContractCalls]]:
        with opener() as harness:
            calls = ContractCalls() if new_calls is None else new_calls()
            new_sink = lambda: calls.through(harness.new_sink())  # noqa: E731
            yield (
                _Behind(harness.own_register, new_sink, harness.read, harness.leftovers),
                calls,
            )

    return opened


_READS = ("load", "inspect", "in_doubt", "certificate")
_WRITERS = ("write", "pre_commit")
_LOOKS = ("shown", "look_back")


class ContractCalls(Wire):
    """``Calls`` in this process, for sinks that are built by ``through``."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: tuple[int, Loss | None, str] = (0, None, "")
        self.fired = False
        self._again: Again[Callable[[], object]] | None = None
        self._call: Callable[[], object] = lambda: None

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        self.seen.clear()
        self._plan = number, loss, name
        self.fired = False

    def losses(self, name: str) -> Sequence[Loss]:
        if name in _READS:
            return (Loss.REQUEST,)
        if name in _WRITERS:  # a writer is used once: a repetition is another attempt
            return (Loss.REQUEST, Loss.REPLY, Loss.DELAY)
        return tuple(Loss)

    def release(self) -> None:
        while self.delayed:
            self.deliver(0)

    def repeat(self, name: str, number: int, before: str, nth: int) -> None:
        """See ``check_repeats.Repeating``."""
        self.arm(1, None)
        self._again = Again(name, number, before, nth)

    @property
    def repeated(self) -> bool:
        """See ``check_repeats.Repeating``."""
        return self._again is not None and self._again.done

    def ends(self, name: str) -> bool:
        """See ``check_repeats.Repeating``."""
        return name not in (*_READS, *_WRITERS, *_LOOKS)

    def reads(self, name: str) -> bool:
        """Whether a call of this name changes nothing."""
        return name in _READS

    def through(self, sink: Sink) -> Sink:
        """The sink with all of its calls going through this."""
        return SinkBehind(sink, self)

    def certificates(self, store: CertificateStore) -> CertificateStore:
        """The engine's checkpoint with its calls going through this."""
        return CertificatesBehind(store, self)

    def write(self, name: str, call: Callable[[], T]) -> T:
        self._call = call
        return super().write(name, call)

    def _next(self, name: str) -> Fault:
        fault = super()._next(name)
        number, loss, wanted = self._plan
        made = self.seen.count(wanted) if wanted else len(self.seen)
        if loss is not None and not self.fired and made == number:
            self.fired = True
            fault = loss.value
        late = None if self._again is None else self._again.meets(self.seen, self._call)
        if late:
            with suppress(AbsError):  # its answer is dropped
                late()
        return fault


ReadOpener = Callable[[], AbstractContextManager[tuple[Harness, ContractCalls]]]
"""What ``by_calls`` makes of any harness."""


@dataclass(frozen=True, slots=True)
class _Behind:
    """A harness whose sinks go through the calls."""

    own_register: bool
    new_sink: Callable[[], Sink]
    read: Callable[[], Iterable[Row]]
    leftovers: Callable[[str], Sequence[str]]
