"""The coordinator of one run: applies the rules of ``protocol`` to a register and a committer.

Tasks call ``begin`` (start, plan, and a sweep if they raised the generation), then write and
pre-commit. The commit process calls ``commit`` on the engine's checkpoint-complete notification, or
``abort``. Any number of processes may take part; they share state through the register only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

from abs_core import protocol
from abs_core.aborting import attempt_all
from abs_core.births import rules as births
from abs_core.births import targets
from abs_core.certificate import Certificate, CertificateStore, Origin
from abs_core.contracts import Committer, RegisterStore
from abs_core.coordinator._decider import Decider
from abs_core.coordinator._looking import Lookout
from abs_core.coordinator._report import Report, epoch_id, written
from abs_core.coordinator._sweeper import Sweeper
from abs_core.coordinator.cell import RegisterCell
from abs_core.coordinator.certifier import Certifier
from abs_core.coordinator.rollforward import Loss, RollForward
from abs_core.crash import CrashPoint, reached
from abs_core.errors import ProtocolError
from abs_core.events import (
    Committed,
    Decided,
    Ended,
    Observer,
    Skipped,
    Started,
    ignore,
)
from abs_core.lookback import LookedBack
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.parallel import in_turn, side_by_side
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_core.patience.waiting import retried
from abs_core.protocol import Changed, Refused, RunIdentity, Skip, Unchanged, Verdict, Write

NOTHING_BEGUN = Origin()
"""For an engine without certificates: a missing register is minted."""


class Coordinator:
    """One run of a job in one of its processes.

    Args:
        who: the run; ``who.target`` must be the sink's.
        store: holds the register.
        committer: the sink's. One that co-commits has rows and register in one transaction; pass
            ``co_commit=False`` if ``store`` is not in the sink's own system.
        observe: receives events, perhaps from several threads at once; must not raise.
        certificates: stores the job's birth certificate; None: not kept (batch writes, tests).
        is_empty: whether the target is empty; called before a register is minted.
        fence: called with the new state after this process has raised the generation.
        clock: in seconds; measures how long handles have left.
    """

    def __init__(
        self,
        who: RunIdentity,
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
        self._cell = RegisterCell(store, who.job, patience)
        self._committer = committer
        self._patience = patience
        self._observe = observe
        self._fence = fence
        self._certifier = Certifier(
            who, self._cell, store, certificates, is_empty, patience, observe
        )
        self._sweeper = Sweeper(who, committer, patience, observe)
        cell = self._cell
        self._lookout = Lookout(who, cell, committer, patience, observe)
        look_back = self._lookout.before_a_decision
        self._decider = Decider(
            who, cell, committer, patience, observe, look_back, co_commit, clock
        )
        self._forward = RollForward(who, cell, committer, patience, observe)
        self._retried = retried(who.job)

    def begin(
        self, epoch: int, *, gaps_allowed: bool = False, origin: Origin = NOTHING_BEGUN
    ) -> tuple[JobState, Write | Skip]:
        """Start the run if no task has, and plan ``epoch``.

        Args:
            origin: read from the engine's checkpoint before any task began.

        Raises:
            RegisterLostError: the register does not match the checkpoint or a target.
            TargetWentBackError: a target no longer has rows of finished epochs.
            FencedError: a newer run has taken over.
            IdentityError: the register belongs to another lineage or target.
            EpochGapError: an epoch before this one was never written.
            AbandonedError: this run has abandoned the epoch.
        """
        reached(CrashPoint.BEFORE_START)
        state = self._start(origin, epoch, looks_back=True)
        planned = protocol.plan(state, state.generation, epoch, gaps_allowed=gaps_allowed)
        if isinstance(planned, Refused):
            raise planned.error
        reached(CrashPoint.AFTER_PLAN)
        return state, planned

    def check_begun(self, certificate: Certificate) -> None:
        """Check a certificate that the engine stores with each of its epochs; call before ``begin``.

        Raises:
            RegisterLostError: the register does not match it; consent is not possible.
        """
        why = births.why_lost(self._cell.load(), self._who, Origin(certificate), 0)
        if why is not None:
            raise births.lost_error(self._who.job, why, self._cell.shown_place)

    def commit(self, report: Report) -> None:
        """Commit and finish the epoch, once every task has reported its share.

        After ``UnavailableError`` the epoch may be decided: a later run rolls it forward, or writes it
        again.

        Raises:
            FencedError: a newer run has taken over.
            ReplayMismatchError: a different epoch is already committed under this number.
            NotPreparedError: a handle is no longer prepared, or not for long enough to commit it;
                nothing is decided, restart.
            HandleLostError: a handle of a decision is aborted or unknown (I7).
            RegisterLostError: the register does not match the checkpoint, or this cannot be checked.
            TargetWentBackError: a target has lost rows of finished epochs; nothing is decided.
        """
        began = time.monotonic()
        # Open decisions first: they must be finished even if this epoch fails.
        state = self._forward.finish_open(
            self._decider.expected(report) or self._cell.mine(self._who)
        )
        is_known = self._decider.is_known(state, report)
        if not is_known:
            mine = partial(self._cell.mine, self._who)
            # Before the decision: until something is decided, a lost register costs nothing.
            self._certifier.certify(mine, report.epoch, gaps_allowed=report.gaps_allowed)
        handles = frozenset(committable.handle for committable in report.committables)
        state = self._decider.decide(report, is_known=is_known)
        decided = time.monotonic()
        if not is_known:
            # Of a co-commit no decision is left open; then it is the report that was decided.
            decision = state.decision(report.epoch)
            named = sorted(str(handle) for handle in (decision.handles if decision else handles))
            self._observe(Decided(self._who.job, report.epoch, state.generation, tuple(named)))
        state = self._forward.finish_open(state, present=report.epoch)
        times = [began, decided, time.monotonic()]
        noting = report.gaps_allowed and self._certifier.is_kept

        def finished() -> None:
            if noting:
                # Then the gap rule cannot detect a register that went back, so each epoch is recorded.
                self._certifier.note(state, report.epoch)
            times.append(time.monotonic())

        # Also after a replay: the previous run may have died between finish and here.
        tidy = partial(self._sweeper.tidy, state, forget=True, spent=handles, alone=report.alone)
        try:
            # The checkpoint and the target do not wait for each other.
            attempt_all([finished, tidy], side_by_side if noting else in_turn)
        finally:
            if len(times) == 4:  # what comes after does not make it less finished
                self._tell(report, state, times, is_known=is_known)

    def _tell(self, report: Report, state: JobState, times: list[float], *, is_known: bool) -> None:
        """Tell observers: ``times`` are those of begin, decision, finish and the certificate's note."""
        job, epoch, rows = self._who.job, report.epoch, report.rows
        if is_known:
            self._observe(Skipped(job, epoch, rows))
            return
        began, decided, finished, noted = times
        effort, record, left = report.effort, state.record(epoch), self._sweeper.left.values()
        before, self._retried = self._retried, retried(job)
        ages = [doubt.age_seconds for doubt in left if doubt.age_seconds is not None]
        self._observe(
            Committed(
                job,
                epoch,
                rows,
                len(report.committables),
                noted - began,
                dead=sum(count.dead for count in record.dead) if record else 0,
                bytes=effort.bytes,
                write_seconds=effort.write_seconds,
                pre_commit_seconds=effort.pre_commit_seconds,
                decide_seconds=decided - began,
                commit_seconds=finished - decided,
                retries=effort.retries + self._retried[0] - before[0],
                waited_seconds=effort.waited_seconds + self._retried[1] - before[1],
                in_doubt=len(left),
                oldest_seconds=max(ages, default=None),
                frontier=state.frontier,
                targets=written(state, epoch, effort),
                id=epoch_id(state, state.lineage, epoch),
                read=effort.read,
            )
        )

    def abort(self, epoch: int) -> None:
        """Abandon the epoch and abort its tasks' handles, unless it is decided.

        Aborts nothing if the register cannot be reached (the next start sweeps), or if the run has not
        started.
        """
        if not protocol.has_started(self._cell.load(), self._who):
            return
        state = self._decider.abandoned(epoch)
        # Only with the abandon stored: it makes a decision that is still on its way fail (I4).
        if epoch in state.abandoned:
            self.sweep(state)

    def end(self) -> bool:
        """End this run: commit its decisions and abort its other handles; whether it had started.

        If a newer run has taken over, this aborts only what tasks of superseded runs have pre-committed
        since: the newer run sweeps again only with its next epoch. Tasks may still be running:
        ``sweep_ended``, or the next epoch or start, sweeps their later pre-commits.

        Raises:
            TargetError: the outcome is unknown; the next start does it.
            HandleLostError: as ``commit``; all other handles are swept.
        """
        if not protocol.has_started(self._cell.load(), self._who):
            return False

        def rule(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing_verdict(self._who, self._cell.shown_place)
            return protocol.end(state, self._who)

        # The generation first: it kills decisions that are on their way, and fences late tasks.
        state = self._cell.change(rule)
        mine = state.run == protocol.ended(self._who).run
        if mine:
            self._observe(Ended(self._who.job, state.generation))
            self._fence(state)
        self._sweeper.sweep_superseded(state)
        if mine:
            state = self._forward.finish_open(state)
            self._patience.retry(lambda: self._committer.forget(state))
        return True

    def sweep_ended(self) -> None:
        """Sweep again after ``end``, for pre-commits of late tasks."""
        self._sweeper.sweep_superseded(self._cell.present(self._who))

    def roll_forward(self) -> JobState:
        """Commit and finish all open decisions.

        Raises:
            FencedError: a newer run has taken over, and rolls them forward.
            HandleLostError: as ``commit``.
        """
        return self._forward.finish_open(self._cell.mine(self._who))

    def check_leads(self) -> None:
        """Raise FencedError if a newer run has taken over."""
        self._cell.mine(self._who)

    def take_over(self, seen: JobState) -> JobState:
        """Raise the generation, finish all open decisions, and sweep; for a run that writes no epoch.

        Args:
            seen: the register's state, as the caller has loaded it before. The present state may be a
                later one, but it must be of the same register.

        Raises:
            RegisterLostError: the register is gone since then, or another one is in its place.
            FencedError: a newer run has taken over.
            HandleLostError: as ``commit``.
            TargetError: some handles cannot be committed or aborted now.
        """
        # Nothing is minted in the place of a register that somebody else has renamed or deleted.
        self._start(Origin(births.certify(seen, self._cell.shown_place, 0)), 0)
        self._forward.finish_open(self._cell.mine(self._who))
        state = self._cell.mine(self._who)  # what it finished last may be a newer run's
        self._committer.forget(state)
        self.sweep(state)
        return state

    def lost(self, epoch: int) -> tuple[Loss, ...]:
        """Commit what is possible of the oldest decision; return what is lost, or refused (I7).

        Raises:
            ProtocolError: the oldest open decision is not on this epoch.
        """
        return self._forward.lost(self._oldest(epoch))

    def accept_loss(self, epoch: int, consented: Sequence[Committable]) -> JobState:
        """Finish the oldest decision without these handles, once nothing can commit them later.

        The only way past a HandleLostError, and past a target that refuses for good. For a person who
        has seen what is lost; no engine may call it.

        Raises:
            ProtocolError: the lost handles are not those consented to, a loss is not final, or another
                process has finished the epoch; nothing is recorded.
            TargetError: a loss cannot be made final; nothing is recorded.
        """
        return self._forward.accept_loss(self._oldest(epoch), consented)

    def sweep(self, state: JobState) -> None:
        """Abort every handle that no decision, present or future, can name (I4).

        Does nothing if a newer run has taken over (I5).
        """
        self._sweeper.sweep(state)

    def discard(self, handles: Sequence[HandleName]) -> None:
        """Abort handles of this run's undecided epochs that no report will ever name.

        Only for an engine in which one process makes all reports, so that no decision can name these
        handles (I4). Handles that cannot be aborted are swept when their epoch is finished.

        Raises:
            FencedError: a newer run has taken over, and sweeps them.
        """
        self._sweeper.discard(self._cell.mine(self._who), handles)

    def _start(self, origin: Origin, epoch: int, *, looks_back: bool = False) -> JobState:
        # Once per start, not per try: after a lost reply the id shows who has minted it.
        register = secrets.token_hex(8)

        def rule(state: JobState | None) -> Verdict:
            place = self._cell.shown_place
            return births.start(state, self._who, register, origin, epoch, place)

        before = self._cell.load()
        verdict = rule(before)
        if isinstance(verdict, Unchanged):
            return verdict.state  # the common case, in one read: another task has started the run
        looks: Sequence[LookedBack] = ()
        if before is None and isinstance(verdict, Changed):
            self._certifier.look_around(epoch)
            looks = self._lookout.for_lost(origin, epoch)
        elif looks_back:
            # Before anything is swept: a restored target may hold committed handles as prepared again.
            looks = self._lookout.at_start(before, rule, epoch)
        state = self._cell.change(lambda state: targets.consented(state, rule(state), looks))
        reached(CrashPoint.AFTER_START)
        minted = state.register == register or state.generation == 1
        # Another task of this run may have been first, and reports it. A new register's id shows who
        # minted it. After a lost reply nothing shows who raised the generation: then both report it.
        if self._cell.changed and (not minted or state.register == register):
            self._observe(Started(self._who.job, state.generation, minted))
        self._fence(state)
        self._sweeper.tidy(state, forget=False)
        return state

    def _oldest(self, epoch: int) -> Decision:
        state = self._cell.mine(self._who)
        if not state.open or state.open[0].epoch != epoch:
            oldest = f"epoch {state.open[0].epoch}" if state.open else "none"
            finished = state.frontier is not None and epoch <= state.frontier
            already = f" Epoch {epoch} is finished already." if finished else ""
            raise ProtocolError(
                f"The oldest decision that is not finished is {oldest}, not epoch {epoch}.{already}",
                job=self._who.job,
                remedy="see `abs register show`.",
            )
        return state.open[0]
