"""The exploration can fail: each of these wrong rules, or steps left out, is found by it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from abs_core import protocol
from abs_core.errors import EpochGapError, IdentityError, ReplayMismatchError
from abs_core.model import Decision, HandleName, JobState, Recent
from abs_core.protocol import Changed, Refused, RunIdentity, Skip, Unchanged, Verdict, Write
from tests.model.exhaustive import Configuration, Rules, RunSpec, Violated, explore

ONE, TWO = RunSpec(), RunSpec(partitions=2)
A, B = RunSpec(content="a", lineage="A"), RunSpec(content="b", lineage="B", adopts=True)
A_AGAIN = RunSpec(content="a again", lineage="A", adopts=True)


def _decided(state: JobState, generation: int, epoch: int, committables: Any, fp: str) -> JobState:
    """A decision put in place without any check."""
    decision = Decision(state.lineage, epoch, generation, tuple(committables))
    recent = (*state.recent, Recent(epoch, fp, 1))
    return replace(state, open=(*state.open, decision), recent=recent)


def _present_generation(state: JobState, who: RunIdentity) -> int:
    return state.generation


def _decide_without_fence(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    if state.last_decided is not None and epoch <= state.last_decided:
        return Unchanged(state)
    return Changed(_decided(state, state.generation, epoch, committables, fingerprint))


def _decide_again(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    """An epoch that is finished may be decided again."""
    if state.decision(epoch) is not None:
        return Unchanged(state)
    return Changed(_decided(state, generation, epoch, committables, fingerprint))


def _decide_unseen(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    """What is decided is taken for the same epoch."""
    if state.last_decided is not None and epoch <= state.last_decided:
        return Unchanged(state)
    return protocol.decide(
        state, generation, epoch, committables, fingerprint=fingerprint, rows=rows
    )


def _decide_although_abandoned(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    return protocol.decide(
        replace(state, abandoned=()),
        generation,
        epoch,
        committables,
        fingerprint=fingerprint,
        rows=rows,
    )


def _plan_although_abandoned(state: JobState, generation: int, epoch: int) -> Any:
    return protocol.plan(replace(state, abandoned=()), generation, epoch)


def _start_superseded(state: JobState | None, who: RunIdentity, register: str) -> Verdict:
    forgetful = None if state is None else replace(state, superseded=())
    verdict = protocol.start(forgetful, who, register)
    if isinstance(verdict, Changed) and state is not None:
        return Changed(replace(verdict.state, superseded=(*state.superseded, state.run)))
    return verdict


def _start_dropping_decisions(state: JobState | None, who: RunIdentity, register: str) -> Verdict:
    verdict = protocol.start(state, who, register)
    if isinstance(verdict, Changed) and state is not None and state.lineage != who.lineage:
        return Changed(replace(verdict.state, open=()))
    return verdict


def _end_dropping_decisions(state: JobState, who: RunIdentity) -> Verdict:
    verdict = protocol.end(state, who)
    return Changed(replace(verdict.state, open=())) if isinstance(verdict, Changed) else verdict


def _sweep_decided(state: JobState, generation: int, handle: HandleName) -> bool:
    return protocol.sweepable(replace(state, open=()), generation, handle)


def _sweep_by_first_system(state: JobState, generation: int, handle: HandleName) -> bool:
    """Each system by the state of the first one, which knows of its own handles only."""
    own = tuple(
        replace(d, committables=tuple(c for c in d.committables if c.handle.partition == 0))
        for d in state.open
    )
    return protocol.sweepable(replace(state, open=own), generation, handle)


def _decide_for_first_sink(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    first = [c for c in committables if c.handle.partition == 0]
    return protocol.decide(state, generation, epoch, first, fingerprint=fingerprint, rows=rows)


def _sweep_own(state: JobState, generation: int, handle: HandleName) -> bool:
    """All that no decision names, also of the generation that is still writing."""
    return not any(handle in decision.handles for decision in state.open)


def _sweep_others(state: JobState, generation: int, handle: HandleName) -> bool:
    """All other generations', the higher ones, too; and nobody asks who holds the register."""
    named = any(handle in decision.handles for decision in state.open)
    return not named and handle.generation != generation


def _sweep_undecided_epochs(state: JobState, generation: int, handle: HandleName) -> bool:
    """Of the own generation, what is above the frontier instead of below."""
    if protocol.sweepable(state, generation, handle):
        return True
    named = any(handle in decision.handles for decision in state.open)
    above = state.frontier is None or handle.epoch > state.frontier
    return not named and handle.generation == generation and above


def _forget_decided(state: JobState, generation: int, handle: HandleName) -> bool:
    return True


def _finish_by_number(state: JobState, decision: Decision) -> Verdict:
    """Whatever decision on an epoch of that number is open now."""
    for found in state.open:
        if (found.lineage, found.epoch) == (decision.lineage, decision.epoch):
            return protocol.finish(state, found)
    return Unchanged(state)


def _skip_unseen(state: JobState, epoch: int, fingerprint: str, rows: int) -> Refused | None:
    return None


