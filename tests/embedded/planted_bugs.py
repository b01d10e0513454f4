"""The runtime with one rule broken at a time: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from abs_core.barriers.alignment import (
    NOTHING,
    STRATEGIES,
    Alignment,
    Do,
    Inputs,
    SnapshotStrategy,
    Step,
    aligned,
)
from abs_core.barriers.checkpoint_rules import Ended, Message, Pending
from abs_core.barriers.elements import Barrier, Batch
from abs_core.model import Committable, HandleName, JobState
from abs_embedded.assembly import Assembly, AttemptSettings, Part, Parts, assemble
from abs_embedded.channel import UNBOUNDED
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator
from abs_embedded.sinks import undecided
from abs_embedded.task import Pick, Task
from tests.model.simulation.run import Bugs, SimulatedContext, State
from tests.model.simulation.world import Keeper, Target


class Unaligned:
    """A strategy that counts barriers and blocks nothing.

    Args:
        at: copy at the first barrier, or at the last.
    """

    def __init__(self, at: Callable[[int, int], bool]) -> None:
        self._at = at
        self._arrived: dict[tuple[int, int], int] = {}
        self._alive: list[Inputs] = []  # ids are not used again

    def __call__(
        self, inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int
    ) -> Step:
        if inputs.back or input_ is None:
            return aligned(inputs, state, input_, checkpoint)
        seen = self._arrived.get((id(inputs), checkpoint), 0) + 1
        self._arrived[id(inputs), checkpoint] = seen
        self._alive.append(inputs)
        if self._at(seen, len(inputs.regular)):
            return Step(state, (Do.BROADCAST, Do.COPY, Do.PERSIST))
        return Step(state)


def no_back_edge_log(inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int) -> Step:
    """Algorithm 2 without its log."""
    if input_ is not None and input_ in inputs.back:
        return Step(state)
    return aligned(replace(inputs, back=NOTHING), state, input_, checkpoint)


class BarrierAfterUnblock(Task):
    """The barrier goes out after the next element, not before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.late: list[Any] = []

    def _broadcast(self, element: Any) -> None:
        if type(element) is Barrier and self.inputs:
            self.late.append(element)
        else:
            super()._broadcast(element)

    def step(self, pick: Pick) -> bool:
        late, self.late = self.late, []
        did = super().step(pick)
        for element in late:
            super()._broadcast(element)
        return did or bool(late)


class NoReplay(Task):
    """Restores the state, and forgets the log."""

    def begin(self, replay: Iterable[tuple[int, Batch]]) -> None:
        pass


class OvertakenLost(Task):
    """What an unaligned barrier passed is in no snapshot."""

    def _arrived(self, number: int, barrier: Barrier) -> None:
        super()._arrived(number, Barrier(barrier.checkpoint))


class LoopEndsEarly(Task):
    """The head ends with its input, whatever still goes round."""

    def _leave_loop(self) -> bool:
        if self.loop is None or self._open or self._ended:
            return False
        self._finish()
        return True


class OneAckTooFew(CheckpointCoordinator):
    """Decides and notifies before the last acknowledgement."""

    def _receive(self, message: Message, now: float) -> None:
        super()._receive(message, now)
        for pending in self.state.pending:
            if len(pending.acks) >= len(self.tasks) - 1:
                self._decide(pending, now)


class OldAttemptsCount(CheckpointCoordinator):
    """Acknowledgements of tasks that are dead count for their successors."""

    def _receive(self, message: Message, now: float) -> None:
        super()._receive(replace(message, attempt=self.running[message.task].attempt), now)


class EndsWithTheFirstSink(CheckpointCoordinator):
    """The last checkpoint is taken as soon as one sink has ended."""

    def _receive(self, message: Message, now: float) -> None:
        super()._receive(message, now)
        if isinstance(message, Ended):
            self.state = replace(self.state, ended=self.sinks)


class NotAtRest(CheckpointCoordinator):
    """Stops the world, and does not wait until it stands."""

    def step(self, now: float) -> bool:
        self.resting = lambda: True
        return super().step(now)


