"""Aborts handles that no decision can name, and deletes old proof of commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from abs_core import protocol
from abs_core.aborting import attempt_all, raise_all
from abs_core.contracts import Committer
from abs_core.crash import CrashPoint, reached
from abs_core.errors import TargetError
from abs_core.events import Observer, SweepFailed, Swept
from abs_core.model import HandleName, InDoubt, JobState
from abs_core.patience import Patience
from abs_core.protocol import Refused, RunIdentity

NOTHING: frozenset[HandleName] = frozenset()


@dataclass(slots=True)
class Sweeper:
    """The sweeper of one run, for its tasks at start and its commit process.

    Each system is swept separately: one that is down does not stop the others' sweep.
    """

    _who: RunIdentity
    _committer: Committer
    _patience: Patience
    _observe: Observer
    left: dict[HandleName, InDoubt] = field(default_factory=dict, init=False)
    """Handles that the last ``tidy`` has seen and not aborted, of the systems that answered."""

    def sweep(self, state: JobState) -> None:
        """Abort every handle that no decision can name (I4); do nothing if this run is fenced (I5).

        Raises:
            TargetError: some handles stay. Every system that answers is swept.
        """
        self._in_each(lambda system: self._sweeping(system, state))

    def sweep_superseded(self, state: JobState) -> None:
        """Abort what runs before the present one have pre-committed, as its start did; any run may.

        Raises:
            TargetError: some handles stay. Every system that answers is swept.
        """

        def doomed(doubts: Sequence[InDoubt]) -> list[HandleName]:
            return protocol.superseded(state, _names(doubts))

        self._in_each(lambda system: self._aborting(system, doomed))

    def tidy(
        self,
        state: JobState,
        *,
        forget: bool,
        spent: frozenset[HandleName] = NOTHING,
        alone: bool = False,
    ) -> None:
        """Sweep, and delete old proof of commit; a failure is reported and retried at the next epoch.

        It is never needed for safety: for instance, a handle that only another role may abort must not
        stop a job whose epochs are finished.

        Args:
            spent: tasks' handles that were composed into others; not reported as swept.
            alone: no epoch of this run is under way.
        """

        def tidying(system: Committer) -> Callable[[], None]:
            parts = [self._sweeping(system, state, spent, alone=alone)]
            if forget:
                parts.insert(0, partial(_forget, system, state))
            # Do both even if one fails: leftovers would grow without bound.
            return lambda: attempt_all(parts)

        self.left.clear()
        try:
            self._in_each(tidying)
        except TargetError as error:
            self._observe(SweepFailed(self._who.job, str(error)))

    def discard(self, state: JobState, handles: Iterable[HandleName]) -> None:
        """Abort handles that no report will name, see ``Coordinator.discard``; only report failures."""
        generation, last = protocol.generation_of(state, self._who), state.last_decided
        # Of an epoch up to the last decided one, a decision may name handles (I4).
        dead = [
            handle
            for handle in handles
            if (handle.register, handle.generation) == (state.register, generation)
            and (last is None or handle.epoch > last)
        ]
        if not dead:
            return
        try:
            self._patience.retry(lambda: self._committer.abort(dead))
        except TargetError as error:
            self._observe(SweepFailed(self._who.job, str(error)))

    def _in_each(self, made: Callable[[Committer], Callable[[], object]]) -> None:
        """Call it in every system, then retry those that failed, with patience, all together."""
        run_calls = self._committer.run_calls
        left = [made(system) for system in self._committer.systems()]

        def attempt() -> None:
            nonlocal left
            outcomes = run_calls(left)
            failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            left = [
                part for part, o in zip(left, outcomes, strict=True) if isinstance(o, Exception)
            ]
            raise_all(failed)

        self._patience.retry(attempt)

    def _sweeping(
        self,
        system: Committer,
        state: JobState,
        spent: frozenset[HandleName] = NOTHING,
        *,
        alone: bool = False,
    ) -> Callable[[], None]:
        """The sweep of one system; it can be repeated."""
        generation = protocol.generation_of(state, self._who)
        if isinstance(generation, Refused):
            return lambda: None

        def doomed(doubts: Sequence[InDoubt]) -> list[HandleName]:
            swept = protocol.sweep(state, generation, _names(doubts))
            lasting = [doubt for doubt in doubts if doubt.lasting and alone]
            return [*swept, *protocol.outlasted(state, generation, _names(lasting))]

        return self._aborting(system, doomed, spent)

    def _aborting(
        self,
        system: Committer,
        doomed: Callable[[Sequence[InDoubt]], list[HandleName]],
        spent: frozenset[HandleName] = NOTHING,
    ) -> Callable[[], None]:
        """Abort the handles in doubt that ``doomed`` selects; it can be repeated."""
        swept: list[str] = []

        def sweep() -> None:
            doubts = system.in_doubt(self._who.job)
            handles = doomed(doubts)
            self.left |= {doubt.handle: doubt for doubt in doubts if doubt.handle not in handles}
            names = (str(handle) for handle in handles if handle not in spent)
            # Noted before the abort: what a failed try has aborted is not in doubt at the next.
            swept.extend(name for name in names if name not in swept)
            if handles:
                system.abort(handles)
            if swept:
                self._observe(Swept(self._who.job, tuple(swept)))
            reached(CrashPoint.AFTER_SWEEP)

        return sweep


def _names(doubts: Sequence[InDoubt]) -> list[HandleName]:
    return [doubt.handle for doubt in doubts]


def _forget(system: Committer, state: JobState) -> None:
    system.forget(state)
    reached(CrashPoint.AFTER_FORGET)
