"""The rules of alignment, one by one."""

from __future__ import annotations

import pytest

from abs_core.barriers.alignment import (
    IDLE,
    Alignment,
    Do,
    Inputs,
    Open,
    aligned,
    at_rest,
    drain,
    halted,
    logs,
    resumed,
    unaligned,
)

TWO = Inputs(frozenset({0, 1}))
LOOP = Inputs(frozenset({0}), frozenset({1}))
SOURCE = Inputs(frozenset())


def test_an_input_is_blocked_from_its_barrier_until_the_last_one() -> None:
    first = aligned(TWO, IDLE, 0, 7)
    assert first.state.blocked == {0}
    assert first.do == ()
    assert aligned(TWO, first.state, 1, 7).state.blocked == frozenset()


def test_the_barrier_goes_out_before_the_copy_and_the_copy_is_persisted_after() -> None:
    last = aligned(TWO, Alignment(blocked=frozenset({0})), 1, 7)
    assert last.do == (Do.BROADCAST, Do.COPY, Do.PERSIST)


def test_a_source_does_all_of_it_when_it_is_triggered() -> None:
    assert aligned(SOURCE, IDLE, None, 7).do == (Do.BROADCAST, Do.COPY, Do.PERSIST)
    assert unaligned(SOURCE, IDLE, None, 7).do == (Do.COPY, Do.OVERTAKE, Do.PERSIST)


def test_a_head_blocks_no_back_edge_and_logs_it_until_its_barrier_returns() -> None:
    began = aligned(LOOP, IDLE, 0, 7)
    assert began.do == (Do.BROADCAST, Do.COPY)
    assert began.state.blocked == frozenset()
    assert logs(began.state, 1) == [7]
    assert logs(began.state, 0) == []
    ended = aligned(LOOP, began.state, 1, 7)
    assert ended.do == (Do.PERSIST,)
    assert ended.state == IDLE


def test_back_edge_logs_of_several_checkpoints_are_kept_apart() -> None:
    both = aligned(LOOP, aligned(LOOP, IDLE, 0, 7).state, 0, 8)
    assert logs(both.state, 1) == [7, 8]
    assert aligned(LOOP, both.state, 1, 7).state.open == (Open(8, frozenset({1})),)


def test_unaligned_copies_at_the_first_barrier_and_blocks_nothing() -> None:
    first = unaligned(TWO, IDLE, 0, 7)
    assert first.do == (Do.COPY, Do.OVERTAKE)
    assert first.state.blocked == frozenset()
    assert logs(first.state, 1) == [7]
    assert unaligned(TWO, first.state, 1, 7).do == (Do.PERSIST,)


def test_drain_is_durable_before_its_barrier_goes_on_and_holds_until_resumed() -> None:
    step = drain(TWO, Alignment(blocked=frozenset({1})), 0, 7)
    assert step.do == (Do.COPY, Do.PERSIST_NOW, Do.BROADCAST)
    assert step.state.held
    assert not resumed(step.state, 7).held


@pytest.mark.parametrize("strategy", [drain, at_rest])
def test_a_checkpoint_that_is_over_holds_nobody(strategy: object) -> None:
    released = resumed(IDLE, 7)
    assert not strategy(SOURCE, released, None, 7).state.held  # type: ignore[operator]
    assert strategy(SOURCE, released, None, 8).state.held  # type: ignore[operator]
    assert not halted(released, 7).held
