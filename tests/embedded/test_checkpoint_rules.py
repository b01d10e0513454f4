"""The coordinator's rules, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from abs_core.barriers import checkpoint_rules as rules
from abs_core.barriers.alignment import STRATEGIES
from abs_core.barriers.checkpoint_rules import (
    Acknowledged,
    CoordinatorState,
    Declined,
    Pending,
    Settings,
)
from abs_core.barriers.elements import TaskId
from abs_core.model import Committable, HandleName
from abs_embedded.channel import Channel
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator
from abs_embedded.operators import Operator
from abs_embedded.partition import FORWARD
from abs_embedded.snapshot import Record
from abs_embedded.task import Context, Input, Output, Task

A, B = TaskId("a", 0), TaskId("b", 0)
TASKS = frozenset({A, B})
SINKS = frozenset({B})
SETTINGS = Settings(interval=10, min_pause=3, timeout=20, in_flight=2)
STATE = CoordinatorState(5, 0.0, 0.0)


def due(
    state: CoordinatorState,
    now: float,
    strategy: str = "aligned",
    *,
    asked: bool = False,
    waited: bool = False,
) -> Pending | None:
    return rules.due(SETTINGS, STRATEGIES[strategy], state, now, SINKS, asked=asked, waited=waited)


def ack(task: TaskId, checkpoint: int, *epochs: int) -> Acknowledged:
    names = [HandleName("0" * 16, "job", 1, epoch, 0, "a") for epoch in epochs]
    return Acknowledged(task, 0, checkpoint, None, tuple(Committable(n, 1, "d") for n in names))


def test_a_checkpoint_is_due_an_interval_after_the_last_one_began() -> None:
    assert due(STATE, 9) is None
    assert due(STATE, 10) == Pending(5, 10)


def test_a_pause_is_kept_after_the_last_one_ended() -> None:
    assert due(replace(STATE, rested=9.0), 11) is None
    assert due(replace(STATE, rested=9.0), 12) is not None


def test_no_more_are_under_way_than_allowed_and_one_where_tasks_are_held() -> None:
    one = rules.begun(STATE, Pending(5, 0.0))
    assert due(one, 50) is not None
    assert due(one, 50, "drain") is None
    assert due(rules.begun(one, Pending(6, 0.0)), 50) is None


def test_after_a_failure_a_whole_interval_passes() -> None:
    failed = rules.aborted(rules.begun(STATE, Pending(5, 0.0)), 5, 20.0)
    assert failed.failed == 1
    assert due(failed, 29) is None
    assert due(failed, 30) == Pending(6, 30)


def test_sources_that_wait_for_a_checkpoint_do_not_wait_for_an_interval() -> None:
    assert due(STATE, 3, "none", waited=True) == Pending(5, 3)
    failed = rules.aborted(rules.begun(STATE, Pending(5, 0.0)), 5, 20.0)
    assert due(failed, 20 + rules.AGAIN_SECONDS - 1, waited=True) is None
    assert due(failed, 20 + rules.AGAIN_SECONDS, waited=True) == Pending(6, 23)


def test_the_last_checkpoint_comes_when_every_sink_has_ended_also_where_there_is_no_other() -> None:
    ended = replace(STATE, ended=SINKS)
    assert due(ended, 3, "none") == Pending(5, 3, last=True)
    assert due(STATE, 1000, "none") is None
    assert due(rules.begun(ended, Pending(5, 3, last=True)), 1000) is None


def test_a_checkpoint_is_decidable_when_all_have_acknowledged_and_none_before_it_is_open() -> None:
    state = rules.begun(rules.begun(STATE, Pending(5, 0.0)), Pending(6, 0.0))
    for message in (ack(A, 6), ack(B, 6), ack(A, 5)):
        state = rules.acknowledged(state, message)
        assert rules.decidable(state, TASKS) is None
    state = rules.acknowledged(state, ack(B, 5))
    decided = rules.decidable(state, TASKS)
    assert decided is not None
    assert decided.checkpoint == 5


def test_a_decision_names_handles_of_failed_checkpoints_and_none_twice() -> None:
    state = rules.acknowledged(
        rules.begun(replace(STATE, decided=3), Pending(5, 0.0)), ack(B, 5, 3, 4, 5)
    )
    assert [c.handle.epoch for c in rules.handles(state, state.pending[0])] == [4, 5]


def test_an_acknowledgement_of_a_checkpoint_that_is_over_changes_nothing() -> None:
    assert rules.acknowledged(STATE, ack(A, 4)) == STATE


def test_a_restart_drops_what_is_under_way_and_forgets_who_had_ended() -> None:
    state = rules.begun(replace(STATE, ended=SINKS), Pending(5, 0.0))
    again = rules.restarted(state, SINKS, 4.0)
    assert again.pending == ()
    assert again.ended == frozenset()
    assert again.next == 6


class Decided:
    """A keeper that notes what is decided."""

    written: Record

    def __init__(self) -> None:
        self.checkpoints: list[int] = []

    def write(self, pending: Pending, handles: Sequence[Committable]) -> str:
        return ""

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        self.checkpoints.append(checkpoint)

    def retain(self, checkpoint: int) -> None:
        pass


def running() -> dict[TaskId, Task]:
    """A source and a sink."""
    channel = Channel(1)
    strategy, nobody, context = STRATEGIES["aligned"], lambda copy, now: None, cast("Context", None)
    source = Task(A, Operator(), context, [], [Output(FORWARD, [channel])], strategy, nobody)
    return {A: source, B: Task(B, Operator(), context, [Input(channel, 0)], [], strategy, nobody)}


def test_a_complete_checkpoint_is_decided_once_the_one_before_it_has_failed() -> None:
    keeper = Decided()
    state = rules.begun(rules.begun(STATE, Pending(5, 0.0)), Pending(6, 0.0))
    coordinator = CheckpointCoordinator(
        STRATEGIES["aligned"], SETTINGS, running(), lambda: False, keeper, state
    )
    coordinator.inbox += [ack(A, 6), ack(B, 6), Declined(A, 0, 5, "no room")]
    while coordinator.step(1.0):
        pass
    assert keeper.checkpoints == [6]
