"""Drives the rules of ``protocol`` against a register and a committer: all I/O of the core is here.

Tasks call ``begin`` (start, plan, and a sweep where they raised the generation) and then write and
pre-commit; the commit process calls ``commit`` on the engine's checkpoint-complete notification, or
``abort``. They may be any number of processes: what they agree on is in the register only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from abs_core import births, protocol
from abs_core.cell import Cell, Rule
from abs_core.certificate import Certificate, CertificateStore, Origin
from abs_core.certifier import Certifier
from abs_core.contracts import CoCommitter, Committer, Composer, RegisterStore
from abs_core.crash import CrashPoint, reached
from abs_core.errors import NotPreparedError, ProtocolError, TargetError, UnavailableError
from abs_core.events import (
    Abandoned,
    Committed,
    Ended,
    Observer,
    Skipped,
    Started,
    SweepFailed,
    Swept,
    ignore,
)
from abs_core.model import (
    Committable,
    Decision,
    Drained,
    HandleName,
    JobState,
    Share,
    Wrote,
)
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_core.permission import Permission
from abs_core.protocol import Changed, Identity, Refused, Skip, Unchanged, Verdict, Write
from abs_core.rollforward import RollForward, present
from abs_core.rowdigest import RowDigest, is_row_digest

NOTHING_BEGUN = Origin()
"""Of an engine without certificates: a register that is not there is minted."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that the tasks of one epoch have reported.

    Args:
        shares: one for each task.
        fingerprint: digest of the epoch's input description; None where it cannot be read.
        gaps_allowed: whether epochs may be left out before this one.
        trusted: an epoch that is committed is taken for this one, whatever its rows are.
    """

    epoch: int
    shares: Sequence[Share]
    fingerprint: str | None
    gaps_allowed: bool = False
    trusted: bool = False

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.shares)

    @property
    def committables(self) -> list[Committable]:
        return [s.committable for s in self.shares if isinstance(s, Wrote) and s.committable]

    @property
    def digest(self) -> RowDigest | None:
        """Of all rows; None where a task made none."""
        made = [share.digest for share in self.shares if share.digest is not None]
        return reduce(add, made) if made and len(made) == len(self.shares) else None

    def known_by(self, state: JobState) -> tuple[str | None, int]:
        """Fingerprint and rows, of the kind in which this epoch is recorded if it is."""
        recorded = state.record(self.epoch)
        if recorded is not None and self.trusted:
            return recorded.fingerprint, recorded.rows
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        digest = self.digest
        if digest is not None and (by_rows or self.fingerprint is None):
            return digest.to_text(), self.rows
        return self.fingerprint, self.rows


class Coordinator:
    """One run of a job, as seen by one of its processes.

    Args:
        who: the run; ``who.target`` must be the sink's.
        store: holds the register.
        committer: acts on the sink's handles. A ``CoCommitter`` commits rows and register in one
            transaction; pass ``co_commit=False`` where ``store`` is not in the sink's own system.
        observe: is told of progress; must not raise.
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
        self._co_committer = committer if co_commit and isinstance(committer, CoCommitter) else None
        self._patience = patience
        self._observe = observe
        self._fence = fence
        self._clock = clock
        self._certifier = Certifier(
            who, self._cell, store, certificates, is_empty, patience, observe
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
            raise births.gone(self._who.job, why, self._cell.place)

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
            RegisterLostError: the register is not the one that the checkpoint tells of.
        """
        began = time.monotonic()
        # First what is decided already: it must end well whatever becomes of this epoch.
        state = self._forward.finish_open(self._expected(report) or self._mine())
        known = self._is_known(state, report)
        if not known:
            self._certifier.certify(state, report.epoch)
        given = frozenset(committable.handle for committable in report.committables)
        if self._co_committer is not None:
            state = self._co_commit(self._co_committer, report)
        else:
            state = self._decide(report if known else self._composed(report), known=known)
            reached(CrashPoint.AFTER_DECIDE)
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
        self._tidy(state, forget=True, spent=given)

    def abort(self, epoch: int) -> None:
        """Give the epoch up and abort what its tasks pre-committed, unless it is decided.

        Where the register cannot be reached nothing is aborted: the next start sweeps. Does nothing
        where the run has not started: an engine may fail before its first task gets there.
        """
        if not protocol.has_started(self._cell.load(), self._who):
            return
        state = self._abandoned(epoch)
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
                return births.missing(self._who, self._cell.place)
            return protocol.end(state, self._who)

        state = self._cell.change(rule)
        if state.run != protocol.ended(self._who).run:
            return False
        self._observe(Ended(self._who.job, state.generation))
        self._fence(state)
        self._sweep(state, protocol.ended(self._who))
        state = self._forward.finish_open(state)
        self._patience.retry(lambda: self._committer.forget(state))
        return True

    def sweep_ended(self) -> None:
        """Sweep once more after ``end``, for what late tasks have pre-committed meanwhile."""
        self._sweep(present(self._cell, self._who), protocol.ended(self._who))

    def roll_forward(self) -> JobState:
        """Commit what is decided and not finished, without an epoch of one's own.

        Raises:
            FencedError: a newer run has taken over, and does it.
            HandleLostError: as ``commit``.
        """
        return self._forward.finish_open(self._mine())

    def take_over(self) -> JobState:
        """Raise the generation without an epoch of one's own, finish what is decided, and sweep.

        Raises:
            FencedError: a newer run has taken over.
            HandleLostError: as ``commit``.
            TargetError: what is left cannot be finished or aborted now.
        """
        self._start(NOTHING_BEGUN, 0)
        state = self._forward.finish_open(self._mine())
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

    def sweep(self, state: JobState, spent: frozenset[HandleName] = frozenset()) -> None:
        """Abort every handle that no decision, present or future, can name (I4).

        Does nothing where a newer run has taken over (I5).

        Args:
            spent: what an epoch's commit was composed of: it has served, and is not told of.
        """
        self._sweep(state, self._who, spent)

    def _sweep(
        self, state: JobState, who: Identity, spent: frozenset[HandleName] = frozenset()
    ) -> None:
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

    def _start(self, origin: Origin, epoch: int) -> JobState:
        register = secrets.token_hex(8)

        def rule(state: JobState | None) -> Verdict:
            place = self._cell.place
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
        self._tidy(state, forget=False)
        return state

    def _tidy(
        self, state: JobState, *, forget: bool, spent: frozenset[HandleName] = frozenset()
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
            self.sweep(state, spent)
        except TargetError as error:
            self._observe(SweepFailed(self._who.job, str(error)))

    def _oldest(self, epoch: int) -> Decision:
        state = self._mine()
        if not state.open or state.open[0].epoch != epoch:
            oldest = f"epoch {state.open[0].epoch}" if state.open else "none"
            raise ProtocolError(
                f"The oldest decision that is not finished is {oldest}, not epoch {epoch}.",
                job=self._who.job,
                remedy="see `abs register show`.",
            )
        return state.open[0]

    def _is_known(self, state: JobState, report: Report) -> bool:
        """Whether the epoch is decided already, having checked that it is the same one."""
        planned = self._plan(state, report)
        if isinstance(planned, Write):
            if any(isinstance(share, Drained) for share in report.shares):
                raise ProtocolError(
                    "A task skipped this epoch, but the register does not hold it as committed.",
                    job=self._who.job,
                    epoch=report.epoch,
                    remedy="restart the query; if it comes again, the register was restored from "
                    "an old backup: restore the target and the checkpoint with it.",
                )
            return False
        refused = protocol.same_epoch(state, report.epoch, *report.known_by(state))
        if refused is not None:
            raise refused.error
        return True

    def _composed(self, report: Report) -> Report:
        """The report with the handles that the decision will name, where the sink composes them."""
        if not isinstance(self._committer, Composer):
            return report
        committer = self._committer
        try:
            made = self._patience.retry(lambda: committer.compose(report.committables))
        except NotPreparedError:
            self._mine()  # a successor may have swept it: then being fenced is the reason to name
            raise
        rows = sum(committable.rows for committable in made)
        if rows != report.rows:
            raise ProtocolError(
                f"The sink composed {rows} rows of the {report.rows} that were pre-committed.",
                job=self._who.job,
                epoch=report.epoch,
                remedy="this is a defect of the sink: please report it. Nothing is committed.",
            )
        if (digest := report.digest) is None:
            return replace(report, shares=[Wrote(c.rows, c) for c in made])
        # The composed rows are those of all tasks, and so is their digest.
        composed = [Wrote(c.rows, c, RowDigest(0)) for c in made]
        return replace(report, shares=[Wrote(0, None, digest), *composed])

    def _decide(self, report: Report, *, known: bool) -> JobState:
        """The state with the decision, which is in place in time for all handles to be committed.

        Where it could not be put in place in time the epoch is abandoned, as what was sent may still
        be on its way; if that one was faster, the decision stands.
        """
        deciding = self._deciding(protocol.decide, report)
        permission = None if known else self._permission(report)
        try:
            return self._cell.change(deciding, permission=permission)
        except NotPreparedError:
            assert permission is not None
            if permission.tries == 1:
                self._mine()  # nothing was sent. To be fenced would be the reason to name
                raise
            state = self._abandoned(report.epoch)
            if report.epoch in state.abandoned:
                raise
            return state

    def _permission(self, report: Report) -> Permission | None:
        """Before the decision: every handle must still be prepared, with time left to commit it.

        Returns:
            None where a successor has decided, and swept, while this run looked.
        """
        permission = Permission(
            self._who.job,
            report.epoch,
            self._committer,
            report.committables,
            self._patience,
            self._clock,
        )
        try:
            self._patience.retry(permission.inspect)
        except NotPreparedError:
            # A successor may have swept it: then being fenced is the reason to name.
            if isinstance(self._plan(present(self._cell, self._who), report), Skip):
                return None
            raise
        reached(CrashPoint.AFTER_INSPECT)
        return permission

    def _abandoned(self, epoch: int) -> JobState:
        """The state after the epoch was given up, unless it is decided."""
        state = self._cell.change(self._as_run(lambda s, g: protocol.abandon(s, g, epoch)))
        if epoch in state.abandoned:
            reached(CrashPoint.AFTER_ABANDON)
            self._observe(Abandoned(self._who.job, epoch))
        return state

    def _co_commit(self, committer: CoCommitter, report: Report) -> JobState:
        try:
            state = self._cell.change(
                self._deciding(protocol.co_commit, report),
                lambda expected, new: committer.co_commit(report.committables, expected, new),
            )
        except NotPreparedError:
            self._mine()  # a successor may have swept it: then being fenced is the reason to name
            raise
        reached(CrashPoint.AFTER_CO_COMMIT)
        return state

    def _deciding(self, rule: Callable[..., Verdict], report: Report) -> Rule:
        def deciding(state: JobState, generation: int) -> Verdict:
            fingerprint, rows = report.known_by(state)
            return rule(
                state,
                generation,
                report.epoch,
                report.committables,
                fingerprint=fingerprint,
                rows=rows,
                gaps_allowed=report.gaps_allowed,
            )

        return self._as_run(deciding)

    def _as_run(self, rule: Callable[[JobState, int], Verdict]) -> Rule:
        """A rule that only the run which holds the generation may apply (I5)."""

        def checked(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing(self._who, self._cell.place)
            generation = protocol.generation_of(state, self._who)
            return generation if isinstance(generation, Refused) else rule(state, generation)

        return checked

    def _plan(self, state: JobState, report: Report) -> Write | Skip:
        generation = protocol.generation_of(state, self._who)
        if isinstance(generation, Refused):
            raise generation.error
        planned = protocol.plan(state, generation, report.epoch, gaps_allowed=report.gaps_allowed)
        if isinstance(planned, Refused):
            raise planned.error
        return planned

    def _expected(self, report: Report) -> JobState | None:
        """The state that this process saw last, where by it the epoch is simply the next one.

        That saves a look. Nothing rests on it: the decision's compare-and-set tells whether it is
        still the present state, and if it is not the epoch is decided, or refused, by that one.
        """
        last = self._cell.last
        if last is None or last.open or any(isinstance(s, Drained) for s in report.shares):
            return None
        generation = protocol.generation_of(last, self._who)
        if isinstance(generation, Refused):
            return None
        planned = protocol.plan(last, generation, report.epoch, gaps_allowed=report.gaps_allowed)
        return last if isinstance(planned, Write) else None

    def _mine(self) -> JobState:
        """The present state, where this run still holds the generation."""
        state = present(self._cell, self._who)
        generation = protocol.generation_of(state, self._who)
        if isinstance(generation, Refused):
            raise generation.error
        return state
