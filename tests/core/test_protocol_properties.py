"""What all rules of the protocol keep, in whatever order they are applied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from abs_core import protocol
from abs_core.model import JobState
from abs_core.protocol import Refused, RunIdentity, Unchanged, Verdict
from tests.core.protocol_values import REGISTER, adopting, decide, handle, one, state

SMALL = st.integers(0, 4)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), SMALL),
        st.tuples(st.just("decide"), SMALL),
        st.tuples(st.just("finish"), SMALL),
        st.tuples(st.just("abandon"), SMALL),
    ),
    max_size=12,
)


def act(given: JobState, action: str, number: int) -> JobState:
    """The state that the rule leads to, or the same where it refuses."""
    verdict: Verdict = Unchanged(given)
    if action == "start":
        who = adopting(given, RunIdentity("job", f"lineage{number % 2}", f"run{number}", "target"))
        verdict = protocol.start(given, who, REGISTER)
    elif action == "decide":
        named = one(number, generation=given.generation)
        verdict = decide(given, number, named, gaps=True)
    elif action == "finish" and given.open:
        verdict = protocol.finish(given, given.open[0])
    elif action == "abandon":
        verdict = protocol.abandon(given, given.generation, number)
    return given if isinstance(verdict, Refused) else verdict.state


@given(ACTIONS, ACTIONS)
def test_what_is_sweepable_stays_sweepable(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    given = state()
    for action in before:
        given = act(given, *action)
    names = [handle(e, generation=g) for e in range(5) for g in range(1, given.generation + 1)]
    swept = protocol.sweep(given, given.generation, names)
    for action in after:
        given = act(given, *action)
        assert protocol.sweep(given, given.generation, swept) == swept


@given(ACTIONS)
def test_every_rule_is_idempotent_and_keeps_the_order(actions: list[tuple[str, int]]) -> None:
    given = state()
    for action, number in actions:
        after = act(given, action, number)
        if action in ("start", "abandon"):
            assert act(after, action, number) == after
        assert after.generation >= given.generation
        ours = [d.epoch for d in after.open if d.lineage == after.lineage]
        assert ours == sorted(set(ours))
        assert after.frontier is None or all(epoch > after.frontier for epoch in ours)
        if after.lineage == given.lineage and given.frontier is not None:
            assert after.frontier is not None
            assert after.frontier >= given.frontier
        given = after
