"""A sink whose calls to register, committer and writers go over a wire, which may lose or stop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from abs_core.certificate import Certificate, CertificateStore, Origin
from abs_core.contracts import (
    Committer,
    Conflict,
    RegisterStore,
    Sink,
    Stored,
    Task,
    Version,
    Writer,
)
from abs_core.lookback import LookedBack, Past
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_testing.fault_injection import Wire

T = TypeVar("T")
Inner = TypeVar("Inner")


class Behind(Generic[Inner]):
    """What is behind the wire, and the wire."""

    def __init__(self, inner: Inner, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire


class StoreBehind(Behind[RegisterStore], RegisterStore):
    """A register store behind the wire."""

    def load(self, job: str) -> Stored | None:
        return self._wire.read("load", lambda: self._inner.load(job))

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        swap = partial(self._inner.compare_and_set, job, expected, state, deadline)
        return self._wire.swap("compare_and_set", state, swap)


class CertificatesBehind(Behind[CertificateStore]):
    """A certificate store behind the wire."""

    def read(self) -> Origin:
        return self._wire.read("certificate", self._inner.read)

    def write(self, certificate: Certificate) -> None:
        self._wire.write("certify", lambda: self._inner.write(certificate))


class CommitterBehind(Behind[Committer], Committer):
    """A committer behind the wire."""

    def __init__(self, inner: Committer, wire: Wire) -> None:
        super().__init__(inner, wire)
        self.co_commits, self.composes = inner.co_commits, inner.composes
        self.whole = inner.whole

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return self._wire.read("inspect", lambda: self._inner.inspect(committables))

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return self._wire.commit(committables, self._inner.commit, whole=self.whole)

    def abort(self, handles: Sequence[HandleName]) -> None:
        self._wire.abort(handles, self._inner.abort)

    def forsake(self, committables: Sequence[Committable]) -> None:
        self._wire.write("forsake", lambda: self._inner.forsake(committables))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return self._wire.read("in_doubt", lambda: self._inner.in_doubt(job))

    def forget(self, state: JobState) -> None:
        self._wire.write("forget", lambda: self._inner.forget(state))

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        swap = partial(self._inner.co_commit, committables, expected, state)
        return self._wire.swap("co_commit", state, swap)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        return self._wire.read("shown", lambda: self._inner.shown(committables))

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        return self._wire.read("look_back", lambda: self._inner.look_back(past))

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        return self._wire.write("compose", lambda: self._inner.compose(committables))


class SinkBehind(Behind[Sink], Sink):
    """A sink behind the wire; calls that do not ask the target bypass it."""

    @property
    def target_id(self) -> str:
        return self._inner.target_id

    def writer(self, task: Task) -> Writer:
        return _WriterBehind(self._inner.writer(task), self._wire)

    def committer(self) -> Committer:
        return CommitterBehind(self._inner.committer(), self._wire)

    def register(self) -> RegisterStore:
        return StoreBehind(self._inner.register(), self._wire)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return self._inner.preflight(job, tasks)

    def guarantee(self) -> Guarantee:
        return self._inner.guarantee()

    def fence(self, state: JobState) -> None:
        self._inner.fence(state)

    def close(self) -> None:
        self._inner.close()


class _WriterBehind(Behind[Writer]):
    """A writer behind the wire. While one of its calls is delayed, nobody aborts it."""

    _hangs = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._call("write", lambda: self._inner.write(batch))

    def pre_commit(self) -> Committable | None:
        return self._call("pre_commit", self._inner.pre_commit)

    def abort(self) -> None:
        if not self._hangs:
            self._inner.abort()

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
                self._inner.abort()
