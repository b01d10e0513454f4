"""Decided handles that no target lists: those that are gone, and those that only a commit ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abs_core.coordinator.rollforward import (
    OFFSETS,
    Loss,
    committed_elsewhere,
    rows_of,
    told,
)
from abs_core.errors import CorruptionError, UnknownProtocolError
from abs_core.model import Committable, Decision, HandleName, InDoubt, JobState, Outcome
from abs_core.strictjson import newer

if TYPE_CHECKING:
    from abs_cli.sites import Registers
    from abs_core.contracts import Committer

_GONE = (Outcome.ABORTED, Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Lost:
    """A decided handle that its target does not list, and has not (or perhaps not) committed.

    Args:
        doubt: as in the list of handles in doubt.
        fate: for the column of that name.
        text: for people: what is lost, what of its epoch is committed, and the remedy.
    """

    doubt: InDoubt
    fate: str
    text: str


def lost_handles(
    state: Registers, job: JobState, listed: Collection[HandleName] | None = None
) -> list[Lost]:
    """Handles of the job's open decisions that are aborted or unknown to the target.

    Includes handles of a protocol that this version does not know, as unknown, and damaged ones; and
    those that are prepared but not listed: a table's completed files, which its log does not name yet.

    Args:
        listed: what the targets list as in doubt; None: such handles are left out.

    Empty for a decision that a run finishes meanwhile. Changes nothing. Raises TargetError if the
    target does not answer.
    """
    by_decision: dict[Decision, list[Lost]] = {}
    for decision in job.open:
        outcomes, unread = _outcomes(state.committer(job), decision)
        others = [c for c in decision.committables if outcomes.get(c) is not Outcome.COMMITTED]
        rest = committed_elsewhere(decision, others)
        by_decision[decision] = [
            _unread(job.job, decision, c, unread[c]) for c in others if c in unread
        ] + [
            _lost(job.job, decision, c, outcome, rest)
            for c in others
            if c not in unread and (outcome := outcomes.get(c, Outcome.UNKNOWN)) in _GONE
        ]
        by_decision[decision] += [
            _unlisted(job.job, decision, c)
            for c in others
            if listed is not None
            and outcomes.get(c) is Outcome.PREPARED
            and c.held_as not in listed
        ]
    if not any(by_decision.values()):
        return []
    # What is finished has no proof left that it was committed: look again which are open still.
    stored = state.register.load(job.job)
    open_still: Sequence[Decision] = () if stored is None else stored.state.open
    return [
        lost for decision in by_decision if decision in open_still for lost in by_decision[decision]
    ]


def _outcomes(
    committer: Committer, decision: Decision
) -> tuple[dict[Committable, Outcome], dict[Committable, tuple[str, str]]]:
    """The outcome of each handle; and of those that cannot be read, why, and what to do."""
    outcomes: dict[Committable, Outcome] = {}
    unread: dict[Committable, tuple[str, str]] = {}
    protocols = dict.fromkeys(c.protocol for c in decision.committables)
    shares = [
        [c for c in decision.committables if c.protocol == protocol] for protocol in protocols
    ]
    while shares:
        share = shares.pop()
        try:
            seen = committer.inspect(share)
        except UnknownProtocolError:
            for c in share:
                problem = f"protocol {c.protocol!r:.50} is not known to this version"
                unread[c] = problem, f"{newer(c.release)}."
        except CorruptionError as error:
            if len(share) == 1:
                unread[share[0]] = error.what.rstrip("."), error.remedy
            else:
                shares += [[c] for c in share]  # one is damaged: the others have an outcome
        else:
            outcomes |= {c: seen[c.handle].outcome for c in share if c.handle in seen}
    return outcomes, unread


def _unread(job: str, decision: Decision, committable: Committable, why: tuple[str, str]) -> Lost:
    """Listed without an outcome."""
    problem, remedy = why
    text = (
        f"{committable.rows} rows of epoch {decision.epoch} of job {job}: handle "
        f"{committable.handle} was decided, but {problem}. What to do: {remedy}"
    )
    doubt = InDoubt(committable.handle, None, f"{committable.rows} rows; {problem}")
    return Lost(doubt, f"unknown: {problem}", text)


def _unlisted(job: str, decision: Decision, committable: Committable) -> Lost:
    text = (
        f"{committable.rows} rows of epoch {decision.epoch} of job {job}: handle "
        f"{committable.handle} was decided, and is not committed. What to do: `abs in-doubt commit "
        f"{job}` commits it, or says why its target does not take it."
    )
    doubt = InDoubt(committable.handle, None, f"{committable.rows} rows")
    return Lost(doubt, "decided: will be committed", text)


def _lost(
    job: str, decision: Decision, committable: Committable, outcome: Outcome, rest: str
) -> Lost:
    way_out = f"`abs in-doubt accept-loss {job} {decision.epoch}`"
    sure = outcome is Outcome.ABORTED
    sentence, remedy = told([Loss(committable, outcome)], way_out)
    fate = f"lost: {way_out}" if sure else f"not found: `abs in-doubt commit {job}` says more"
    where = dict(committable.extra).get(OFFSETS)
    held = f", sent to {where}" if where else ""
    text = (
        f"{rows_of([committable])} of epoch {decision.epoch} of job {job}{held}: handle "
        f"{committable.handle} was decided. {sentence}{rest} What to do: {remedy}"
    )
    doubt = InDoubt(committable.handle, None, f"{rows_of([committable])}{held}.{rest}")
    return Lost(doubt, fate, text)
