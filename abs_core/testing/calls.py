"""Counts a job's calls to its target's system and injects a fault into one of them.

``Calls`` is the interface that ``check_positions`` needs: a relay of messages, a proxy of HTTP
requests, or ``by_calls``, which is between the coordinator and the sink in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from abs_core.births.certificate import CertificateStore
from abs_core.contracts import Committer, RegisterStore, Sink, Task, Writer
from abs_core.model import Committable, Finding, Guarantee, JobState
from abs_core.testing.fault_injection import (
    Fault,
    FaultyCertificates,
    FaultyStore,
    Wire,
    faulty_committer,
)
from abs_core.testing.harness import Harness, Opener, Row

T = TypeVar("T")


class Loss(StrEnum):
    """The fault of a request.

    REQUEST: the server never gets it. REPLY: the server gets it and answers; the client sees a broken
    connection. DELAY: the client sees a broken connection; the server gets it at ``release``. DOUBLE:
    the server gets it twice; the client hears the second answer.
    """

    REQUEST = "request"
    REPLY = "reply"
    DELAY = "delay"
    DOUBLE = "double"


class Calls(Protocol):
    """Carries a job's calls to the target's system, counts them, and loses one."""

    def arm(self, position: int, loss: Loss | None) -> None:
        """Restart the count; the call at ``position`` (from 1) meets ``loss`` once (None: no fault)."""
        ...

    @property
    def seen(self) -> Sequence[str]:
        """The kind of each call since ``arm``, in order, such as ``PutIf`` or ``commit``."""
        ...

    @property
    def fired(self) -> bool:
        """Whether the call at the position was made."""
        ...

    def losses(self, name: str) -> Sequence[Loss]:
        """The ways in which a call of this name can be lost."""
        ...

    def release(self) -> None:
        """Apply the delayed call and wait for it; called once, if it ``fired``."""
        ...


PositionOpener = Callable[[], AbstractContextManager[tuple[Harness, Calls]]]
"""Opens a harness on an empty target, whose sinks go through the calls; it looks at the target past
them. Both end with the context."""


def by_calls(
    opener: Opener,
) -> Callable[[], AbstractContextManager[tuple[Harness, ContractCalls]]]:
    """Loses calls of the contract itself, in this process: of register, committer and writers."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, ContractCalls]]:
        with opener() as harness:
            calls = ContractCalls()
            yield _Behind(harness, calls), calls

    return opened


_FAULTS = {
    Loss.REQUEST: Fault.LOST,
    Loss.REPLY: Fault.UNANSWERED,
    Loss.DELAY: Fault.DELAYED,
    Loss.DOUBLE: Fault.DOUBLED,
}
_READS = ("load", "inspect", "in_doubt", "certificate")
_WRITERS = ("write", "pre_commit")


class ContractCalls:
    """``Calls`` in this process, for sinks that are built by ``through``."""

    def __init__(self) -> None:
        self._wire = Wire()
        self._fired_at: int | None = None

    def arm(self, position: int, loss: Loss | None) -> None:
        self._wire.seen.clear()
        self._wire.planned.clear()
        self._fired_at = position
        if loss is not None:
            self._wire.planned.extend([*[Fault.NONE] * (position - 1), _FAULTS[loss]])

    def repeat(self, first: int, before: int) -> None:
        """See ``check_repeats.Repeating``."""
        self.arm(1, None)
        self._wire.again = first, before
        self._wire.ends = self.ends

    def ends(self, name: str) -> bool:
        """See ``Repeating``."""
        return name not in (*_READS, *_WRITERS)

    @property
    def repeated(self) -> bool:
        """See ``Repeating``."""
        return self._wire.repeated

    def reads(self, name: str) -> bool:
        """Whether a call of this name changes nothing."""
        return name in _READS

    def certificates(self, store: CertificateStore) -> CertificateStore:
        """The engine's checkpoint with its calls going through this."""
        return FaultyCertificates(store, self._wire)

    @property
    def seen(self) -> Sequence[str]:
        return list(self._wire.seen)

    @property
    def fired(self) -> bool:
        return self._fired_at is not None and len(self._wire.seen) >= self._fired_at

    def losses(self, name: str) -> Sequence[Loss]:
        if name in _READS:
            return (Loss.REQUEST,)
        if name in _WRITERS:  # a writer is used once: a repetition is another attempt
            return (Loss.REQUEST, Loss.REPLY, Loss.DELAY)
        return tuple(Loss)

    def release(self) -> None:
        while self._wire.delayed:
            self._wire.deliver(0)

    def through(self, sink: Sink) -> Sink:
        """The sink with all of its calls going through this."""
        return SinkBehind(sink, self._wire)


class _Behind:
    """A harness whose sinks go through the calls."""

    def __init__(self, harness: Harness, calls: ContractCalls) -> None:
        self._harness = harness
        self._calls = calls

    @property
    def own_register(self) -> bool:
        return self._harness.own_register

    def new_sink(self) -> Sink:
        return self._calls.through(self._harness.new_sink())

    def read(self) -> Iterable[Row]:
        return self._harness.read()

    def leftovers(self, job: str) -> Sequence[str]:
        return self._harness.leftovers(job)


class SinkBehind:
    """A sink behind the wire; calls that do not ask the target bypass it."""

    def __init__(self, sink: Sink, wire: Wire) -> None:
        self._sink = sink
        self._wire = wire

    @property
    def target(self) -> str:
        return self._sink.target

    def writer(self, task: Task) -> Writer:
        return _WriterBehind(self._sink.writer(task), self._wire)

    def committer(self) -> Committer:
        return faulty_committer(self._sink.committer(), self._wire)

    def register(self) -> RegisterStore:
        return FaultyStore(self._sink.register(), self._wire)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return self._sink.preflight(job, tasks)

    def guarantee(self) -> Guarantee:
        return self._sink.guarantee()

    def fence(self, state: JobState) -> None:
        self._sink.fence(state)

    def close(self) -> None:
        self._sink.close()


class _WriterBehind:
    """A writer behind the wire. While one of its calls is delayed, nobody aborts it."""

    def __init__(self, writer: Writer, wire: Wire) -> None:
        self._writer = writer
        self._wire = wire
        self._hangs = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._call("write", lambda: self._writer.write(batch))

    def pre_commit(self) -> Committable | None:
        return self._call("pre_commit", self._writer.pre_commit)

    def abort(self) -> None:
        if not self._hangs:
            self._writer.abort()

    def _call(self, name: str, call: Callable[[], T]) -> T:
        delayed = len(self._wire.delayed)
        try:
            return self._wire.write(name, partial(self._ends, call))
        finally:
            self._hangs = len(self._wire.delayed) > delayed

    def _ends(self, call: Callable[[], T]) -> T:
        """Make the call; a delayed call is the last one of its process."""
        try:
            return call()
        finally:
            if self._hangs:
                self._writer.abort()
