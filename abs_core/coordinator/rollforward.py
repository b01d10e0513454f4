"""Rolls open decisions forward: commits their handles, checks the outcomes, and finishes them.

Any run may do this at any time, also several at once: a decision is never revoked (I2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.contracts import Committer
from abs_core.coordinator._report import decided, epoch_id
from abs_core.coordinator.cell import RegisterCell
from abs_core.crash import CrashPoint, reached
from abs_core.deadletters import counts_of
from abs_core.errors import (
    AbsError,
    CorruptionError,
    DataError,
    HandleLostError,
    HungError,
    ProtocolError,
    RefusedError,
    TargetError,
    UnavailableError,
)
from abs_core.events import NotCompared, Observer, RolledForward
from abs_core.model import (
    MAX_FULL_MARK,
    MAX_MARK,
    Committable,
    Decision,
    HandleName,
    JobState,
    Outcome,
    Shown,
)
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, Verdict

OFFSETS = "offsets"
"""Key in a committable's ``extra``: position of its rows in the target, for display."""

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """A decided handle that is not committed.

    Args:
        refusal: why its target does not commit it; None if it is prepared no longer.
    """

    committable: Committable
    outcome: Outcome
    refusal: AbsError | None = None


@dataclass(slots=True)
class RollForward:
    """Rolls forward for one run of a job."""

    _who: RunIdentity
    _cell: RegisterCell
    _committer: Committer
    _patience: Patience
    _observe: Observer

    def finish_open(self, state: JobState, present: int | None = None) -> JobState:
        """Commit and finish all open decisions, oldest first; return the new state.

        The new state may be a newer run's.

        Args:
            state: the register's state, not older than this run's last change of it.
            present: the epoch being committed; others are reported as rolled forward.

        Raises:
            HandleLostError: a handle of a decision is aborted or unknown (I7).
            RefusedError: a target does not take what is decided.
        """
        while state.open:
            # The oldest first: a later epoch's mark in a table counts for the epochs before it.
            decision = state.open[0]
            self._commit(decision)
            reached(CrashPoint.AFTER_COMMIT)
            shown = shown_by(self._committer, decision.committables, self._observe)
            state = self._finish(decision, shown)
            reached(CrashPoint.AFTER_FINISH)
            if decision.epoch != present:
                self._observe(
                    RolledForward(
                        self._who.job,
                        decision.epoch,
                        len(decision.committables),
                        decided(state, decision),
                        epoch_id(state, decision.lineage, decision.epoch),
                        here=self._cell.changed,
                    )
                )
        return state

    def _finish(self, decision: Decision, shown: Sequence[Shown] = ()) -> JobState:
        def rule(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing_verdict(self._who, self._cell.shown_place)
            return protocol.finish(state, decision, shown, now_ms())

        return self._cell.change(rule)

    def lost(self, decision: Decision) -> tuple[Loss, ...]:
        """Commit what is possible of the decision; return the rest.

        Where a target refuses, each handle is tried alone, or with those that go with it.
        """
        try:
            losses = self._tried(decision, decision.committables)
        except AbsError as error:
            if not _refuses(error):
                raise
            units: dict[str, list[Committable]] = {}
            for committable in decision.committables:
                units.setdefault(committable.together, []).append(committable)
            losses = [loss for unit in units.values() for loss in self._alone(decision, unit)]
        # Another coordinator may have finished it and deleted the proof: then nothing is lost.
        still = losses and self._cell.present(self._who).is_open(decision)
        return tuple(losses) if still else ()

    def accept_loss(self, decision: Decision, consented: Sequence[Committable]) -> JobState:
        """Finish the decision although ``consented`` are lost; see ``Coordinator.accept_loss``."""
        lost = [loss.committable for loss in self.lost(decision)]
        if not lost and not self._cell.present(self._who).is_open(decision):
            raise self._overtaken(decision)
        if set(lost) != set(consented):
            raise ProtocolError(
                f"{len(lost)} handles of the decision are lost, but the consent names "
                f"{len(consented)}, or other ones.",
                job=self._who.job,
                epoch=decision.epoch,
                remedy="list the lost handles again, and consent to those.",
            )
        # Recorded first, a commit that is still under way would bring back what is noted as lost.
        self._patience.retry(lambda: self._committer.forsake(lost))
        seen = self._patience.retry(lambda: self._committer.inspect(lost))
        for committable in lost:
            if seen[committable.handle].outcome is Outcome.PREPARED:
                raise ProtocolError(
                    "A handle that was given up is still prepared; nothing is recorded.",
                    handle=committable.handle,
                    remedy="accept the loss again; if that does not help, this is a defect of the "
                    "sink: please report it.",
                )
        state = self._finish(decision)
        if not self._cell.changed:  # then what was lost, if anything, is what that other one says
            raise self._overtaken(decision)
        return state

    def _overtaken(self, decision: Decision) -> ProtocolError:
        return ProtocolError(
            f"Somebody else has finished epoch {decision.epoch} in the meantime: a run of the job, or "
            "another command. This consent is not recorded.",
            job=self._who.job,
            epoch=decision.epoch,
            remedy="`abs audit` shows whether rows are missing; whoever accepted their loss was told "
            "which.",
        )

    def _commit(self, decision: Decision) -> None:
        """Commit all handles of the decision.

        Rows and dead letters are not counted again: they were before the decision (``check_held``,
        ``check_kept``), and a handle is committed as it was pre-committed, or not at all. No client
        can change a part of a prepared transaction, of a broker's open transaction, or of an upload
        whose parts and checksum its Complete names. Whatever is missing makes the whole handle one
        that is not committed (I7).
        """
        way_out = f"`abs in-doubt accept-loss {self._who.job} {decision.epoch}`"
        try:
            losses = self._tried(decision, decision.committables)
        except AbsError as error:
            if not _refuses(error):
                raise
            raise _stuck(error, self._who.job, decision.epoch, way_out) from error
        # Another coordinator may have finished it and deleted the proof: then nothing is lost.
        if not losses or not self._cell.present(self._who).is_open(decision):
            return
        lost = [loss.committable for loss in losses]
        outcome, remedy = told(losses, way_out)
        raise HandleLostError(
            f"{len(lost)} of {len(decision.committables)} handles of a decided epoch are not known to "
            f"be committed ({rows_of(lost)}); the first is named. "
            f"{outcome}{committed_elsewhere(decision, lost)}",
            job=self._who.job,
            epoch=decision.epoch,
            handle=str(lost[0].handle),
            remedy=remedy,
        )

    def _alone(self, decision: Decision, unit: Sequence[Committable]) -> Sequence[Loss]:
        try:
            return self._tried(decision, unit)
        except AbsError as error:
            if not _refuses(error):
                raise
            return [Loss(committable, Outcome.PREPARED, error) for committable in unit]

    def _tried(self, decision: Decision, committables: Sequence[Committable]) -> list[Loss]:
        """Commit these of the decision; those that are not, as aborted or unknown."""
        outcomes = self._patience.retry(lambda: self._outcomes(decision, committables))
        unsure = [c for c in committables if outcomes[c.handle] is Outcome.UNKNOWN]
        if unsure:  # an answer may have been cut short: look a second time
            outcomes |= self._patience.retry(lambda: self._outcomes(decision, unsure))
        pairs = ((c, outcomes[c.handle]) for c in committables)
        return [Loss(c, outcome) for c, outcome in pairs if outcome is not Outcome.COMMITTED]

    def _outcomes(
        self, decision: Decision, committables: Sequence[Committable]
    ) -> dict[HandleName, Outcome]:
        """The outcome of each handle; unknown where the committer gave none."""
        answers = self._committer.commit(committables)
        # A handle without an answer is never taken for a committed one (I7).
        outcomes = {c.handle: answers.get(c.handle, Outcome.UNKNOWN) for c in committables}
        waiting = [h for h, outcome in outcomes.items() if outcome is Outcome.PREPARED]
        if waiting:
            raise UnavailableError(
                f"{len(waiting)} handles are still prepared after their commit.",
                job=self._who.job,
                epoch=decision.epoch,
                handle=str(min(waiting)),
            )
        return outcomes


def now_ms() -> int:
    """The time, for ``Course``."""
    return time.time_ns() // 1_000_000


def shown_by(
    committer: Committer, committables: Sequence[Committable], observe: Observer
) -> tuple[Shown, ...]:
    """What the targets show now, for later starts: nothing that is committed depends on it."""
    if not committables:
        return ()
    try:
        shown = committer.shown(committables)
    except TargetError as error:
        name = committables[0].handle
        why = f"what it shows of epoch {name.epoch} is not recorded: {error}"
        observe(NotCompared(name.job, why))
        return ()
    fit = [mark for mark in shown if len(mark.mark) <= MAX_MARK]
    too_long = {mark.sink for mark in fit if len(mark.full) > MAX_FULL_MARK}
    return tuple(replace(mark, full="") if mark.sink in too_long else mark for mark in fit)


def _refuses(error: AbsError) -> bool:
    """Whether a target will not commit a decided handle, however often it is asked."""
    return isinstance(error, (DataError, TargetError)) and not (
        error.retryable or isinstance(error, HungError)
    )


def _stuck(error: AbsError, job: str, epoch: int, way_out: str) -> TargetError:
    damaged = isinstance(error, CorruptionError)
    mend = error.remedy.rstrip(".")
    tell = (
        mend
        if damaged
        else "the rows are tried again as they are at each start, so corrected input does not help. "
        f"Change the target so that it takes them ({mend}), and start the job again"
    )
    return (CorruptionError if damaged else RefusedError)(
        f"A target does not take what is decided: {error.what} The epoch stays decided, and is, or "
        "will be, in the job's other targets.",
        job=job,
        epoch=epoch,
        handle=error.handle,
        remedy=f"{tell}. If it never will: {way_out} shows what would be lost, and lets the job go on "
        "without it.",
    ).of(error.system)


def rows_of(committables: Sequence[Committable]) -> str:
    """How many rows these hold, dead letters among them."""
    dead = sum(count.dead for count in counts_of(committables))
    of_them = f", {dead} of them dead letters" if dead else ""
    return f"{sum(c.rows for c in committables)} rows{of_them}"


def told(losses: Sequence[Loss], way_out: str) -> tuple[str, str]:
    """What has become of these rows, and what to do about them; by outcome, as unknown is not lost."""
    unsure = [loss.committable for loss in losses if loss.outcome is Outcome.UNKNOWN]
    ended = len(losses) - len(unsure)
    sentences = [
        f"Something outside this job ended {ended} of them: their rows are not in the target."
    ]
    remedy = ["write rows that are not there again from the source under another job name"]
    if unsure:
        sent = "; ".join(at for c in unsure[:_SHOWN] if (at := dict(c.extra).get(OFFSETS)))
        where = f"at {sent}" if sent else "by the keys of the epoch's rows"
        seen = f"Of {len(unsure)} of them the target does not tell whether they were committed: "
        sentences.insert(0, f"{seen}their rows may be there.")
        remedy.insert(0, f"look {where} which are there: to write those again would double them")
    remedy += [f"then {way_out} lists these handles and lets the job go on."]
    return " ".join(sentences if ended else sentences[:1]), "; ".join(remedy)


def committed_elsewhere(decision: Decision, lost: Sequence[Committable]) -> str:
    """Position of the epoch's other rows in the target, for sinks that report it (``OFFSETS``)."""
    kept = [c for c in decision.committables if c not in lost]
    places = [places for c in kept if (places := dict(c.extra).get(OFFSETS))]
    if not places:
        return ""
    shown = "; ".join(places[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more handles" if len(places) > _SHOWN else ""
    return f" Committed of the same epoch: {shown}{more}."