def _gap(state: JobState, generation: int, epoch: int) -> Write | Skip | Refused:
    return protocol.plan(state, generation, epoch, gaps_allowed=True)


def _decide_with_gap(
    state: JobState, generation: int, epoch: int, committables: Any, *, fingerprint: str, rows: int
) -> Verdict:
    return protocol.decide(
        state,
        generation,
        epoch,
        committables,
        fingerprint=fingerprint,
        rows=rows,
        gaps_allowed=True,
    )


def _skip_never(state: JobState, generation: int, epoch: int) -> Write | Skip | Refused:
    planned = protocol.plan(state, generation, epoch)
    return Write() if isinstance(planned, Skip) else planned


@dataclass(frozen=True)
class Bug:
    """A wrong rule, where it shows, and how the exploration must describe it."""

    found: str
    rules: Rules
    runs: tuple[RunSpec, ...] = (ONE, ONE)
    more: dict[str, Any] = field(default_factory=dict)


ABORTS = {"aborts": True}
BUGS = {
    "no fence at the decision": Bug(
        "I5: a decision names",
        Rules(generation_of=_present_generation, decide=_decide_without_fence, inspects=False),
    ),
    "no fence at the coordinator": Bug(
        "cannot name this handle", Rules(generation_of=_present_generation)
    ),
    "a superseded run starts again": Bug("I5: run0 took", Rules(start=_start_superseded)),
    "the sweep ignores open decisions": Bug("I4", Rules(sweepable=_sweep_decided)),
    "one sink is swept by another's state": Bug(
        "I4", Rules(sweepable=_sweep_by_first_system), (TWO, ONE), {"away": True}
    ),
    "a decision for one of two sinks": Bug(
        "epoch 0 is visible 0 times",
        Rules(decide=_decide_for_first_sink),
        (TWO,),
        {"away": True},
    ),
    "the sweep takes its own generation's": Bug(
        "lost before its decision", Rules(sweepable=_sweep_undecided_epochs), (RunSpec(retries=1),)
    ),
    "the sweep takes higher generations'": Bug(
        "lost before its decision", Rules(sweepable=_sweep_others)
    ),
    "abort without abandon": Bug(
        "I4", Rules(abandons_first=False, abandon=protocol.abandon), (ONE,), ABORTS
    ),
    "a run that ends sweeps before it has raised the generation": Bug(
        "I4", Rules(abandons_first=False), (ONE,), {"aborts": True, "ends": True}
    ),
    "a run that ends drops what is decided": Bug(
        "I2", Rules(end=_end_dropping_decisions), (ONE,), {"aborts": True, "ends": True}
    ),
    "an abandoned epoch is decided": Bug(
        "lost before its decision",
        Rules(decide=_decide_although_abandoned, plan=_plan_although_abandoned),
        (ONE,),
        {"aborts": True, "stubborn": True},
    ),
    "commit before the decision": Bug("I1", Rules(decides_first=False)),
    "a finished epoch is decided again": Bug("I3", Rules(decide=_decide_again, plan=_skip_never)),
    "finish before all is committed": Bug("I2", Rules(awaits_commits=False), (TWO,)),
    "finish by the epoch's number": Bug(
        "I2",
        Rules(finish=_finish_by_number),
        (A, B, A_AGAIN),
        {"expected": (IdentityError, ReplayMismatchError), "recovers": False},
    ),
    "markers are forgotten before the end": Bug(
        "I7", Rules(forgettable=_forget_decided), more={"epochs": 2}
    ),
    "a lost handle is not looked at twice": Bug("I7", Rules(looks_again=False)),
    "a skip without a look at the input": Bug(
        "commit returned",
        Rules(same_epoch=_skip_unseen, decide=_decide_unseen),
        (ONE, RunSpec(content="edited")),
        {"expected": (ReplayMismatchError,), "recovers": False},
    ),
    "an epoch is left out": Bug(
        "epoch 1 is finished",
        Rules(plan=_gap, decide=_decide_with_gap),
        (ONE, RunSpec(first=2, after=1)),
        {"epochs": 3, "expected": (EpochGapError,), "recovers": False},
    ),
    "an adopter drops open decisions": Bug(
        "I2", Rules(start=_start_dropping_decisions), (A, B), {"expected": (IdentityError,)}
    ),
    "a decision without compare": Bug("I5: the gen", Rules(compares_versions=False)),
    "co-commit without compare": Bug(
        "I5: the gen", Rules(compares_versions=False), more={"co_commits": True}
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_exploration_finds(name: str) -> None:
    bug = BUGS[name]
    config = Configuration(name, bug.runs, rules=bug.rules, **bug.more)
    with pytest.raises(Violated) as raised:
        print(explore(config, limit=200_000))
    history = str(raised.value)
    print(history)
    assert bug.found in history.splitlines()[0].removeprefix(name), "found, but for another reason"


@pytest.mark.long
def test_the_same_configurations_are_right_with_the_right_rules() -> None:
    # Many bugs show in the same configuration: each one is explored once.
    for config in {Configuration("right", bug.runs, **bug.more) for bug in BUGS.values()}:
        explore(config)
