"""An epoch over three systems: whatever becomes of any call, it is in all of them once, or in none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from abs_core import protocol, sinkmap
from abs_core.coordinator import Report
from abs_core.coordinator.rollforward import RollForward
from abs_core.errors import ConfigError, HandleLostError, TargetWentBackError, UnavailableError
from abs_core.events import SweepFailed
from abs_core.model import HandleName, JobState, NamedSink
from abs_core.sinkmap import number_of
from abs_testing.cuts import Halted
from abs_testing.fault_injection import Fault, Wire
from tests.core.several_positions import FAULTS, Begin, calls, meet_all, places
from tests.core.several_sinks import LONG, NONE, QUICK, Run, World
from tests.planted import Defect, planted


@pytest.mark.parametrize("what", FAULTS)
def test_whatever_becomes_of_a_call_an_epoch_is_in_all_systems_once_or_in_none(what: str) -> None:
    tried = places(calls(), [what])
    meet_all(tried)
    print(f"{what}: {len(tried)} positions")
    assert len(tried) > 20


class PerSink(Run):
    """Each sink has a register and decides for itself."""

    def __init__(self, world: World) -> None:
        self.each = [Run({name: system}, QUICK, print) for name, system in world.systems.items()]

    def epoch(self, epoch: int) -> None:
        for run in self.each:
            run.epoch(epoch)

    def recover(self, epoch: int) -> None:
        for run in self.each:
            run.recover(epoch)

    def die(self) -> None:
        for run in self.each:
            run.die()

    def fail(self) -> None:
        for run in self.each:
            run.fail()


def deciding_per_sink(world: World) -> Callable[..., Run]:
    return lambda patience=QUICK: PerSink(world)


class Hasty(Run):
    """Commits as soon as the first sink has pre-committed; the others' handles come later."""

    def epoch(self, epoch: int) -> None:
        shares = self.tasks(epoch)
        first = shares[:: len(self.sinks)]
        self.coordinator.commit(Report(epoch, first, f"epoch {epoch}"))
        self.coordinator.commit(Report(epoch, shares, f"epoch {epoch}"))


def committing_before_all_have_pre_committed(world: World) -> Callable[..., Run]:
    return lambda patience=QUICK: Hasty(world.systems, patience, print)


def found(what: str, only: str, begin: Begin, why: str, *bugs: Defect) -> None:
    chosen = [place for place in places(calls(), [what]) if place.call == only]
    with planted(*bugs, match=why) as failed:
        meet_all(chosen, begin=begin)
    print(failed.value)


def test_a_decision_for_each_sink_is_found() -> None:
    found("dies after", "b.commit", deciding_per_sink, "is torn")


def test_a_commit_before_all_have_pre_committed_is_found() -> None:
    found("dies after", "b.pre_commit", committing_before_all_have_pre_committed, "is torn")


def test_rolling_forward_only_the_first_system_is_found() -> None:
    right = RollForward.finish_open

    def finish_open(self: RollForward, state: JobState, present: int | None = None) -> JobState:
        while present is None and state.open:
            decision = state.open[0]
            self._committer.commit([c for c in decision.committables if not number_of(c.handle)])
            state = self._finish(decision)
        return right(self, state, present)

    found(
        "dies before",
        "b.commit",
        lambda world: world.run,
        "b.commit at .* is torn",
        (RollForward, "finish_open", finish_open),
    )


def test_a_sweep_of_one_system_by_anothers_state_is_found() -> None:
    right = protocol.sweep

    def sweep(state: JobState, generation: int, handles: Sequence[HandleName]) -> list[HandleName]:
        """As the system knows it that has the register: only its own handles are decided."""
        own = tuple(
            replace(d, committables=tuple(c for c in d.committables if not number_of(c.handle)))
            for d in state.open
        )
        return right(replace(state, open=own), generation, handles)

    found(
        "dies before",
        "b.commit",
        lambda world: world.run,
        "b.commit at .* not known to be committed",
        (protocol, "sweep", sweep),
    )


