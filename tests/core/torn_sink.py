"""A sink that co-commits in two transactions, for a test that must find it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from abs_core.contracts import Committer, Conflict, Version
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, JobState
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.fakes.sink import TransactionCommitter
from abs_testing.fakes.target import swap


class TornCommitter(TransactionCommitter):
    """Rows first, the register afterwards."""

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        with self._target.transaction() as db:
            for committable in committables:
                self._apply(db, committable)
        reached(CrashPoint.INSIDE_CO_COMMIT)
        with self._target.transaction() as db:
            return swap(db, state.job, expected, state)


class TornSink(FakeSink):
    """Its committer is torn."""

    def committer(self) -> Committer:
        return TornCommitter(self._target, keyed=False)


def torn_sink(path: Path) -> TornSink:
    return TornSink(FakeTarget(path), "wal", "append")
