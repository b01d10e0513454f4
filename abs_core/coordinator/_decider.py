"""Decides an epoch: inspects its handles, and stores the decision before any of them can expire.

Only the run that holds the generation may decide (I5). ``rollforward`` commits the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.contracts import Committer
from abs_core.coordinator._report import Report
from abs_core.coordinator.cell import RegisterCell, Rule
from abs_core.coordinator.permission import Permission
from abs_core.coordinator.rollforward import now_ms, shown_by
from abs_core.crash import CrashPoint, reached
from abs_core.deadletters import MAX_REFUSALS, RowsRefused, check_kept, unsettled
from abs_core.errors import NotPreparedError, ProtocolError
from abs_core.events import Abandoned, Observer
from abs_core.model import Committable, Course, Drained, JobState, Wrote
from abs_core.patience import Patience
from abs_core.protocol import Refused, RunIdentity, Skip, Verdict, Write
from abs_core.rowdigest import RowDigest


@dataclass(slots=True)
class Decider:
    """For one run of a job.

    Args:
        look_back: called with what is decided next; see ``Lookout.before_a_decision``.
        at_once: whether a ``Committer`` that co-commits decides and commits at once.
        clock: in seconds; measures how long handles have left.
    """

    _who: RunIdentity
    _cell: RegisterCell
    _committer: Committer
    _patience: Patience
    _observe: Observer
    _look_back: Callable[[int, Sequence[Committable]], None]
    _at_once: bool
    _clock: Callable[[], float]

    def expected(self, report: Report) -> JobState | None:
        """The state that this process saw last, if the epoch is simply the next one by it.

        It saves a read of the register and may be out of date: the decision's compare-and-set then
        fails, and the present state is used.
        """
        last = self._cell.last
        if last is None or last.open or any(isinstance(s, Drained) for s in report.shares):
            return None
        generation = protocol.generation_of(last, self._who)
        if isinstance(generation, Refused):
            return None
        planned = protocol.plan(last, generation, report.epoch, gaps_allowed=report.gaps_allowed)
        return last if isinstance(planned, Write) else None

    def is_known(self, state: JobState, report: Report) -> bool:
        """Whether the epoch is already decided; checks that it is the same one."""
        planned = self._plan(state, report)
        if isinstance(planned, Write):
            if any(isinstance(share, Drained) for share in report.shares):
                raise ProtocolError(
                    "A task skipped this epoch, but the register does not hold it as committed.",
                    job=self._who.job,
                    epoch=report.epoch,
                    remedy="restart the query; if it happens again, the register was restored "
                    "from an old backup: restore the target and the checkpoint from the same "
                    "time.",
                )
            return False
        fingerprint, rows = report.known_by(state)
        refused = protocol.same_epoch(state, report.epoch, fingerprint, rows)
        if refused is not None:
            raise refused.error
        return True

    def decide(self, report: Report, *, is_known: bool) -> JobState:
        """Decide the epoch, and also finish it where the target co-commits; return the new state.

        Args:
            is_known: the epoch is already decided, and its decision stays.

        Raises:
            NotPreparedError: a handle is no longer prepared, or not for long enough; nothing is
                decided.
        """
        if self._at_once and self._committer.co_commits:
            return self._co_commit(report)
        state = self._put(report if is_known else self._composed(report), is_known=is_known)
        reached(CrashPoint.AFTER_DECIDE)
        return state

    def abandoned(self, epoch: int) -> JobState:
        """Abandon the epoch, unless it is decided; return the new state."""
        state = self._cell.change(self._as_run(lambda s, g: protocol.abandon(s, g, epoch)))
        if epoch in state.abandoned:
            reached(CrashPoint.AFTER_ABANDON)
            self._observe(Abandoned(self._who.job, epoch, state.generation))
        return state

    def _composed(self, report: Report) -> Report:
        """The report with composed handles, where the sink composes them."""
        if not self._committer.composes:
            return report
        committer = self._committer
        try:
            made = self._patience.retry(lambda: committer.compose(report.committables))
        except NotPreparedError:
            # A successor may have swept it: then being fenced is the reason to name.
            self._cell.mine(self._who)
            raise
        # Counted before the decision: after it, rows that a sink has left out would be lost.
        rows = sum(committable.rows for committable in made)
        if rows != report.rows:
            raise ProtocolError(
                f"The sink composed {rows} rows, but {report.rows} were pre-committed.",
                job=self._who.job,
                epoch=report.epoch,
                remedy="this is a defect of the sink: please report it. Nothing is committed.",
            )
        check_kept(report.committables, made)
        if (digest := report.digest) is None:
            return replace(report, shares=[Wrote(c.rows, c) for c in made])
        # The composed rows are those of all tasks, and so is their digest.
        composed = [Wrote(c.rows, c, RowDigest(0)) for c in made]
        return replace(report, shares=[Wrote(0, None, digest), *composed])

    def _put(self, report: Report, *, is_known: bool) -> JobState:
        """Store the decision before any handle can expire, and return the new state.

        If that fails in time, the epoch is abandoned, as a request may still be on its way; if the
        request takes effect first, the decision stays.
        """
        deciding = self._deciding(protocol.decide, report)
        permission = None if is_known else self._permission(report)
        try:
            return self._cell.change(deciding, permission=permission)
        except NotPreparedError:
            assert permission is not None
            if permission.tries == 1:
                self._cell.mine(self._who)  # nothing was sent; being fenced would be the reason
                raise
            state = self.abandoned(report.epoch)
            if report.epoch in state.abandoned:
                raise
            return state

    def _permission(self, report: Report) -> Permission | None:
        """Check that every handle is prepared, with enough time left to commit it.

        Returns:
            None if a successor decided and swept in the meantime.
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
            if isinstance(self._plan(self._cell.present(self._who), report), Skip):
                return None
            raise
        self._look_back(report.epoch, report.committables)
        reached(CrashPoint.AFTER_INSPECT)
        return permission

    def _co_commit(self, report: Report) -> JobState:
        self._look_back(report.epoch, report.committables)
        why = ""
        for _ in range(MAX_REFUSALS):
            try:
                return self._co_commit_once(report)
            except RowsRefused as refused:
                report, why = report.with_letters(refused.committables), refused.why
        raise unsettled(self._who.job, report.epoch, why)

    def _co_commit_once(self, report: Report) -> JobState:
        shown = shown_by(self._committer, report.committables, self._observe)
        rule = partial(protocol.co_commit, shown=shown)
        try:
            state = self._cell.change(
                self._deciding(rule, report),
                lambda expected, new: self._committer.co_commit(report.committables, expected, new),
            )
        except NotPreparedError:
            # A successor may have swept it: then being fenced is the reason to name.
            self._cell.mine(self._who)
            raise
        reached(CrashPoint.AFTER_CO_COMMIT)
        return state

    def _deciding(self, rule: Callable[..., Verdict], report: Report) -> Rule:
        def deciding(state: JobState, generation: int) -> Verdict:
            fingerprint, rows = report.known_by(state)
            course = Course(report.asked, now_ms())
            return rule(
                state,
                generation,
                report.epoch,
                report.committables,
                fingerprint=fingerprint,
                rows=rows,
                gaps_allowed=report.gaps_allowed,
                course=course,
            )

        return self._as_run(deciding)

    def _as_run(self, rule: Callable[[JobState, int], Verdict]) -> Rule:
        """Make a rule that fails unless this run holds the generation (I5)."""

        def checked(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing_verdict(self._who, self._cell.shown_place)
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
