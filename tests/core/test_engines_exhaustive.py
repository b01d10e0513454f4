"""An engine that goes on past what failed, calls twice or with other sinks, loses no row unsaid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births.rules import Failed
from abs_core.model import JobState
from abs_core.protocol import Refused, RunIdentity, Unchanged, Verdict
from tests import sample
from tests.model.exhaustive import Violated
from tests.model.exhaustive.engine_world import Batch, Call, Ways
from tests.model.exhaustive.engines import explore_engines

BOTH: Batch = (Call(parts=(0, 1)),)
HALVES: Batch = (Call(parts=(0,)), Call(parts=(1,)))
A, B, A_AND_B = (Call(sinks=("a",)),), (Call(sinks=("b",)),), (Call(sinks=("a", "b")),)

WAYS = {
    "errors are kept": Ways(),
    "errors are kept, two failures": Ways(failures=2),
    # A process that dies between the two leaves nothing that would tell of the second.
    "two calls in a batch": Ways(((HALVES,),), deaths=0),
    "two calls in a batch, until somebody mends the function": Ways(((HALVES,), (BOTH,)), deaths=0),
    "other sinks in another batch": Ways(((A, B),)),
    "other sinks in another run": Ways(((A,), (A_AND_B,), (B,))),
    "sinks of their own for two calls": Ways(((((*A, *B)),),)),
}


@pytest.mark.parametrize("name", sample.members(WAYS, 3, "engines"))
def test_whatever_the_engine_goes_on_past_no_row_is_lost_unsaid(name: str) -> None:
    states = explore_engines(WAYS[name])
    print(name, states)
    assert states > 200, "the model does too little to prove anything"


@pytest.mark.campaign
@pytest.mark.parametrize("name", WAYS)
def test_larger_explorations(name: str) -> None:
    larger = replace(WAYS[name], epochs=4, runs=5, failures=2, deaths=2 * WAYS[name].deaths)
    print(name, explore_engines(larger, limit=5_000_000))


def test_nobody_is_refused_where_nothing_fails() -> None:
    assert explore_engines(Ways(failures=0, deaths=3, keeps_errors=False)) > 100


def _any_sinks(state: JobState | None, who: RunIdentity, register: str) -> Verdict:
    """As before 67c521d: a run that has started goes on, whatever its sinks are now."""
    if state is not None and state.run == who.run:
        return Unchanged(state)
    return protocol.start(state, who, register)


def _never(
    state: JobState | None, who: RunIdentity, failed: Failed | None, epoch: int
) -> Refused | None:
    return None


def _by_what_failed(
    state: JobState | None, who: RunIdentity, failed: Failed | None, epoch: int
) -> Refused | None:
    """As 0aaad39 did: where the epoch that failed is decided, nothing is taken for passed over."""
    last = None if state is None else state.last_decided
    if failed is not None and last is not None and last >= failed.epoch:
        return None
    return births.passed_over(state, who, failed, epoch)


PASSED = "was passed over without consent"
BUGS = {
    "what a run has finished is known to the function only": (
        Ways(((HALVES,),), by_process=False),
        "a call has returned, and part 1 of epoch 0",
    ),
    "a failed batch is not noted": (Ways(notes=False), PASSED),
    "the next run passes over it without consent": (Ways(passed_over=_never), PASSED),
    "a refused start takes the place of the batch that failed": (
        Ways(keeps_the_first=False),
        PASSED,
    ),
    "what comes after an epoch that failed when it was decided is passed over": (
        Ways(passed_over=_by_what_failed),
        PASSED,
    ),
    "an epoch that was written in part is known by its input": (
        Ways(((HALVES,), (BOTH,)), deaths=0, compares_rows=False),
        "a call has returned, and part 1 of epoch 0",
    ),
    "a run goes on with other sinks": (
        Ways(((A, B),), start=_any_sinks),
        "of a sink that this run does not know",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_exploration_finds(bug: str) -> None:
    ways, found = BUGS[bug]
    with pytest.raises(Violated, match=found) as failed:
        explore_engines(ways)
    print(failed.value)
