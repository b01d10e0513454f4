"""Rolls open decisions forward: commits their handles, checks the outcomes, and finishes them.

Any run may do this at any time, also several at once: a decision is never revoked (I2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.contracts import Committer
from abs_core.coordinator.cell import Cell
from abs_core.crash import CrashPoint, reached
from abs_core.errors import HandleLostError, ProtocolError, UnavailableError
from abs_core.events import Observer, RolledForward
from abs_core.model import Committable, Decision, HandleName, JobState, Outcome
from abs_core.patience import Patience
from abs_core.protocol import Identity, Verdict

OFFSETS = "offsets"
"""Key in a committable's ``extra``: position of its rows in the target, for display."""

_SHOWN = 20


@dataclass(slots=True)
class RollForward:
    """Rolls forward for one run of a job."""

    _who: Identity
    _cell: Cell
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
        """
        while state.open:
            decision = state.open[0]
            self._commit(decision)
            reached(CrashPoint.AFTER_COMMIT)
            state = self._finish(decision)
            reached(CrashPoint.AFTER_FINISH)
            if decision.epoch != present:
                handles = len(decision.committables)
                self._observe(RolledForward(self._who.job, decision.epoch, handles))
        return state

    def _finish(self, decision: Decision) -> JobState:
        def rule(state: JobState | None) -> Verdict:
            if state is None:
                return births.missing(self._who, self._cell.shown_place)
            return protocol.finish(state, decision)

        return self._cell.change(rule)

    def lost(self, decision: Decision) -> tuple[Committable, ...]:
        """Commit what is possible of the decision; return the aborted or unknown committables."""
        outcomes = self._patience.retry(lambda: self._outcomes(decision))
        lost = tuple(
            c for c in decision.committables if outcomes[c.handle] is not Outcome.COMMITTED
        )
        # Another coordinator may have finished it and deleted the proof: then nothing is lost.
        return lost if lost and present(self._cell, self._who).is_open(decision) else ()

    def accept_loss(self, decision: Decision, consented: Sequence[Committable]) -> JobState:
        """Finish the decision although ``consented`` are lost; see ``Coordinator.accept_loss``."""
        lost = self.lost(decision)
        if set(lost) != set(consented):
            raise ProtocolError(
                f"{len(lost)} handles of the decision are lost, but the consent names "
                f"{len(consented)}, or other ones.",
                job=self._who.job,
                epoch=decision.epoch,
                remedy="list the lost handles again, and consent to those.",
            )
        return self._finish(decision)

    def _commit(self, decision: Decision) -> None:
        lost = self.lost(decision)
        if not lost:
            return
        raise HandleLostError(
            f"{len(lost)} of {len(decision.committables)} handles of a decided epoch are not "
            "committed, and will not be. Something outside this job ended them; the first is named."
            f"{committed_elsewhere(decision, lost)}",
            job=self._who.job,
            epoch=decision.epoch,
            handle=str(lost[0].handle),
            remedy="the rows of those handles are not in the target: write them again from the "
            f"source under another job name, then `abs in-doubt accept-loss {self._who.job} "
            f"{decision.epoch}` lists what is lost and lets the job go on.",
        )

    def _outcomes(self, decision: Decision) -> dict[HandleName, Outcome]:
        """The outcome of every handle of the decision; unknown where the committer gave none."""
        found = self._committer.commit(decision.committables)
        outcomes = {h: found.get(h, Outcome.UNKNOWN) for h in decision.handles}
        waiting = [h for h, outcome in outcomes.items() if outcome is Outcome.PREPARED]
        if waiting:
            raise UnavailableError(
                f"{len(waiting)} handles are still prepared after their commit.",
                job=self._who.job,
                epoch=decision.epoch,
                handle=str(min(waiting)),
            )
        return outcomes


def committed_elsewhere(decision: Decision, lost: Sequence[Committable]) -> str:
    """Position of the epoch's other rows in the target, for sinks that report it (``OFFSETS``)."""
    kept = [c for c in decision.committables if c not in lost]
    places = [places for c in kept if (places := dict(c.extra).get(OFFSETS))]
    if not places:
        return ""
    shown = "; ".join(places[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more handles" if len(places) > _SHOWN else ""
    return f" Committed of the same epoch: {shown}{more}."


def present(cell: Cell, who: Identity) -> JobState:
    """The register's present state.

    Raises:
        RegisterLostError: it is missing, although this run has started.
    """
    state = cell.load()
    if state is None:
        raise births.missing(who, cell.shown_place).error
    return state
