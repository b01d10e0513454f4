"""When a job is killed: drawn from the seed alone, and never at a loss for the kill that matters."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_chaos.aim import PATIENCE_EPOCHS, Aim
from abs_chaos.moments import Moment, Sight, story
from abs_chaos.run import ChaosSettings
from abs_chaos.schedule import (
    AWAY_S,
    MAX_DELAY_S,
    UNSEEN,
    Kill,
    by_the_clock,
    schedule,
    with_blows,
)
from abs_core.errors import OptionError
from abs_demo.settings import MOMENTS
from abs_services import KINDS

TURNS = [*MOMENTS.values(), UNSEEN]
EPOCHS = 46


@given(st.integers(0, 10**6), st.sampled_from(TURNS), st.integers(1, EPOCHS - 2))
def test_every_plan_spreads_its_kills_and_has_the_one_before_spark_notes_the_epoch(
    seed: int, turns: tuple[Moment, ...], kills: int
) -> None:
    planned = schedule(seed, turns, kills, EPOCHS)
    assert planned == schedule(seed, turns, kills, EPOCHS)
    assert len(planned) == kills
    assert [kill.moment for kill in planned].count(Moment.COMMITTED) == 1
    assert all(0 <= kill.delay_s <= MAX_DELAY_S for kill in planned)
    own = [kill.epoch for kill in planned if kill.moment is not Moment.RECOVERING]
    assert own == sorted(set(own))
    assert all(1 <= epoch < EPOCHS - 1 for epoch in own)
    for before, kill in itertools.pairwise(planned):
        if kill.moment is Moment.RECOVERING:
            assert kill.epoch == before.epoch
    assert planned[0].moment is not Moment.RECOVERING


@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_no_kill_waits_for_a_record_that_only_spark_has(protocol: str) -> None:
    planned = schedule(7, MOMENTS[protocol], 5, EPOCHS, spark=False)
    assert len(planned) == 5
    assert Moment.COMMITTED not in {kill.moment for kill in planned}


def test_another_seed_is_another_plan() -> None:
    assert len({schedule(seed, MOMENTS["2pc"], 5, EPOCHS) for seed in range(20)}) == 20


def test_five_kills_of_2pc_take_every_phase() -> None:
    moments = {kill.moment for kill in schedule(1, MOMENTS["2pc"], 5, EPOCHS)}
    assert moments == set(Moment) - {Moment.BETWEEN, Moment.ANY}


@pytest.mark.parametrize(("kills", "epochs"), [(3, 4), (-1, 46), (1, 1)])
def test_more_kills_than_there_is_room_for_are_refused(kills: int, epochs: int) -> None:
    with pytest.raises(OptionError, match=f"{kills} kills"):
        schedule(1, MOMENTS["2pc"], kills, epochs)


WRITING = Sight(planned=7, noted=6, finished=6, generation=1)
PREPARED = Sight(planned=7, noted=6, finished=6, in_doubt=2, generation=1)
DECIDED = Sight(planned=7, noted=6, finished=6, undone=2, in_doubt=1, generation=1)
COMMITTED = Sight(planned=7, noted=6, finished=7, generation=1)
BETWEEN = Sight(planned=7, noted=7, finished=7, generation=1)


def test_phases_are_told_from_what_target_and_checkpoint_hold() -> None:
    sights = [WRITING, PREPARED, DECIDED, COMMITTED, BETWEEN]
    assert [sight.moment for sight in sights] == [
        Moment.WRITING,
        Moment.PREPARED,
        Moment.DECIDED,
        Moment.COMMITTED,
        Moment.BETWEEN,
    ]
    assert Sight().moment is Moment.BETWEEN
    assert Sight(planned=0).moment is Moment.WRITING


def test_people_are_told_epoch_and_what_is_in_doubt() -> None:
    assert story(PREPARED, "transaction") == "at epoch 7: 2 transactions in doubt"
    assert story(COMMITTED, "transaction").startswith("at epoch 7: after commit(), before Spark's")
    assert "during the recovery" in story(WRITING, "transaction", recovering=True)


@pytest.mark.parametrize("sight", [WRITING, PREPARED, DECIDED, COMMITTED, BETWEEN])
def test_a_kill_waits_for_its_own_phase_and_its_delay(sight: Sight) -> None:
    aim = Aim([Kill(7, sight.moment, 0.1)])
    others = {WRITING, PREPARED, DECIDED, COMMITTED, BETWEEN} - {sight}
    assert not any(aim.due(other, 0.0) for other in others)
    assert not aim.due(sight, 1.0)
    assert not aim.due(sight, 1.05)
    assert aim.due(sight, 1.2)


def test_a_kill_does_not_come_before_its_epoch() -> None:
    assert not Aim([Kill(8, Moment.WRITING, 0.0)]).due(WRITING, 0.0)


def test_the_kill_before_spark_notes_the_epoch_is_tried_until_it_hits() -> None:
    aim = Aim([Kill(7, Moment.COMMITTED, 0.0), Kill(8, Moment.WRITING, 0.0)])
    aim.killed(BETWEEN)
    assert aim.next == Kill(8, Moment.COMMITTED, 0.0)
    aim.killed(Sight(planned=8, noted=7, finished=8))
    assert aim.next == Kill(9, Moment.WRITING, 0.0)


def test_kills_while_tasks_write_are_spread_over_the_time_that_they_take() -> None:
    for seed in range(50):
        planned = schedule(seed, (Moment.WRITING,), 3, EPOCHS, spark=False)
        shares = sorted(kill.delay_s / MAX_DELAY_S for kill in planned)
        gaps = [after - before for before, after in itertools.pairwise([*shares, shares[0] + 1])]
        assert max(gaps) < 0.5, "a job that notes an epoch before it writes it meets one of them"


def test_a_kill_while_tasks_write_comes_at_its_share_of_the_last_epochs_time() -> None:
    aim = Aim([Kill(8, Moment.WRITING, MAX_DELAY_S / 2)])
    assert not aim.due(WRITING, 100.0)
    assert not aim.due(BETWEEN, 104.0)
    eighth = Sight(planned=8, noted=7, finished=7)
    assert not aim.due(eighth, 110.0)
    assert not aim.due(eighth, 111.9)
    assert aim.due(eighth, 112.1)


def test_a_share_that_an_epoch_does_not_last_is_waited_for_in_the_next() -> None:
    aim = Aim([Kill(8, Moment.WRITING, MAX_DELAY_S * 0.9)])
    aim.due(WRITING, 0.0)
    aim.due(BETWEEN, 10.0)
    assert not aim.due(Sight(planned=8, noted=7, finished=7), 20.0)
    assert not aim.due(Sight(planned=9, noted=8, finished=8), 21.0), "8 was through after 1 s"
    assert not aim.due(Sight(planned=9, noted=8, finished=8), 21.8)
    assert aim.due(Sight(planned=9, noted=8, finished=8), 22.0)


def test_how_long_a_killed_epoch_takes_again_tells_nothing() -> None:
    aim = Aim([Kill(7, Moment.COMMITTED, 0.0), Kill(8, Moment.WRITING, MAX_DELAY_S)])
    aim.due(WRITING, 0.0)
    assert aim.due(COMMITTED, 1.0)
    aim.killed(COMMITTED)
    aim.due(WRITING, 1.5)
    aim.due(BETWEEN, 30.0)
    assert not aim.due(Sight(planned=8, noted=7, finished=7), 31.0)
    assert aim.due(Sight(planned=8, noted=7, finished=7), 32.0), "as long as before the kill"


def test_a_kill_during_recovery_waits_for_the_next_generation() -> None:
    aim = Aim([Kill(7, Moment.PREPARED, 0.0), Kill(7, Moment.RECOVERING, 0.0)])
    aim.killed(PREPARED)
    assert not aim.due(PREPARED, 0.0)
    assert aim.due(Sight(planned=7, noted=6, finished=6, generation=2), 1.0)


def test_a_phase_that_never_shows_does_not_hold_up_the_run() -> None:
    aim = Aim([Kill(7, Moment.DECIDED, 0.0)])
    late = 7 + PATIENCE_EPOCHS + 1
    assert not aim.due(Sight(planned=late - 1, noted=late - 2, finished=late - 2), 0.0)
    assert aim.due(Sight(planned=late, noted=late - 1, finished=late - 1), 1.0)


def test_kills_by_the_clock_come_in_their_own_time_after_each_start() -> None:
    clock = Aim(by_the_clock(7, 2, every_s=10.0))
    first, second = (Aim(by_the_clock(seed, 2, every_s=10.0)) for seed in (7, 8))
    assert first.next == clock.next != second.next
    for began in (100.0, 200.0):
        assert clock.next is not None
        wait = clock.next.after_s
        assert 5.0 <= wait <= 15.0
        assert not clock.due(Sight(), began)
        assert not clock.due(Sight(), began + wait - 0.1)
        assert clock.due(Sight(), began + wait)
        clock.killed(Sight())
    assert clock.next is None
    assert not clock.due(Sight(), 1000.0)


def test_by_the_clock_every_second_kill_waits_for_its_phase_and_is_tried_until_it_hits() -> None:
    planned = by_the_clock(7, 4, every_s=10.0, moment=Moment.COMMITTED)
    assert [kill.moment for kill in planned] == [Moment.ANY, Moment.COMMITTED] * 2
    assert all(5.0 <= kill.after_s <= 15.0 for kill in planned)
    aim = Aim(planned)
    began = 100.0
    assert not aim.due(COMMITTED, began)
    assert aim.due(WRITING, began + planned[0].after_s)
    aim.killed(WRITING)
    began = 200.0
    assert not aim.due(COMMITTED, began)
    assert not aim.due(COMMITTED, began + planned[1].after_s - 0.1)
    later = Sight(planned=20, noted=19, finished=19)
    assert not aim.due(later, began + planned[1].after_s), "its phase is not there"
    assert aim.due(Sight(planned=20, noted=19, finished=20), began + planned[1].after_s + 1.0)
    aim.killed(Sight(planned=20, noted=20, finished=20))
    tried = aim.next
    assert tried is not None
    assert tried.moment is Moment.COMMITTED, "it came too late"
    assert aim.due(Sight(planned=21, noted=20, finished=21), 300.0)
    aim.killed(Sight(planned=21, noted=20, finished=21))
    third = aim.next
    assert third is not None
    assert third.moment is Moment.ANY


def test_who_gives_a_time_and_a_phase_gets_kills_of_both(tmp_path: Path) -> None:
    both = ChaosSettings(
        ["true"], tmp_path, 7, 2, tmp_path, every_s=10.0, moment=Moment.COMMITTED
    ).aim()
    assert both.next == by_the_clock(7, 2, 10.0)[0]
    both.killed(WRITING)
    assert both.next is not None
    assert both.next.moment is Moment.COMMITTED


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3))
def test_blows_take_turns_among_the_servers_and_leave_the_kill_before_spark_notes_the_epoch(
    seed: int, kills: int, servers: int
) -> None:
    kinds, blows = KINDS[:servers], max(kills, servers)
    planned = schedule(seed, UNSEEN, kills + blows, EPOCHS)
    mixed = with_blows(seed, planned, blows, kinds)
    assert mixed == with_blows(seed, planned, blows, kinds)
    assert [kill.epoch for kill in mixed] == [kill.epoch for kill in planned]
    struck = [kill.blow for kill in mixed if kill.blow is not None]
    assert len(struck) == blows
    assert {blow.kind for blow in struck} == {*kinds}
    assert all(AWAY_S[0] <= blow.seconds <= AWAY_S[1] for blow in struck)
    assert Moment.COMMITTED in [kill.moment for kill in mixed if kill.blow is None]
    assert Moment.COMMITTED not in [kill.moment for kill in mixed if kill.blow is not None]
