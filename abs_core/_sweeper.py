"""Aborts what no decision, present or future, can name, and deletes old proof."""

from __future__ import annotations

from abs_core import protocol
from abs_core.contracts import Committer
from abs_core.crash import CrashPoint, reached
from abs_core.errors import TargetError, UnavailableError
from abs_core.events import Observer, SweepFailed, Swept
from abs_core.model import HandleName, JobState
from abs_core.patience import Patience
from abs_core.protocol import Identity, Refused

NOTHING: frozenset[HandleName] = frozenset()


class Sweeper:
    """For one run of a job: for its tasks, when they start it, and for its commit process."""

    def __init__(
        self, who: Identity, committer: Committer, patience: Patience, observe: Observer
    ) -> None:
        self._who = who
        self._committer = committer
        self._patience = patience
        self._observe = observe

    def sweep(self, state: JobState, who: Identity, spent: frozenset[HandleName] = NOTHING) -> None:
        """Abort every handle that no decision can name (I4); nothing where ``who`` is fenced (I5).

        Args:
            who: holds the generation: this run, or what it became when it gave itself up.
            spent: what an epoch's commit was composed of: it has served, and is not told of.
        """
        generation = protocol.generation_of(state, who)
        if isinstance(generation, Refused):
            return
        doubts = self._patience.retry(lambda: self._committer.in_doubt(self._who.job))
        handles = protocol.sweep(state, generation, [doubt.handle for doubt in doubts])
        if handles:
            self._patience.retry(lambda: self._committer.abort(handles))
            left_behind = tuple(str(handle) for handle in handles if handle not in spent)
            if left_behind:
                self._observe(Swept(self._who.job, left_behind))
        reached(CrashPoint.AFTER_SWEEP)

    def tidy(
        self, state: JobState, *, forget: bool, spent: frozenset[HandleName] = NOTHING
    ) -> None:
        """Sweep, and delete old proof. Safety does not rest on it: a failure stops no job.

        It is reported, and comes again with the next epoch: a handle that only another role may
        abort, for instance, must not stop a job whose epochs are finished.
        """
        try:
            if forget:
                self._patience.retry(lambda: self._committer.forget(state))
                reached(CrashPoint.AFTER_FORGET)
        except TargetError as error:
            self._observe(SweepFailed(self._who.job, str(error)))
            if isinstance(error, UnavailableError):
                return  # the sweep would wait as long again
        try:
            # Also where old proof cannot be deleted: what is left behind would grow without end.
            self.sweep(state, self._who, spent)
        except TargetError as error:
            self._observe(SweepFailed(self._who.job, str(error)))
