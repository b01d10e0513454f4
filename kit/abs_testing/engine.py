"""A test engine: runs of a job whose tasks and commit process a check drives step by step.

It calls the real ``Coordinator`` and the sink's own register, writers and committer in Spark's order; a
check injects its fault between two steps.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import xxhash

from abs_core.certificate import CertificateStore, Origin
from abs_core.contracts import (
    RegisterStore,
    Sink,
    Stored,
    Task,
    Writer,
)
from abs_core.coordinator import Coordinator, Report
from abs_core.model import Committable, Drained, JobState, Share, Wrote
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, Skip, Write
from abs_core.rowdigest import RowDigest
from abs_testing.behind import CommitterBehind, StoreBehind
from abs_testing.cuts import Cut
from abs_testing.fault_injection import CutWire, Wire
from abs_testing.harness import Row, batch_of

QUICK = Patience(seconds=5.0)


def digest_of(rows: Sequence[Row]) -> RowDigest:
    """A digest of rows as an engine would make it."""

    def total(values: Iterable[object]) -> int:
        return sum(xxhash.xxh3_64_intdigest(repr(value).encode()) for value in values) % (1 << 64)

    columns = ("id", total(row[0] for row in rows)), ("value", total(row[1] for row in rows))
    return RowDigest(total(rows), columns)


def committables_of(shares: Sequence[Share]) -> list[Committable]:
    """What tasks have pre-committed."""
    return Report(0, shares, None).committables


class Attempt:
    """One attempt of a task, with its writer."""

    def __init__(self, task: Task, writer: Writer) -> None:
        self.task = task
        self.writer = writer
        self._rows = 0

    def write(self, *rows: Row) -> Attempt:
        """Write the rows as one batch, if there are any."""
        if rows:
            self.writer.write(batch_of(rows))
            self._rows += len(rows)
        return self

    def pre_commit(self) -> Wrote:
        return Wrote(self._rows, self.writer.pre_commit())


class RunSettings(TypedDict, total=False):
    """How a run differs from the first one of an ordinary job.

    ``store``: the register; default: the sink's own. ``cut``: where its commit process stops with
    ``Halted``; tasks never stop. ``certificates``: in the engine's checkpoint; read before tasks begin.
    ``wire``: carries the calls of its tasks and its commit process to register and committer.
    ``digests``: whether its tasks make digests of their rows. ``gaps``: whether the engine may leave
    epochs out. ``checkpoint``: location of the engine's checkpoint, see ``JobState``.
    """

    run: str
    lineage: str
    adopt: str | None
    store: RegisterStore | None
    cut: Cut | None
    wire: Wire | None
    certificates: CertificateStore | None
    patience: Patience
    digests: bool
    gaps: bool
    checkpoint: str | None


class Run:
    """One run of a job, with a sink, a register and a coordinator of its own."""

    def __init__(self, sink: Sink, job: str, **settings: Unpack[RunSettings]) -> None:
        self.sink = sink
        self.job = job
        self._digests = settings.get("digests", False)
        self._gaps = settings.get("gaps", False)
        run = settings.get("run") or secrets.token_hex(4)
        lineage = settings.get("lineage", "lineage")
        consent, checkpoint = settings.get("adopt"), settings.get("checkpoint")
        self.who = RunIdentity(job, lineage, run, sink.target_id, consent, checkpoint)
        store, cut = settings.get("store"), settings.get("cut")
        self.store = sink.register() if store is None else store
        self.committer = sink.committer()
        self._certificates = settings.get("certificates")
        self._own = store is None
        self.co_commits = self._own and self.committer.co_commits
        self._patience = settings.get("patience", QUICK)
        self._tasks = self._coordinator(settings.get("wire"))
        self.coordinator = self._tasks if cut is None else self._coordinator(CutWire(cut))

    def _coordinator(self, wire: Wire | None) -> Coordinator:
        return Coordinator(
            self.who,
            self.store if wire is None else StoreBehind(self.store, wire),
            self.committer if wire is None else CommitterBehind(self.committer, wire),
            co_commit=self._own,
            patience=self._patience,
            certificates=self._certificates,
            is_empty=self.sink.is_empty,
            fence=self.sink.fence,
        )

    def begin(self, epoch: int) -> tuple[JobState, Write | Skip]:
        """What a task does first."""
        origin = Origin() if self._certificates is None else self._certificates.read()
        return self._tasks.begin(epoch, gaps_allowed=self._gaps, origin=origin)

    def attempt(self, epoch: int, partition: int = 0) -> Attempt:
        """An attempt of a task with an open writer; the epoch must not be decided."""
        state, planned = self.begin(epoch)
        assert isinstance(planned, Write), f"epoch {epoch} is already decided"
        name = secrets.token_hex(6)
        task = Task(
            state.register,
            self.job,
            state.generation,
            epoch,
            partition,
            name,
            state.frontier,
            state.abandoned,
        )
        return Attempt(task, self.sink.writer(task))

    def decided(self, epoch: int) -> bool:
        """Whether a task that begins now skips the epoch."""
        return isinstance(self.begin(epoch)[1], Skip)

    def task(self, epoch: int, partition: int, rows: Sequence[Row]) -> Share:
        """A whole task: begin; then write and pre-commit, or drain."""
        digest = digest_of(rows) if self._digests else None
        if self.decided(epoch):
            return Drained(len(rows), digest)
        return replace(self.attempt(epoch, partition).write(*rows).pre_commit(), digest=digest)

    def tasks(self, epoch: int, *parts: Sequence[Row]) -> list[Share]:
        """All tasks of an epoch, one for each part."""
        return [self.task(epoch, partition, rows) for partition, rows in enumerate(parts)]

    def commit(self, epoch: int, shares: Sequence[Share], fingerprint: str | None = None) -> None:
        """What the engine calls when all tasks of the epoch have reported."""
        report = Report(epoch, shares, fingerprint, gaps_allowed=self._gaps)
        self.coordinator.commit(report)

    def epoch(self, epoch: int, *parts: Sequence[Row], fingerprint: str | None = None) -> None:
        """A whole epoch: all tasks, then commit."""
        self.commit(epoch, self.tasks(epoch, *parts), fingerprint)

    def abort(self, epoch: int) -> None:
        """What the engine calls when the epoch has failed."""
        self.coordinator.abort(epoch)

    def stored(self) -> Stored:
        stored = self.store.load(self.job)
        assert stored is not None, f"job {self.job!r} has no register"
        return stored

    def state(self) -> JobState:
        return self.stored().state

    def sweep(self) -> None:
        """A sweep, as at every start and after each epoch."""
        self.coordinator.sweep(self.state())
