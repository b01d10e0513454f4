"""The rules of the commit protocol, as pure functions. No I/O, no clock, no randomness.

Each rule takes a job's state and returns ``Changed`` (the new state, to be stored by compare-and-set),
``Unchanged`` (the state already satisfies the rule) or ``Refused`` (the error to raise). Rules are
idempotent: applied again to the state they led to, they return ``Unchanged``. So a caller whose reply
was lost loads the state and applies the rule again.

Invariants kept here: I2 a decision leaves the register only through ``finish``; I3 ``decide`` keeps
the first decision of an epoch, and the epochs of a lineage are decided in ascending order; I4
``sweepable`` and ``abandon`` never touch what a decision may name; I5 every rule but ``finish``
and ``superseded`` refuses a lower generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from abs_core import _verdicts, consent, deadletters, sinkmap
from abs_core._verdicts import Changed as Changed
from abs_core._verdicts import Refused as Refused
from abs_core._verdicts import RunIdentity as RunIdentity
from abs_core._verdicts import Unchanged as Unchanged
from abs_core._verdicts import Verdict as Verdict
from abs_core.errors import (
    DeadLettersError,
    EpochGapError,
    IdentityError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.lookback import recorded, remembered, sinks_of
from abs_core.model import (
    MAX_RECENT,
    MAX_SUPERSEDED,
    NO_EPOCH,
    Committable,
    Course,
    Decision,
    HandleName,
    JobState,
    Recent,
    Shown,
)

ENDED = "+ended"
"""Suffix of the name of a run that has ended itself."""


def start(state: JobState | None, who: RunIdentity, new_register: str, epoch: int = 0) -> Verdict:
    """A run takes over the job: it raises the generation, once.

    Args:
        new_register: the register id for a job that has no state yet.
        epoch: the run's first epoch; consent is valid for it only.
    """
    if state is None:
        first = JobState(
            register=new_register,
            job=who.job,
            target=who.target,
            lineage=who.lineage,
            generation=1,
            run=who.run,
            checkpoint=who.checkpoint,
            sinks=sinkmap.first(who.sinks),
        )
        return Changed(first)
    if who.run in state.superseded:
        return Refused(_verdicts.fenced(state, who.run))
    if state.moved_to is not None:
        return Refused(_verdicts.moved_away(state))
    mapped = sinkmap.assign(state, who.sinks) if who.sinks else state.sinks
    if isinstance(mapped, IdentityError):
        return Refused(mapped)
    # With named sinks the map identifies the target: adding or removing a sink is no other target.
    same_target = state.target == who.target or bool(who.sinks)
    same = state.lineage == who.lineage and same_target
    if not same and who.adopt != consent.to_adopt(state, who, epoch):
        return _another_identity(state, who, epoch)
    if not same_target and state.open:
        return Refused(_verdicts.open_elsewhere(state))
    if state.run == who.run:
        if not same:
            return _another_identity(state, who, epoch)
        if mapped != state.sinks:
            # Two callers share one run: each would take the other's epochs for its own.
            return Refused(_verdicts.other_sinks(state, [name for name, _ in who.sinks]))
        return Unchanged(state)
    superseded = (*state.superseded, state.run)[-MAX_SUPERSEDED:]
    raised = replace(
        state,
        generation=state.generation + 1,
        run=who.run,
        superseded=superseded,
        abandoned=(),
        target=who.target,
        checkpoint=who.checkpoint or state.checkpoint,
        sinks=mapped,
    )
    if state.lineage != who.lineage:
        # Epoch numbers start anew; open decisions of the old lineage keep theirs and are finished.
        raised = replace(raised, lineage=who.lineage, frontier=None, recent=(), older=())
    return Changed(raised)


def _another_identity(state: JobState, who: RunIdentity, epoch: int) -> Refused:
    return Refused(_verdicts.other_identity(state, who, consent.to_adopt(state, who, epoch)))


def generation_of(state: JobState, who: RunIdentity) -> int | Refused:
    """The generation that this run holds; refused where another run has taken over (I5)."""
    if state.run != who.run:
        return Refused(_verdicts.fenced(state, f"run {who.run}"))
    return state.generation


def end(state: JobState, who: RunIdentity) -> Verdict:
    """The run ends itself by raising the generation, so that its undecided handles may be aborted.

    The compare-and-set of this change invalidates a decision of the run that is still in flight, and
    fences its late tasks. Decisions in the register stay. ``Unchanged`` where another run holds the
    generation.
    """
    if state.run != who.run:
        return Unchanged(state)
    superseded = (*state.superseded, state.run)[-MAX_SUPERSEDED:]
    return Changed(
        replace(
            state,
            generation=state.generation + 1,
            run=ended(who).run,
            superseded=superseded,
            abandoned=(),
        )
    )


def ended(who: RunIdentity) -> RunIdentity:
    """The identity that holds the generation after ``end``; it may only sweep."""
    return replace(who, run=f"{who.run}{ENDED}")


def has_started(state: JobState | None, who: RunIdentity) -> bool:
    """Whether a task of this run has started it; if not, the run has pre-committed nothing."""
    return state is not None and (state.run == who.run or who.run in state.superseded)


@dataclass(frozen=True, slots=True)
class Write:
    """The epoch is new: write it."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The epoch is decided or finished: drain the input and write nothing.

    The coordinator compares it by ``same_epoch`` with the recorded one.
    """


def plan(
    state: JobState, generation: int, epoch: int, *, gaps_allowed: bool = False
) -> Write | Skip | Refused:
    """Whether a task of ``generation`` must write ``epoch``, skip it, or fail."""
    if state.generation != generation:
        return Refused(_verdicts.fenced(state, f"generation {generation}"))
    if _is_decided(state, epoch):
        return Skip()
    given_up = [abandoned for abandoned in state.abandoned if abandoned <= epoch]
    if given_up:
        # Nor a later epoch: an abandoned epoch had rows, so it is not a gap that may be allowed.
        return Refused(_verdicts.abandoned(state, given_up[0]))
    last = state.last_decided
    if last is not None and epoch > last + 1 and not gaps_allowed:
        return Refused(
            EpochGapError(
                f"Epoch {epoch} follows epoch {last}: the epochs between were never written.",
                job=state.job,
                epoch=epoch,
                remedy="restore the checkpoint that belongs to this job. If the target was restored "
                f"with its register, and lacks {_verdicts.epochs(last + 1, epoch - 1)}: "
                f"{_verdicts.write_again(last + 1)}. If only the register is older, and the target has "
                f"all their rows and nothing from epoch {epoch} on: `abs job reset {state.job} "
                "--checkpoint LOCATION`, then start the query.",
            )
        )
    return Write()


def same_epoch(state: JobState, epoch: int, fingerprint: str | None, rows: int) -> Refused | None:
    """Compare a replayed epoch with the recorded one; None if they are the same.

    Fingerprints are compared where both are known and of one kind, row counts otherwise. Skipping a
    different epoch would lose data, so it is refused.
    """
    recorded = state.record(epoch)
    if recorded is None:
        why = (
            f"the register has no record of it: it was committed more than {MAX_RECENT} epochs "
            "ago, or left out"
        )
    else:
        difference = _verdicts.difference(recorded, fingerprint, rows)
        if difference is None:
            return None
        why = difference
    return Refused(
        ReplayMismatchError(
            f"Epoch {epoch} is committed, but {why}: the checkpoint was rolled back or edited.",
            why=why,
            job=state.job,
            epoch=epoch,
            remedy="restore the newest checkpoint of this job; or, to write everything again on "
            f"purpose, clean the target, run `abs job reset {state.job}`, and delete the checkpoint.",
        )
    )


def decide(
    state: JobState,
    generation: int,
    epoch: int,
    committables: Sequence[Committable],
    *,
    fingerprint: str | None,
    rows: int,
    gaps_allowed: bool = False,
    course: Course | None = None,
) -> Verdict:
    """Decide to commit ``epoch`` by exactly these handles; without handles it is finished at once.

    An epoch that is already decided keeps its first decision (``Unchanged``).
    """
    planned = plan(state, generation, epoch, gaps_allowed=gaps_allowed)
    if isinstance(planned, Refused):
        return planned
    if isinstance(planned, Skip):
        return same_epoch(state, epoch, fingerprint, rows) or Unchanged(state)
    unnameable = _unnameable(state, epoch, committables)
    if unnameable is not None:
        return unnameable
    dead = deadletters.counted(state, epoch, committables, MAX_RECENT)
    if isinstance(dead, DeadLettersError):
        return Refused(dead)
    decision = Decision(state.lineage, epoch, generation, tuple(committables))
    course = replace(course or Course(), sinks=sinks_of(committables))
    recent = Recent(epoch, fingerprint, rows, dead, course=course)
    decided = remembered(replace(state, open=(*state.open, decision)), recent)
    if not committables and not state.open:
        return finish(decided, decision, at=course.decided)
    return Changed(decided)


def co_commit(
    state: JobState,
    generation: int,
    epoch: int,
    committables: Sequence[Committable],
    *,
    fingerprint: str | None,
    rows: int,
    gaps_allowed: bool = False,
    course: Course | None = None,
    shown: Sequence[Shown] = (),
) -> Verdict:
    """``decide`` and ``finish`` in one step, for a state that is stored together with the rows."""
    decided = decide(
        state,
        generation,
        epoch,
        committables,
        fingerprint=fingerprint,
        rows=rows,
        gaps_allowed=gaps_allowed,
        course=course,
    )
    decision = decided.state.decision(epoch) if isinstance(decided, Changed) else None
    if isinstance(decided, Changed) and decision is not None:
        return finish(decided.state, decision, shown, course.decided if course else None)
    return decided


def finish(
    state: JobState, decision: Decision, shown: Sequence[Shown] = (), at: int | None = None
) -> Verdict:
    """Remove a decision from the register once every handle of it is proven committed.

    Any generation may do this: a proven commit stays committed. Decisions are finished oldest first.
    """
    # By key, not by epoch: after two adoptions a lineage counts the same epoch numbers again.
    if not state.is_open(decision):
        return Unchanged(state)
    assert decision.key == state.open[0].key, "decisions are finished in the order they were made"
    still_open = state.open[1:]
    if decision.lineage != state.lineage:
        return Changed(replace(state, open=still_open))
    epoch = decision.epoch
    abandoned = tuple(given_up for given_up in state.abandoned if given_up > epoch)
    finished = replace(state, open=still_open, frontier=epoch, abandoned=abandoned)
    return Changed(recorded(finished, decision, shown, at))


def abandon(state: JobState, generation: int, epoch: int) -> Verdict:
    """Abandon an undecided epoch for this generation, so that its handles may be aborted.

    The compare-and-set of this change invalidates an older decision that is still in flight. A decided
    epoch cannot be abandoned (``Unchanged``: the caller rolls it forward).
    """
    if state.generation != generation:
        return Refused(_verdicts.fenced(state, f"generation {generation}"))
    if _is_decided(state, epoch) or epoch in state.abandoned:
        return Unchanged(state)
    return Changed(replace(state, abandoned=tuple(sorted((*state.abandoned, epoch)))))


def sweepable(state: JobState, generation: int, handle: HandleName) -> bool:
    """Whether no decision, present or future, can name this handle (I4).

    Stable: once true it stays true, so a caller may act on an old state.
    """
    # ``decide`` names only handles of the state's generation, of epochs above the last decided one
    # that are not abandoned.
    if handle.register != state.register or state.generation != generation:
        return False
    if any(handle in decision.held for decision in state.open):
        return False
    if handle.generation != generation:
        return handle.generation < generation
    finished = state.frontier is not None and handle.epoch <= state.frontier
    return finished or handle.epoch in state.abandoned


def fate(state: JobState | None, handle: HandleName) -> str:
    """What will become of a handle in doubt, in words, by the register's present state."""
    if state is None or state.register != handle.register:
        return "unknown: its register is not here"
    if any(handle in decision.held for decision in state.open):
        return "decided: will be committed"
    if sweepable(state, state.generation, handle):
        return "will be aborted"
    if state.moved_to is not None:
        return f"unknown: its register was moved to {state.moved_to}"
    return "undecided: its epoch is under way, or its run died and the next start ends it"


