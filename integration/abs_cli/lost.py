"""Handles that a decision names and that are gone: what a ``HandleLostError`` would say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abs_core.model import Committable, Decision, InDoubt, JobState, Outcome
from abs_core.rollforward import OFFSETS, committed_elsewhere

if TYPE_CHECKING:
    from abs_cli.state import State

_GONE = (Outcome.ABORTED, Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Lost:
    """A decided handle that the target does not hold any more, and has not committed.

    Args:
        doubt: as handles in doubt are listed.
        fate: for the column of that name.
        text: for people: what is lost, what of its epoch is committed, and the way out.
    """

    doubt: InDoubt
    fate: str
    text: str


def lost_handles(state: State, job: JobState) -> list[Lost]:
    """Those of the job's open decisions that are aborted, or that the target knows nothing of.

    Changes nothing. A decision that a run finishes meanwhile has none.

    Raises:
        TargetError: the target does not answer.
    """
    found: dict[Decision, list[Lost]] = {}
    for decision in job.open:
        seen = state.committer(job).inspect(decision.committables)
        outcomes = {c: seen[c.handle].outcome for c in decision.committables if c.handle in seen}
        others = [c for c in decision.committables if outcomes.get(c) is not Outcome.COMMITTED]
        rest = committed_elsewhere(decision, others)
        gone = [c for c in others if outcomes.get(c, Outcome.UNKNOWN) in _GONE]
        found[decision] = [
            _lost(job.job, decision, c, outcomes.get(c, Outcome.UNKNOWN), rest) for c in gone
        ]
    if not any(found.values()):
        return []
    # What is finished has no proof left that it was committed: look again which are open still.
    stored = state.register.load(job.job)
    open_still: Sequence[Decision] = () if stored is None else stored.state.open
    return [each for decision in found if decision in open_still for each in found[decision]]


def _lost(
    job: str, decision: Decision, committable: Committable, outcome: Outcome, rest: str
) -> Lost:
    way_out = f"`abs in-doubt accept-loss {job} {decision.epoch}`"
    sure = outcome is Outcome.ABORTED
    fate = f"lost: {way_out}" if sure else f"not found: `abs in-doubt commit {job}` tells more"
    where = dict(committable.extra).get(OFFSETS)
    held = f", sent to {where}" if where else ""
    happened = "was ended from outside" if sure else "is not known to the target"
    text = (
        f"{committable.rows} rows of epoch {decision.epoch} of job {job}{held}: handle "
        f"{committable.handle} was decided, and {happened}.{rest} What to do: write them again "
        f"from the source under another job name, then {way_out}."
    )
    doubt = InDoubt(committable.handle, None, f"{committable.rows} rows{held}.{rest}")
    return Lost(doubt, fate, text)
