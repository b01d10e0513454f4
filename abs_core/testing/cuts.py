"""Stops a coordinator between two of its effects, to simulate a crash within one process.

Everything before the chosen call takes effect, the call itself does not. The check then continues with
a new coordinator, as after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from abs_core.contracts import (
    CoCommitter,
    Committer,
    Composer,
    Conflict,
    RegisterStore,
    Stored,
    Version,
)
from abs_core.errors import UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome


class Halted(Exception):  # noqa: N818 - not an error: the check asked for it
    """The coordinator has reached the cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to stop.

    Args:
        before: name of the committer's call, or ``compare_and_set``.
        handles: for ``commit``: number of handles that are committed first.
        where: for ``compare_and_set``: only for a new state that satisfies it.
        lose_reply: make the call, and raise as a lost connection does, once.
    """

    before: str
    handles: int = 0
    where: Callable[[JobState], bool] = lambda state: True
    lose_reply: bool = False


class CutStore:
    """A register store that stops the coordinator, or loses one reply, at ``cut``."""

    def __init__(self, store: RegisterStore, cut: Cut) -> None:
        self._store = store
        self._cut = cut
        self._armed = cut.before == "compare_and_set"

    def load(self, job: str) -> Stored | None:
        return self._store.load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        if not (self._armed and self._cut.where(state)):
            return self._store.compare_and_set(job, expected, state)
        self._armed = False
        if not self._cut.lose_reply:
            raise Halted("before compare_and_set")
        self._store.compare_and_set(job, expected, state)
        raise UnavailableError("The reply of compare_and_set was lost (on purpose).", job=job)


class CutCommitter:
    """A committer that stops the coordinator at ``cut``."""

    def __init__(self, committer: Committer, cut: Cut) -> None:
        self._committer = committer
        self._cut = cut

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        self._pass("inspect")
        return self._committer.inspect(committables)

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        if self._cut.before == "commit":
            self._committer.commit(committables[: self._cut.handles])
        self._pass("commit")
        return self._committer.commit(committables)

    def abort(self, handles: Sequence[HandleName]) -> None:
        self._pass("abort")
        self._committer.abort(handles)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        self._pass("in_doubt")
        return self._committer.in_doubt(job)

    def forget(self, state: JobState) -> None:
        self._pass("forget")
        self._committer.forget(state)

    def _pass(self, call: str) -> None:
        if self._cut.before == call:
            raise Halted(f"before {call}")


class CutCoCommitter(CutCommitter):
    """The same for a committer that can co-commit."""

    def __init__(self, committer: CoCommitter, cut: Cut) -> None:
        super().__init__(committer, cut)
        self._co_committer = committer
        self._lose = cut.lose_reply and cut.before == "co_commit"

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        if self._lose:
            self._lose = False
            self._co_committer.co_commit(committables, expected, state)
            raise UnavailableError("The reply of co_commit was lost (on purpose).", job=state.job)
        if not self._cut.lose_reply:
            self._pass("co_commit")
        return self._co_committer.co_commit(committables, expected, state)


class CutComposer(CutCommitter):
    """The same for a committer that composes."""

    def __init__(self, committer: Composer, cut: Cut) -> None:
        super().__init__(committer, cut)
        self._composer = committer

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        self._pass("compose")
        return self._composer.compose(committables)


def cut_committer(committer: Committer, cut: Cut) -> Committer:
    """The committer with the cut in it; it co-commits, or composes, where the committer does."""
    if isinstance(committer, CoCommitter):
        return CutCoCommitter(committer, cut)
    if isinstance(committer, Composer):
        return CutComposer(committer, cut)
    return CutCommitter(committer, cut)
