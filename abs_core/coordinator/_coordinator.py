"""Drives the rules of ``protocol`` against a register and a committer: all I/O of the core is here.

Tasks call ``begin`` (start, plan, and a sweep where they raised the generation) and then write and
pre-commit; the commit process calls ``commit`` on the engine's checkpoint-complete notification, or
``abort``. They may be any number of processes: what they agree on is in the register only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births.certificate import Certificate, CertificateStore, Origin
from abs_core.births.certifier import Certifier
from abs_core.contracts import Committer, RegisterStore
from abs_core.coordinator._decider import Decider
from abs_core.coordinator._report import Report
from abs_core.coordinator._sweeper import NOTHING, Sweeper
from abs_core.coordinator.cell import Cell
from abs_core.coordinator.rollforward import RollForward, present
from abs_core.crash import CrashPoint, reached
from abs_core.errors import ProtocolError
from abs_core.events import Committed, Ended, Observer, Skipped, Started, ignore
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_core.protocol import Changed, Identity, Refused, Skip, Unchanged, Verdict, Write

__all__ = ["NOTHING_BEGUN", "Coordinator", "Report"]

NOTHING_BEGUN = Origin()
"""Of an engine without certificates: a register that is not there is minted."""


class Coordinator:
    """One run of a job, as seen by one of its processes.

    Args:
        who: the run; ``who.target`` must be the sink's.
        store: holds the register.
        committer: acts on the sink's handles. A ``CoCommitter`` commits rows and register in one
            transaction; pass ``co_commit=False`` where ``store`` is not in the sink's own system.
        observe: is told of progress, perhaps by several threads at once; must not raise.
        certificates: where the job's birth certificate is kept; None: nowhere (batch writes, tests).
        is_empty: whether the target holds nothing yet; asked where a register is to be minted.
        fence: called with the new state when this process has just raised the generation.
        clock: seconds; by it handles that expire are decided in time, or not at all.
    """

    def __init__(
        self,
        who: Identity,
        store: RegisterStore,
        committer: Committer,
        *,
        co_commit: bool = True,
        patience: Patience = DEFAULT_PATIENCE,
        observe: Observer = ignore,
        certificates: CertificateStore | None = None,
        is_empty: Callable[[], bool] = lambda: False,
        fence: Callable[[JobState], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._who = who
        self._cell = Cell(store, who.job, patience)
        self._committer = committer
        self._patience = patience
        self._observe = observe
        self._fence = fence
        self._certifier = Certifier(
            who, self._cell, store, certificates, is_empty, patience, observe
        )
        self._sweeper = Sweeper(who, committer, patience, observe)
        self._decider = Decider(
            who, self._cell, committer, patience, observe, co_commit=co_commit, clock=clock
        )
        self._forward = RollForward(who, self._cell, committer, patience, observe)

    def begin(
        self, epoch: int, *, gaps_allowed: bool = False, origin: Origin = NOTHING_BEGUN
    ) -> tuple[JobState, Write | Skip]:
        """Start the run where it has not started yet, and say what to do with ``epoch``.

        Args:
            origin: what the engine's checkpoint told before any task began.

        Raises:
            RegisterLostError: the register is not the one that the checkpoint tells of.
            FencedError: a newer run has taken over.
            IdentityError: the register is another lineage's or another target's.
            EpochGapError: an epoch before this one was never written.
            AbandonedError: this run has given the epoch up.
        """
        reached(CrashPoint.BEFORE_START)
        state = self._start(origin, epoch)
        planned = protocol.plan(state, state.generation, epoch, gaps_allowed=gaps_allowed)
        if isinstance(planned, Refused):
            raise planned.error
        reached(CrashPoint.AFTER_PLAN)
        return state, planned

    def check_begun(self, certificate: Certificate) -> None:
        """Before ``begin``, where the engine keeps what a certificate says with each epoch of its own.

        Raises:
            RegisterLostError: the register is not the one that it tells of. There is no consent.
        """
        why = births.lost(self._cell.load(), self._who, Origin(certificate), 0)
        if why is not None:
            raise births.gone(self._who.job, why, self._cell.shown_place)

    def commit(self, report: Report) -> None:
        """Commit the epoch: every task of it has reported its share.

        When it returns, the epoch is finished. When it raises ``UnavailableError`` the epoch may be
        decided: a later run rolls it forward, or writes it again.

        Raises:
            FencedError: a newer run has taken over.
            ReplayMismatchError: the epoch is committed already, and was another one then.
            NotPreparedError: a handle is not prepared any more, or would not be for long enough to
                commit it; nothing is decided, restart.
            HandleLostError: a handle of a decision is aborted or unknown (I7).
            RegisterLostError: the register is not the one that the checkpoint tells of, or nothing
                tells whether it is.
        """
        began = time.monotonic()
        # First what is decided already: it must end well whatever becomes of this epoch.
        state = self._forward.finish_open(self._decider.expected(report) or self._decider.mine())
        known = self._decider.is_known(state, report)
        if not known:
            self._certifier.certify(state, report.epoch, gaps_allowed=report.gaps_allowed)
        given = frozenset(committable.handle for committable in report.committables)
        state = self._decider.decide(report, known=known)
        state = self._forward.finish_open(state, present=report.epoch)
        if report.gaps_allowed:
            # The gap rule does not tell a register that went back then: each epoch is noted.
            self._certifier.note(state, report.epoch)
        job, epoch, rows = self._who.job, report.epoch, report.rows
        if known:
            self._observe(Skipped(job, epoch, rows))
        else:
            seconds = time.monotonic() - began
            self._observe(Committed(job, epoch, rows, len(report.committables), seconds))
        # Also after a replay: the run before may have died between finish and here.
        self._sweeper.tidy(state, forget=True, spent=given)

    def abort(self, epoch: int) -> None:
        """Give the epoch up and abort what its tasks pre-committed, unless it is decided.

        Where the register cannot be reached nothing is aborted: the next start sweeps. Does nothing
        where the run has not started: an engine may fail before its first task gets there.
        """
        if not protocol.has_started(self._cell.load(), self._who):
            return
        state = self._decider.abandoned(epoch)
        if epoch in state.abandoned:
            self.sweep(state)

    def end(self) -> bool:
        """Give this run up, as its engine stops: all that it has open is committed or aborted.

        Does nothing where the run has not started, or a newer one has taken over. Its tasks may still
        be running: what they pre-commit from now on is swept by ``sweep_ended``, or the next start.

        Returns:
            whether it was ended.

        Raises:
            TargetError: it is not known whether; the next start does it.
            HandleLostError: as ``commit``; what could be swept is.
        """
        if not protocol.has_started(self._cell.load(), self._who):
            return False

        def rule(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing(self._who, self._cell.shown_place)
            return protocol.end(state, self._who)

        state = self._cell.change(rule)
        if state.run != protocol.ended(self._who).run:
            return False
        self._observe(Ended(self._who.job, state.generation))
        self._fence(state)
        self._sweeper.sweep(state, protocol.ended(self._who))
        state = self._forward.finish_open(state)
        self._patience.retry(lambda: self._committer.forget(state))
        return True

    def sweep_ended(self) -> None:
        """Sweep once more after ``end``, for what late tasks have pre-committed meanwhile."""
        self._sweeper.sweep(present(self._cell, self._who), protocol.ended(self._who))

    def roll_forward(self) -> JobState:
        """Commit what is decided and not finished, without an epoch of one's own.

        Raises:
            FencedError: a newer run has taken over, and does it.
            HandleLostError: as ``commit``.
        """
        return self._forward.finish_open(self._decider.mine())

    def take_over(self) -> JobState:
        """Raise the generation without an epoch of one's own, finish what is decided, and sweep.

        Raises:
            FencedError: a newer run has taken over.
            HandleLostError: as ``commit``.
            TargetError: what is left cannot be finished or aborted now.
        """
        self._start(NOTHING_BEGUN, 0)
        state = self._forward.finish_open(self._decider.mine())
        self._committer.forget(state)
        self.sweep(state)
        return state

    def lost(self, epoch: int) -> tuple[Committable, ...]:
        """Commit what can be of the oldest decision; what of it is lost for good (I7).

        Raises:
            ProtocolError: the oldest open decision is not on this epoch.
        """
        return self._forward.lost(self._oldest(epoch))

    def accept_loss(self, epoch: int, consented: Sequence[Committable]) -> JobState:
        """Finish the oldest decision without these handles: the one way past a HandleLostError.

        Only a person may ask for it, having seen what is lost; no engine calls it.

        Raises:
            ProtocolError: other handles are lost than were consented to; nothing is changed.
        """
        return self._forward.accept_loss(self._oldest(epoch), consented)

    def sweep(self, state: JobState, spent: frozenset[HandleName] = NOTHING) -> None:
        """Abort every handle that no decision, present or future, can name (I4).

        Does nothing where a newer run has taken over (I5).

        Args:
            spent: what an epoch's commit was composed of: it has served, and is not told of.
        """
        self._sweeper.sweep(state, self._who, spent)

    def discard(self, handles: Sequence[HandleName]) -> None:
        """Abort handles of this run, of epochs that are not decided, which no report will ever name.

        For an engine whose one process makes all reports: nobody else knows these handles, so no
        decision can name them (I4). What cannot be aborted is swept when its epoch is finished.

        Raises:
            FencedError: a newer run has taken over, and sweeps them.
        """
        self._sweeper.discard(self._decider.mine(), self._who, handles)

    def _start(self, origin: Origin, epoch: int) -> JobState:
        register = secrets.token_hex(8)

        def rule(state: JobState | None) -> Verdict:
            place = self._cell.shown_place
            return births.start(state, self._who, register, origin, epoch, place)

        before = self._cell.load()
        verdict = rule(before)
        if isinstance(verdict, Unchanged):
            return verdict.state  # the common case, in one look: another task has started the run
        if before is None and isinstance(verdict, Changed):
            self._certifier.look_around(epoch)
        state = self._cell.change(rule)
        reached(CrashPoint.AFTER_START)
        minted = state.register == register or state.generation == 1
        # Another task of this run may have been first, and tells. Of a new register its id says whose
        # it is. Of one that was taken over nothing does, after a lost reply: then both tell.
        if not minted or state.register == register:
            self._observe(Started(self._who.job, state.generation, minted))
        self._fence(state)
        self._sweeper.tidy(state, forget=False)
        return state

    def _oldest(self, epoch: int) -> Decision:
        state = self._decider.mine()
        if not state.open or state.open[0].epoch != epoch:
            oldest = f"epoch {state.open[0].epoch}" if state.open else "none"
            raise ProtocolError(
                f"The oldest decision that is not finished is {oldest}, not epoch {epoch}.",
                job=self._who.job,
                remedy="see `abs register show`.",
            )
        return state.open[0]
