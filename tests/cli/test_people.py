"""Two people who act on one job at any time lose and double nothing, and leave nothing stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from abs_cli import moving
from abs_core.contracts import Conflict, Inventory
from abs_core.coordinator import NOTHING_BEGUN, Coordinator, rollforward
from abs_core.coordinator.rollforward import RollForward
from abs_core.events import Ended, RolledForward
from abs_core.model import Committable, Decision, JobState
from abs_testing.case import Case
from tests import sample
from tests.cli.people import Pair, walked
from tests.kit.fake_harness import open_fake
from tests.planted import Bug, Plant, planted

FROZEN, MORE = range(40), range(40, 4000)


def lived(numbers: Sequence[int], *, only_moves: bool = False) -> None:
    for number in numbers:
        with open_fake("2pc", "append", own_register=False) as harness, Case(harness) as case:
            walked(case, Random(f"people {number} {sample.seed()}"), only_moves=only_moves)


def test_people_who_act_at_once_lose_and_double_nothing() -> None:
    lived(FROZEN)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_many_people_who_act_at_once_lose_and_double_nothing() -> None:
    lived(MORE)


ACTS = ("commit", "accept", "fence", "rename", "epoch")


def two_at_once(
    acts: Sequence[str] = ACTS[:2], lost: Sequence[int] = (0, 1), calls: Sequence[int] = range(6)
) -> None:
    """Each of the acts on a decided epoch, and each other one at each of its calls of the register."""
    for first, second, ended, at in product(acts, ACTS, lost, calls):
        with open_fake("2pc", "append", own_register=False) as harness, Case(harness) as case:
            pair = Pair(case, ended, at, second)
            getattr(pair, first)()
            pair.check()
            pair.settle()


def test_of_two_who_act_on_one_epoch_at_once_each_is_told_what_it_has_done() -> None:
    two_at_once()


@pytest.mark.campaign
def test_whatever_one_does_while_another_one_acts_is_told_as_it_is() -> None:
    two_at_once(ACTS[:4], range(3), range(12))


# Planted.


def mints_what_is_gone(plant: Plant) -> None:
    """A command on a job that was renamed meanwhile makes a register of its own."""

    def take_over(self: Coordinator, seen: JobState) -> JobState:
        self._start(NOTHING_BEGUN, 0)
        self._forward.finish_open(self._cell.mine(self._who))
        state = self._cell.mine(self._who)
        self._committer.forget(state)
        self.sweep(state)
        return state

    plant(Coordinator, "take_over", take_over)


def _put(plant: Plant, replaces: Callable[[JobState, JobState], bool], *, looks: bool) -> None:
    def put(register: Inventory, marked: JobState, other: Inventory, state: JobState) -> JobState:
        there = other.load(state.job)
        if there is not None and not replaces(there.state, state):
            return there.state
        still = register.load(marked.job)
        if looks and (still is None or still.state != marked):
            raise moving._moving(state.job)
        version = None if there is None else there.version
        if isinstance(other.compare_and_set(state.job, version, state), Conflict):
            raise moving._moving(state.job)
        return state

    plant(moving, "_put", put)


def takes_a_note_for_the_register(plant: Plant) -> None:
    """As every release did that renames: what an old move left under the new name."""
    _put(plant, lambda there, state: False, looks=True)


def writes_over_a_later_note(plant: Plant) -> None:
    _put(plant, lambda there, state: there.moved_to is not None, looks=False)


def brings_back_what_has_gone_on(plant: Plant) -> None:
    _put(plant, lambda there, state: there.generation < state.generation, looks=False)


def takes_what_others_have_finished_for_its_own(plant: Plant) -> None:
    def told(*fields: Any, here: bool) -> RolledForward:
        return RolledForward(*fields)

    plant(rollforward, "RolledForward", told)


def records_a_consent_after_the_epoch(plant: Plant) -> None:
    """Two who accept the same loss are both told that they did it."""

    def accept_loss(
        self: RollForward, decision: Decision, consented: Sequence[Committable]
    ) -> JobState:
        lost = [loss.committable for loss in self.lost(decision)]
        self._committer.forsake(lost)
        return self._finish(decision)

    plant(RollForward, "accept_loss", accept_loss)


def leaves_out_what_the_fence_has_swept(plant: Plant) -> None:
    plant(moving, "Swept", Ended)


@pytest.mark.parametrize(
    "bug",
    [
        mints_what_is_gone,
        takes_a_note_for_the_register,
        leaves_out_what_the_fence_has_swept,
    ],
)
def test_a_command_that_loses_a_register_or_tells_what_is_not_so_is_found(bug: Bug) -> None:
    with planted(bug):
        lived(range(2000))


@pytest.mark.parametrize(
    "bug", [takes_what_others_have_finished_for_its_own, records_a_consent_after_the_epoch]
)
def test_a_command_that_claims_what_another_one_did_is_found(bug: Bug) -> None:
    with planted(bug):
        two_at_once()


@pytest.mark.campaign
@pytest.mark.parametrize("bug", [writes_over_a_later_note, brings_back_what_has_gone_on])
def test_a_move_that_writes_over_what_has_gone_on_is_found(bug: Bug) -> None:
    with planted(bug):
        lived(range(2000), only_moves=True)