def sweep(state: JobState, generation: int, handles: Iterable[HandleName]) -> list[HandleName]:
    """The handles that may be aborted."""
    return [handle for handle in handles if sweepable(state, generation, handle)]


def outlasted(state: JobState, generation: int, handles: Iterable[HandleName]) -> list[HandleName]:
    """The handles under bounded names (``InDoubt.lasting``) that may be aborted after an epoch.

    For a generation none of whose epochs is under way: what is decided is finished, and the next epoch
    uses none of these names.
    """
    if state.open or state.generation != generation:
        return []
    mine = (state.register, generation, NO_EPOCH)
    return [h for h in handles if (h.register, h.generation, h.epoch) == mine]


def superseded(state: JobState, handles: Iterable[HandleName]) -> list[HandleName]:
    """The handles of earlier generations that may be aborted, by a run that is itself superseded, too.

    Not those of the present generation: its processes may use their names again.
    """
    older = (handle for handle in handles if handle.generation < state.generation)
    return sweep(state, state.generation, older)


def _is_decided(state: JobState, epoch: int) -> bool:
    """Whether the epoch or a later one is decided; an epoch left out before a decision stays out."""
    last = state.last_decided
    return last is not None and epoch <= last


def _unnameable(state: JobState, epoch: int, committables: Sequence[Committable]) -> Refused | None:
    """Refuse a handle of another register or generation, a repeated one, or one that may be swept."""
    times = Counter(committable.handle for committable in committables)
    floor = -1 if state.last_decided is None else state.last_decided
    for name, named in times.items():
        mine = (name.register, name.generation) == (state.register, state.generation)
        # A handle of an earlier, failed checkpoint may join. A handle of a decided epoch is either in
        # that decision or lost the race, and is swept once the epoch is finished.
        live = floor < name.epoch <= epoch and name.epoch not in state.abandoned
        if not (mine and live and named == 1):
            return Refused(
                ProtocolError(
                    f"A decision on epoch {epoch} of register {state.register}, generation "
                    f"{state.generation}, cannot name this handle.",
                    job=state.job,
                    epoch=epoch,
                    handle=str(name),
                    remedy="this is a defect of the engine's adaptor or the sink: please report it.",
                )
            )
    return None