class DropsFailedHandles(CheckpointCoordinator):
    """The decision names only handles of its own epoch."""

    def _decide(self, pending: Pending, now: float) -> None:
        own = {
            task: replace(
                ack,
                handles=tuple(h for h in ack.handles if h.handle.epoch == pending.checkpoint),
            )
            for task, ack in pending.acks.items()
        }
        super()._decide(replace(pending, acks=own), now)


class NoStop(CheckpointCoordinator):
    """Restarts a region, and lets checkpoints that were under way go on."""

    def restart(self, tasks: frozenset[Any], now: float) -> None:
        pending = self.state.pending
        super().restart(tasks, now)
        self.state = replace(self.state, pending=pending)


class CommitsBeforeDecision(Keeper):
    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        Target(self._world).commit(handles)
        super().decide(checkpoint, handles, fingerprint)


class DecidesBeforeRecord(Keeper):
    """The completion record is written after the decision that names it."""

    def write(self, pending: Pending, handles: Sequence[Committable]) -> str:
        self._late = pending
        return f"{self._run}:{pending.checkpoint}"

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        super().decide(checkpoint, handles, fingerprint)
        super().write(self._late, handles)


class RestoresTheNewest(Keeper):
    """Restores the newest record, decided or not."""

    def recover(self) -> tuple[JobState, int, dict[str, list[Part]]]:
        state, first, parts = super().recover()
        newest = max(self._world.records.values(), default=(0, parts), key=lambda r: r[0])
        return state, first, newest[1]


class LiveCopy(SimulatedContext):
    """The copy is the state itself, and goes on changing until it is persisted."""

    def copy(self, checkpoint: int) -> State:
        return State(self.counts, self.lists.snapshot(), self.entries)


class StalePositions(SimulatedContext):
    """A source's snapshot holds the positions of the snapshot before."""

    def copy(self, checkpoint: int) -> State:
        now = self.lists.snapshot()
        before = getattr(self, "before", now)
        self.before = now
        return State(dict(self.counts), before, dict(self.entries))


class ForgetsEarlyFailures(Task):
    """A checkpoint that failed before its barrier was here is taken for one that is under way."""

    def _aborted(self, checkpoint: int) -> None:
        if checkpoint <= self._copied:
            super()._aborted(checkpoint)


class NoTimers(SimulatedContext):
    """The snapshot holds what windows have counted, and not when they end."""

    def copy(self, checkpoint: int) -> State:
        return replace(super().copy(checkpoint), entries={})


class FirstWatermark(Task):
    """Event time is what the first input has got to, not the last."""

    def _advance(self) -> None:
        newest = max(self._watermarks.values(), default=0)
        self._watermarks = dict.fromkeys(range(len(self.inputs)), newest)
        super()._advance()


class ForgetsHandles(Task):
    """A sink names only what it pre-committed last."""

    def _copy(self, checkpoint: int) -> None:
        super()._copy(checkpoint)
        state, handles, declined = self._copies[checkpoint]
        self._copies[checkpoint] = (state, handles[-1:], declined)


class KeepsAllKeys(SimulatedContext):
    """After rescaling, a task keeps the keys that it does not own any more."""

    def copy(self, checkpoint: int) -> State:
        copied = super().copy(checkpoint)
        for part in self.parts:
            copied.counts.update(
                {k: c for k, c in part.state.counts.items() if k not in self.counts}
            )
        return copied


class ReadsAtOnce(Task):
    """A source that begins for the first time waits for no snapshot that holds where."""

    def step(self, pick: Pick) -> bool:
        context = self.context
        assert isinstance(context, SimulatedContext)
        if not context.parts:
            self.waits = self.drained = False
        return super().step(pick)


def without_what_came(how: AttemptSettings, operators: frozenset[str], parts: Parts) -> Assembly:
    """A restart reads what the snapshot had to read, and nothing that came to a source since."""
    for id_ in operators & set(parts):
        how.graph.nodes[id_].bounded = True
    return assemble(how, operators, parts)


def of_every_region(every: Sequence[Assembly], at: int) -> list[HandleName]:
    """A restored region has the handles of those discarded that go on, too."""
    return [handle for assembly in every for handle in undecided(assembly.tasks)]


