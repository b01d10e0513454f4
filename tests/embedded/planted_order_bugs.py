"""The runtime with one rule broken that the order of each key shows, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from abs_core.barriers.alignment import STRATEGIES, SnapshotStrategy
from abs_core.barriers.checkpoint_rules import Pending
from abs_core.barriers.elements import TaskId
from abs_embedded.assembly import Assembly, AttemptSettings, Part, Parts, assemble
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator
from abs_embedded.graph import Node
from abs_embedded.sources import SPLITS
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.task import Pick, Task
from tests.model.simulation.run import Bugs, SimulatedContext


class SplitsMove(SimulatedContext):
    """A source's splits are dealt out anew at every restore."""

    def __init__(self, node: Node, task: TaskId, parts: Sequence[Part]) -> None:
        super().__init__(node, task, parts)
        if node.source is not None and parts:
            kept = [OperatorState(part.state.lists).list(SPLITS, TEXT).get() for part in parts]
            every = [split for splits in kept for split in splits]
            self.lists.list(SPLITS, TEXT).put(every[task.subtask :: node.parallelism])
            self.lists = OperatorState(self.lists.snapshot())


class NeverWaits(Task):
    """Sources read on while what the snapshot had in its channels is still on its way."""

    def step(self, pick: Pick) -> bool:
        self.waits = self.drained = False
        return super().step(pick)


class NoCheckpointBetween(Task):
    """Sources read on as soon as the log is through: both may be of one decision."""

    def step(self, pick: Pick) -> bool:
        if self.drained:
            self.waits = self.drained = False
        return super().step(pick)


class WaitsAfterRescaling(Task):
    """Sources that are as many as before read on: as if splits could not have moved earlier."""

    def step(self, pick: Pick) -> bool:
        context = self.context
        assert isinstance(context, SimulatedContext)
        if len(context.parts) == context.width:
            self.waits = self.drained = False
        return super().step(pick)


class ReplaysLast(Task):
    """What comes in is processed before the log."""

    def step(self, pick: Pick) -> bool:
        log, self.replay = self.replay, deque()
        did = super().step(pick)
        self.replay = log
        return did or super().step(pick)

    def _copy(self, checkpoint: int) -> None:
        super()._copy(checkpoint)
        self._logs[checkpoint] += [(port, batch) for port, batch, _ in self.replay]


class NewestHandleFirst(CheckpointCoordinator):
    """A sink's handles are committed in another order than they were written in."""

    def _decide(self, pending: Pending, now: float) -> None:
        turned = {t: replace(ack, handles=ack.handles[::-1]) for t, ack in pending.acks.items()}
        super()._decide(replace(pending, acks=turned), now)


def logs_in_turn(how: AttemptSettings, operators: frozenset[str], parts: Parts) -> Assembly:
    """After rescaling, the logs of an operator are dealt out batch by batch."""
    dealt = {}
    for id_, olds in parts.items():
        entries = [entry for old in olds for entry in old.log]
        rescaled = id_ in how.graph.nodes and len(olds) != how.graph.nodes[id_].parallelism
        dealt[id_] = [
            replace(old, log=entries[n :: len(olds)]) if rescaled else old
            for n, old in enumerate(olds)
        ]
    return assemble(how, operators, dealt)


ALIGNED, UNALIGNED = STRATEGIES["aligned"], STRATEGIES["unaligned"]

PLANTED_ORDER: dict[str, tuple[SnapshotStrategy, Bugs]] = {
    "splits move, and overtake": (UNALIGNED, Bugs(task=NeverWaits, context=SplitsMove)),
    "no wait for the log after rescaling": (UNALIGNED, Bugs(task=NeverWaits)),
    "no wait for the log after a plain restart": (UNALIGNED, Bugs(task=WaitsAfterRescaling)),
    "no checkpoint between the log and what is new": (UNALIGNED, Bugs(task=NoCheckpointBetween)),
    "log replayed after what comes in": (UNALIGNED, Bugs(task=ReplaysLast)),
    "logs dealt out in turn": (UNALIGNED, Bugs(assemble=logs_in_turn)),
    "newest handle first": (ALIGNED, Bugs(coordinator=NewestHandleFirst)),
}
"""What only the order of each key shows."""
