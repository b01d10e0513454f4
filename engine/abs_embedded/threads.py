"""Runs each task in a thread, with blocking back pressure and one coordinator.

The tasks are those of the simulation. A failed task takes its region with it, which is restored
from the last decision while other regions go on.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from threading import Event

from abs_core.barriers.alignment import STRATEGIES, SnapshotStrategy
from abs_core.barriers.checkpoint_rules import Acknowledged, CoordinatorState, Declined, Ended
from abs_core.barriers.elements import Copy, TaskId
from abs_core.errors import AbsError, ConfigError, HungError, TargetError, UnavailableError
from abs_core.model import job_key
from abs_embedded.assembly import AttemptSettings, Part, assemble
from abs_embedded.background import Background
from abs_embedded.checkpoint_coordinator import CheckpointCoordinator, Companion
from abs_embedded.context import TaskContext, settle_unclaimed
from abs_embedded.graph import Node
from abs_embedded.jobspec import JobSpec
from abs_embedded.plan import loops, regions
from abs_embedded.recovery import Recovered, Restore, StoreKeeper
from abs_embedded.region import IDLE_SECONDS, Region
from abs_embedded.sinks import undecided
from abs_embedded.snapshot import DurablePart, persist
from abs_embedded.state.contracts import StateBackend, StateOwner
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.task import Task

_log = logging.getLogger("abs_embedded")


@dataclass(slots=True)
class Execution:
    """One run of a job in this process.

    Args:
        restore: the argument of ``recovered``.
        companion: of its checkpoints.
    """

    job: JobSpec
    keeper: StoreKeeper
    recovered: Recovered
    restore: Restore
    companion: Companion
    coordinator: CheckpointCoordinator = field(init=False)
    _strategy: SnapshotStrategy = field(init=False)
    _regions: dict[frozenset[str], Region] = field(default_factory=dict)
    _tasks: dict[TaskId, Task] = field(default_factory=dict)
    _failed: deque[tuple[Region, TaskId, BaseException]] = field(default_factory=deque)
    _restarts: int = 0
    _in_a_row: tuple[int, int] = (-2, 0)
    """How often it was restored since a checkpoint was decided: that one, and how often."""
    _woken: Event = field(default_factory=Event)
    _background: Background = field(init=False)

    def run(self, stop: Event) -> None:
        """Run until the data ends, or ``stop`` is set; undecided data is then left undecided.

        Raises AbsError if the job failed, and restoring its region did not help.
        """
        self._strategy = _strategy_of(self.job)
        self._background = Background(self._persisted, self._drop)
        now = time.monotonic()
        try:
            for operators in regions(self.job.graph):
                region = self._assemble(operators, self.recovered, 0)
                self._settle(region)
            self.coordinator = CheckpointCoordinator(
                self._strategy,
                self.job.settings,
                self._tasks,
                self._resting,
                self.keeper,
                CoordinatorState(self.recovered.first, now, now),
                self.job.observe,
                companion=self.companion,
                dropped=self._background.drop,
            )
            for region in self._regions.values():
                self._start(region)
            while not (self.coordinator.state.closed or stop.is_set()):
                self._woken.clear()
                while self.coordinator.step(time.monotonic()):
                    pass
                if self._failed:
                    region, task, cause = self._failed.popleft()
                    self._restore(region, task, cause)
                else:
                    self._watch(time.monotonic())
                    self._woken.wait(IDLE_SECONDS / 5)
        finally:
            with ExitStack() as ending:
                ending.callback(self._tell_of_failures)  # the last of all
                ending.callback(self._background.close)
                for region in self._regions.values():
                    ending.callback(self._end, region)

    def _assemble(self, operators: frozenset[str], from_: Recovered, attempt: int) -> Region:
        new_task = partial(
            Task,
            strategy=self._strategy,
            persist=self._persist,
            attempt=attempt,
            observe=self.job.observe,
            ended=lambda task: self._say(Ended(task.id, task.attempt)),
        )
        how = AttemptSettings(
            self.job.graph,
            from_.state,
            from_.first,
            list(self.keeper.sinks),
            partial(self._context, from_),
            self.job.capacity,
            self.job.rows,
            self._strategy.halts,
            new_task,
            self.job.events,
        )
        assembly = assemble(how, operators, from_.parts)
        for task in assembly.tasks:
            self._tasks[task.id] = task
            if task.loop is not None:
                task.loop.woken.append(task.wake.set)
            for input_ in task.inputs:
                input_.channel.woken = task.wake.set
            for output in task.outputs:
                for channel in output.channels:
                    channel.taken = task.wake.set
        region = self._regions[operators] = Region(
            operators, assembly, self._fail, self.job.hang_after
        )
        return region

    def _tell_of_failures(self) -> None:
        """Log failures that came too late to end the run, or to be recovered from."""
        for _, task, error in self._failed:
            _log.warning(
                "job %s: %s failed while the run was ending; the next run begins from the last "
                "decision: %s",
                self.job.graph.name,
                task,
                error,
                exc_info=error,
            )

    def _settle(self, region: Region) -> None:
        contexts = [
            c for task in region.assembly.tasks if isinstance(c := task.context, TaskContext)
        ]
        settle_unclaimed(self.job.graph.name, contexts, drop=self.restore.drop_state)
        self.keeper.note_pickled(
            f"{context.task.operator}.{name}" for context in contexts for name in context.pickled
        )

    def _start(self, region: Region) -> None:
        self._publish(region.assembly.tasks)
        region.start()

    def _fail(self, region: Region, task: TaskId, error: BaseException) -> None:
        self._failed.append((region, task, error))
        self._woken.set()

    def _end(self, region: Region, undecided: range = range(0)) -> None:
        region.stop()
        # No copy is still being persisted when its state is closed, and perhaps restored anew.
        if not self._background.rest(self.job.hang_after):
            raise HungError(
                f"Storing a part of a checkpoint has taken {self.job.hang_after:g} s.",
                job=job_key(self.job.graph.name),
                remedy="check the snapshot store; the next run begins from the last decision.",
            )
        # What was written of them to another system must not count, nor hold locks, under this
        # generation, which goes on.
        for task, checkpoint in product(region.assembly.tasks, undecided):
            task.context.aborted(checkpoint)
        if self.job.queries is not None:
            for operator in region.operators:
                self.job.queries.withdraw(operator)
        region.assembly.close()

    def _watch(self, now: float) -> None:
        """Give up hanging tasks: their threads cannot be ended, but kept from leaving a trace."""
        after = self.job.hang_after
        tasks = [(r, task) for r in self._regions.values() for task in r.assembly.tasks]
        for region, task in tasks:
            if after is not None and not task.abandoned and task.hangs(now, after):
                task.abandoned = True
                sentence = f"Its function or call has not returned for {after:g} s."
                remedy = "find out what it waits for; or raise `hang_after`."
                self._fail(region, task.id, HungError(sentence, remedy=remedy))

    def _restore(self, failed: Region, task: TaskId, cause: BaseException) -> None:
        """Restore the failed region from the last decision, under the same generation."""
        if self._regions[failed.operators] is not failed:
            return  # restored since, for another of its tasks
        retryable = isinstance(cause, TargetError) or not isinstance(cause, AbsError)
        if isinstance(cause, HungError) and self._is_sink(task):
            retryable = False  # see `_check_sinks_ended`
        if not isinstance(cause, AbsError):
            error = UnavailableError(
                f"{type(cause).__name__}: {cause}.",
                remedy="see the cause; decided epochs stay, and a restart continues after them.",
            )
            error.__cause__, cause = cause, error
        cause.by(str(task), job_key(self.job.graph.name))
        decided, before = self._in_a_row
        row = before + 1 if decided == self.coordinator.state.decided else 1
        if not retryable or row > self.job.restarts:
            raise cause
        self._in_a_row = self.coordinator.state.decided, row
        self._restarts += 1
        _log.warning(
            "restore %d of %d in a row, of every operator connected with the failed one: %s",
            row,
            self.job.restarts,
            cause,
            exc_info=cause,
        )
        reached = self.coordinator.state
        self._end(failed, range(max(reached.decided + 1, self.recovered.first), reached.next))
        self._check_sinks_ended(failed)
        self.job.observe("restored", None, reached.decided)
        state = self.keeper.coordinator.roll_forward()
        # Nobody else knows these: they would hold locks against what is written anew.
        self.keeper.coordinator.discard(undecided(failed.assembly.tasks))
        # Until this run has decided something, it begins where it was told to begin.
        anew = reached.decided < 0
        from_ = self.keeper.restored(state, self.restore if anew else Restore())
        from_ = replace(from_, first=reached.next)
        region = self._assemble(failed.operators, from_, self._restarts)
        if anew:
            self._settle(region)
        gone = frozenset(task.id for task in region.assembly.tasks)
        self.coordinator.restart(gone, time.monotonic())
        self._start(region)

    def _is_sink(self, task: TaskId) -> bool:
        return self.job.graph.nodes[task.operator].sink is not None

    def _check_sinks_ended(self, region: Region) -> None:
        """Raise HungError if a sink's task did not end its step with the region.

        It could still write in this generation, which a restore keeps.
        """
        for task in sorted(filter(self._is_sink, region.assembly.left)):
            sentence = (
                f"Its call has not returned for {self.job.hang_after:g} s, while another failed."
            )
            remedy = "start the job again, and find out what it waits for."
            raise HungError(sentence, remedy=remedy).by(str(task), job_key(self.job.graph.name))

    def _context(
        self, from_: Recovered, node: Node, task: TaskId, parts: Sequence[Part]
    ) -> TaskContext:
        return TaskContext(
            task,
            node.parallelism,
            self._place(task),
            self.job.store,
            self.job.backend,
            [part.state for part in parts],
            from_.source,
            self.job.trust_pickles,
        )

    def _place(self, task: TaskId) -> StateOwner:
        graph, state = self.job.graph, self.recovered.state
        width, most = graph.nodes[task.operator].parallelism, graph.max_parallelism
        groups = GroupRange.of(task.subtask, width, most)
        return StateOwner(
            job_key(graph.name),
            task.operator,
            task.subtask,
            groups,
            most,
            state.generation,
            state.register,
        )

    def _publish(self, tasks: Sequence[Task]) -> None:
        """Let the keyed state of these tasks be queried."""
        if self.job.queries is None:
            return
        kept: dict[str, list[tuple[StateOwner, StateBackend]]] = {}
        for task in tasks:
            context = task.context
            if isinstance(context, TaskContext) and context.kept is not None:
                kept.setdefault(task.id.operator, []).append((context.place, context.kept))
        for operator, subtasks in kept.items():
            self.job.queries.publish(operator, subtasks)

    def _resting(self) -> bool:
        # Held first, then empty: a held source puts nothing any more.
        halted = all(task.state.held for task in self._tasks.values() if not task.inputs)
        return halted and all(r.assembly.in_flight.count == 0 for r in self._regions.values())

    def _say(self, message: Acknowledged | Declined | Ended) -> None:
        self.coordinator.inbox.append(message)
        self._woken.set()

    def _drop(self, copy: Copy) -> None:
        if copy.state.keyed is not None:
            copy.state.keyed.close()

    def _persist(self, copy: Copy, now: bool) -> None:
        if copy.failed or copy.declined:
            self._drop(copy)
            if copy.declined:
                self._say(Declined(copy.task, copy.attempt, copy.checkpoint, copy.declined))
        elif now:
            self._persisted(copy)
        else:
            self._background.submit(copy)

    def _persisted(self, copy: Copy) -> None:
        task, attempt, checkpoint = copy.task, copy.attempt, copy.checkpoint
        try:
            part = self._durable(copy)
            self.job.observe("persisted", copy.task, copy.checkpoint)
        except BaseException as error:  # noqa: BLE001 - nobody else would see it
            if isinstance(error, AbsError) and not isinstance(error, TargetError):
                self._fail_for_good(copy, error)
                return
            # The checkpoint fails, not the job.
            why = f"{task} could not store its part: {error}"
            self._say(Declined(task, attempt, checkpoint, why))
            return
        self._say(Acknowledged(task, attempt, checkpoint, part, copy.handles))

    def _fail_for_good(self, copy: Copy, error: AbsError) -> None:
        """End the job if it is fenced or its state cannot be kept: no checkpoint can succeed."""
        region = next(r for r in self._regions.values() if copy.task.operator in r.operators)
        if self._tasks[copy.task].attempt == copy.attempt:
            self._fail(region, copy.task, error)

    def _durable(self, copy: Copy) -> DurablePart:
        place = self._place(copy.task)
        try:
            self.companion.copied(copy, place)
            return persist(copy, self.job.store, place, whole=False)
        finally:
            self._drop(copy)


def _strategy_of(job: JobSpec) -> SnapshotStrategy:
    strategy = STRATEGIES.get(job.strategy)
    if strategy is None:
        raise ConfigError(
            f"strategy={job.strategy!r} is not a snapshot strategy.",
            remedy=f"choose one of {', '.join(STRATEGIES)}.",
        )
    if not strategy.cycles and loops(job.graph):
        raise ConfigError(
            f"The snapshot strategy {job.strategy} needs a topological order, and the graph has loops.",
            remedy="use `aligned`, `unaligned` or `stop_the_world`.",
        )
    return strategy