def overtaken_at_its_finish() -> None:
    """A run over a and b has committed epoch 0, and stands still before it notes that.

    Another run does it meanwhile; the next one has c instead of b, decides epoch 1, and dies before it
    commits. Then the first one goes on, and finds a decision that is not its own.
    """

    def successors() -> None:
        world.run("ab").recover(1)
        world.systems["a"].line.dies_before = "commit"
        with pytest.raises(Halted):
            world.run("ac").epoch(1)
        world.systems["a"].line.dies_before = ""

    alone = World()
    alone.run("ab").epoch(0)
    finish = len(alone.wire.seen) - alone.wire.seen[::-1].index("a.compare_and_set") - 1
    world = World(Wire(successors))
    world.wire.planned.extend([*[Fault.NONE] * finish, Fault.OVERTAKEN])
    world.run("ab").epoch(0)


def test_a_sinks_number_that_is_used_again_is_found() -> None:
    # The number tells that the handle is of no sink of this run: it is looked for nowhere.
    with pytest.raises(ConfigError, match="number 2 is not among"):
        overtaken_at_its_finish()

    right = sinkmap.assign

    def assign(state: JobState, wanted: sinkmap.Named) -> tuple[NamedSink, ...]:
        """Ended sinks are forgotten, and so are their numbers."""
        mapped = right(state, wanted)
        assert isinstance(mapped, tuple)
        present = [sink for sink in mapped if sink.until is None]
        return tuple(replace(sink, number=number) for number, sink in enumerate(present))

    # With b's number, c's handle is looked for in b, which never had it: rows are told to be lost.
    with planted((sinkmap, "assign", assign), by=(HandleLostError, TargetWentBackError)):
        overtaken_at_its_finish()


def test_a_system_that_is_away_stops_its_own_sweep_and_not_the_others() -> None:
    world = World()
    world.run().tasks(0)
    assert {left[0] for left in world.leftovers()} == {"a", "b", "c"}
    world.systems["b"].line.away = LONG
    run = world.run(patience=NONE)
    before = world.state()
    with pytest.raises(UnavailableError, match="system b"):
        run.coordinator.begin(0)  # it might come back without what it had
    assert world.state() == before
    world.systems["b"].line.answers = "look_back"
    run.coordinator.begin(0)
    assert {left[0] for left in world.leftovers()} == {"b"}
    [failed] = [event for event in world.events if isinstance(event, SweepFailed)]
    assert "The system b is away" in failed.why
    world.systems["b"].line.away = 0
    world.run().coordinator.begin(0)
    assert world.leftovers() == []


def test_a_run_that_ends_sweeps_the_systems_that_answer() -> None:
    world = World()
    run = world.run(patience=NONE)
    run.tasks(0)
    world.systems["b"].line.away = LONG
    with pytest.raises(UnavailableError, match="system b"):
        run.coordinator.end()
    assert {left[0] for left in world.leftovers()} == {"b"}


def test_a_system_that_is_away_when_a_sweep_begins_is_swept_when_it_answers() -> None:
    world = World()
    world.run().tasks(0)
    run = world.run()
    world.systems["b"].line.away = 2
    run.coordinator.begin(0)
    assert world.leftovers() == []
    assert not [event for event in world.events if isinstance(event, SweepFailed)]


def test_a_system_that_is_away_stops_the_decision() -> None:
    world = World()
    run = world.run(patience=NONE)
    shares = run.tasks(0)
    world.systems["b"].line.away = LONG
    with pytest.raises(UnavailableError):
        run.coordinator.commit(Report(0, shares, "epoch 0"))
    assert world.state().last_decided is None
    world.check_done(0)


def test_a_system_that_is_away_does_not_keep_the_others_from_showing_what_is_decided() -> None:
    world = World()
    run = world.run(patience=NONE)
    shares = run.tasks(0)
    world.systems["a"].line.dies_before = "commit"
    with pytest.raises(Halted):
        run.coordinator.commit(Report(0, shares, "epoch 0"))
    world.systems["a"].line.dies_before = ""
    assert world.state().open
    world.systems["b"].line.away = LONG
    with pytest.raises(UnavailableError):
        run.coordinator.roll_forward()
    world.check_done(1, "ac")
    assert world.state().open, "what is decided stays until b has it, too"
    world.systems["b"].line.away = 0
    world.run().recover(1)
    world.check_done(1)


def test_a_death_is_noticed_by_the_engine() -> None:
    world = World()
    world.wire.planned.append(Fault.HALTED)
    with pytest.raises(Halted):
        world.run().coordinator.begin(0)