class ComesBack(Task):
    """A task that was given up does what it was about to do when it comes back."""

    def _check_abandoned(self) -> None:
        pass


class NoWatchdog(Task):
    """Who does not come out of a step is waited for."""

    def hangs(self, now: float, after: float) -> bool:
        return False


def bounded_in_batches(how: AttemptSettings, operators: frozenset[str], parts: Parts) -> Assembly:
    """A channel takes so many batches, however large they are."""
    return assemble(replace(how, rows=UNBOUNDED), operators, parts)


class LooksAtElements(Task):
    """A task looks at the number of elements alone before it takes the next one."""

    def has_credit(self) -> bool:
        return all(len(channel.queue) < channel.capacity for channel in self._channels)


def _named(name: str, strategy: Any) -> SnapshotStrategy:
    return replace(STRATEGIES[name], on_barrier=strategy)


ALIGNED, UNALIGNED = STRATEGIES["aligned"], STRATEGIES["unaligned"]

PLANTED: dict[str, tuple[SnapshotStrategy, Bugs]] = {
    "no alignment: copies at the last barrier": (
        _named("aligned", Unaligned(lambda seen, inputs: seen == inputs)),
        Bugs(),
    ),
    "no alignment: copies at the first barrier": (
        _named("aligned", Unaligned(lambda seen, inputs: seen == 1)),
        Bugs(),
    ),
    "barrier after unblock": (ALIGNED, Bugs(task=BarrierAfterUnblock)),
    "back-edge log dropped": (_named("aligned", no_back_edge_log), Bugs()),
    "log not replayed": (ALIGNED, Bugs(task=NoReplay)),
    "overtaken data lost": (STRATEGIES["unaligned"], Bugs(task=OvertakenLost)),
    "loop ends early": (ALIGNED, Bugs(task=LoopEndsEarly)),
    "notification before all acknowledgements": (ALIGNED, Bugs(coordinator=OneAckTooFew)),
    "acknowledgements of old attempts count": (ALIGNED, Bugs(coordinator=OldAttemptsCount)),
    "last checkpoint before the last end": (ALIGNED, Bugs(coordinator=EndsWithTheFirstSink)),
    "world not at rest": (STRATEGIES["stop_the_world"], Bugs(coordinator=NotAtRest)),
    "handles of a failed checkpoint dropped": (ALIGNED, Bugs(coordinator=DropsFailedHandles)),
    "sink forgets handles": (ALIGNED, Bugs(task=ForgetsHandles)),
    "checkpoints outlive a restart": (ALIGNED, Bugs(coordinator=NoStop)),
    "commit before decision": (ALIGNED, Bugs(keeper=CommitsBeforeDecision)),
    "decision before record": (ALIGNED, Bugs(keeper=DecidesBeforeRecord)),
    "newest record restored": (ALIGNED, Bugs(keeper=RestoresTheNewest)),
    "live state instead of a copy": (ALIGNED, Bugs(context=LiveCopy)),
    "stale source positions": (ALIGNED, Bugs(context=StalePositions)),
    "an endless source reads before a snapshot says where it began": (
        ALIGNED,
        Bugs(task=ReadsAtOnce),
    ),
    "what came to an endless source is not found": (ALIGNED, Bugs(assemble=without_what_came)),
    "handles of all regions are discarded": (ALIGNED, Bugs(discarded=of_every_region)),
    "timers not in the snapshot": (ALIGNED, Bugs(context=NoTimers)),
    "watermark of the first input": (ALIGNED, Bugs(task=FirstWatermark)),
    "early failures forgotten": (ALIGNED, Bugs(task=ForgetsEarlyFailures)),
    "keys kept after rescaling": (ALIGNED, Bugs(context=KeepsAllKeys)),
    "channels bounded in batches": (ALIGNED, Bugs(assemble=bounded_in_batches)),
    "rows in a channel not looked at": (UNALIGNED, Bugs(task=LooksAtElements)),
    "a hung task goes on later": (ALIGNED, Bugs(task=ComesBack)),
    "no watchdog": (ALIGNED, Bugs(task=NoWatchdog)),
}
"""What is broken -> the strategy and the parts that break it."""
