"""One history: a job on a random graph, crashed again and again until it ends, and judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from abs_core.barriers.alignment import STRATEGIES, SnapshotStrategy
from abs_core.barriers.checkpoint_rules import Settings
from abs_core.errors import AbsError, HungError
from abs_embedded.task import Task
from tests.model.simulation.dataflow import BATCHES, MOST_BATCHES, Builder, Built
from tests.model.simulation.expected import Expected, expected, in_order, sequence
from tests.model.simulation.inputs import Phase
from tests.model.simulation.run import Bugs, Run
from tests.model.simulation.world import Crash, Target, World

MAX_STEPS = 60_000
"""A run that has not ended by then, with no crash any more, is stuck."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a history came to.

    Args:
        steps: of all runs together.
        crashes: of whole processes, and of regions.
        checkpoints: that were decided.
        wrong: what differs from a failure-free run; empty where nothing does.
    """

    seed: int
    strategy: str
    steps: int
    crashes: int
    checkpoints: int
    loops: bool
    wrong: str = ""


def simulate(
    seed: int,
    strategy: SnapshotStrategy | None = None,
    bugs: Bugs | None = None,
    *,
    ordered: bool = False,
    pausing: bool = False,
    hasty: bool = False,
) -> Outcome:
    """Run the history of a seed.

    Args:
        strategy: in place of the one that the seed chooses.
        bugs: parts with planted bugs.
        ordered: a graph without loops, in which each key keeps its order, and several crashes.
        pausing: splits become idle, and come back: event time goes on meanwhile, and nothing is late.
        hasty: see ``_Hasty``.
    """
    chance = Random(seed)
    chosen = strategy or STRATEGIES[chance.choice(tuple(STRATEGIES))]
    kind = _Hasty if hasty else History
    return kind(seed, chosen, bugs or Bugs(), chance, ordered, pausing).play()


class History:
    _batches = BATCHES

    def __init__(
        self,
        seed: int,
        strategy: SnapshotStrategy,
        bugs: Bugs,
        chance: Random,
        ordered: bool,
        pausing: bool,
    ) -> None:
        self._is_ordered, self._is_pausing = ordered, pausing
        self._zombie: Run | None = None
        self._given_up: list[tuple[Run, Task]] = []
        self._seed, self._strategy, self._bugs, self._chance = seed, strategy, bugs, chance
        self._world = World()
        self._built = self._build(0)
        self._ordered = in_order(self._built)
        self._steps = self._crashes = self._runs = 0
        self._settings = Settings(
            interval=chance.choice((6, 20) if self._strategy.resumes else (2, 6, 20)),
            min_pause=chance.choice((2, 4) if self._strategy.resumes else (0, 1)),
            timeout=chance.choice((8, 40, 10_000)),
            in_flight=chance.choice((1, 1, 2, 3)),
        )
        self._decline = chance.choice((0.0, 0.0, 0.02))
        self._crashes_left = chance.choice((2, 4, 6) if ordered else (0, 1, 2, 4))

    def play(self) -> Outcome:
        run = self._start()
        while not run.closed:
            doom = self._steps + self._chance.choice((5, 50, 200, 400))
            self._arm()
            another = None
            while another is None and not run.closed:
                self._steps += 1
                another = self._happens(run, doom)
                if wrong := self._beside(run):
                    return self._outcome(wrong)
            run = another or run
        while self._given_up:
            if left := self._come_back():
                return self._outcome(left)
        due = expected(self._built)
        self._start()  # once more after its end: it must change nothing, and sweep what is left
        return self._outcome(self._judge(due))

    def _happens(self, run: Run, doom: int) -> Run | None:
        """One step, or a failure; the run that goes on then, if it is another one or begins anew."""
        if self._crashes_left and self._steps > doom and run.hung is None:
            self._crashes_left -= 1
            self._crashes += 1
            return self._fail(run)
        try:
            run.step()
        except Crash:
            self._crashes += 1
            return self._start()
        except HungError:
            return self._without(run)
        return None

    def _fail(self, run: Run) -> Run | None:
        """A task hangs, or a region fails, or the process; and it may have been taken for dead only."""
        how = self._chance.random()
        if how < 0.2:
            run.hang()
            return None
        if how < 0.5:
            return self._restarted(run)
        self._zombie = run if self._chance.random() < 0.3 else None
        return self._start()

    def _beside(self, run: Run) -> str:
        """What happens beside the run's steps; what is wrong already."""
        if self._given_up and self._chance.random() < 0.02 and (left := self._come_back()):
            return left
        if self._zombie is not None and self._chance.random() < 0.3:
            self._zombie = self._haunt(self._zombie)
        if run.now % 16 == 0:
            if broken := run.broken():
                return broken
            self._go_on(run)
        return "stuck" if run.now > MAX_STEPS else ""

    def _start(self) -> Run:
        """A new process; it may die while it recovers."""
        while True:
            if self._runs and self._chance.random() < (0.5 if self._is_ordered else 0.3):
                self._built = self._build(self._runs)
                self._ordered &= in_order(self._built)
            self._runs += 1
            self._world.journal.lives += 1
            try:
                return Run(
                    self._world,
                    self._built.graph,
                    self._strategy,
                    self._settings,
                    self._chance,
                    f"run{self._runs}",
                    self._bugs,
                    decline=self._decline,
                )
            except Crash:
                self._crashes += 1

    def _go_on(self, run: Run) -> None:
        """What has paused comes back as soon as event time has got past it: see ``Phase``."""
        journal = self._world.journal
        if journal.phase is Phase.PAUSED and run.passed(journal.awaited):
            journal.phase = Phase.BACK
        elif journal.phase is Phase.BACK and run.all_back():
            journal.phase = Phase.GOING_ON

    def _without(self, run: Run) -> Run:
        """The job goes on without the task that hangs, which comes back one day."""
        task, sink = run.hung, run.hung_sink
        assert task is not None
        self._given_up.append((run, task))
        return self._start() if sink else self._restarted(run, task)

    def _come_back(self) -> str:
        fuse, self._world.fuse = self._world.fuse, 0
        run, task = self._given_up.pop()
        left = run.come_back(task)
        self._world.fuse = fuse
        return left

    def _restarted(self, run: Run, of: Task | None = None) -> Run:
        """A region of it is restored; the process may die as it is."""
        try:
            run.restart_region(of)
        except Crash:
            self._crashes += 1
            return self._start()
        return run

    def _arm(self) -> None:
        """Half of the crashes come just before or after a durable effect."""
        self._world.fuse = 0
        if self._crashes_left and self._chance.random() < 0.5:
            self._crashes_left -= 1
            self._world.fuse = self._chance.randrange(1, 60)

    def _haunt(self, zombie: Run) -> Run | None:
        """A process that was taken for dead goes on, until it is fenced."""
        fuse, self._world.fuse = self._world.fuse, 0
        try:
            zombie.step()
        except AbsError:
            return None
        finally:
            self._world.fuse = fuse
        return zombie

    def _build(self, widths: int) -> Built:
        """The seed's graph; the parallelism may be another one after a restart."""
        shape = Random(self._seed)
        width = Random(self._seed * 1000 + widths)
        target = Target(self._world)
        ordered = self._is_ordered
        pausing = self._is_pausing
        loops = self._strategy.cycles and not (ordered or pausing)
        journal = self._world.journal
        kind = {"loops": loops, "ordered": ordered, "pausing": pausing}
        return Builder(shape, width, target, journal, **kind, batches=self._batches).build()

    def _judge(self, due: Expected) -> str:
        found = self._world.output()
        if found != due.output:
            missing, extra = due.output - found, found - due.output
            return f"{missing.total()} records missing, {extra.total()} too many"
        if late := self._out_of_order():
            return late
        if self._world.prepared:
            return f"{len(self._world.prepared)} handles are in doubt for ever"
        stored = self._world.cells.load("simulated")
        assert stored is not None
        record = stored.state.record(stored.state.last_decided or 0)
        assert record is not None
        assert record.fingerprint is not None
        counts: dict[str, Counter[int]] = {}
        for id_, parts in self._world.records[record.fingerprint][1].items():
            for part in parts:
                counts.setdefault(id_, Counter()).update(part.state.counts)
        state = {id_: dict(c) for id_, c in counts.items() if c}
        return "" if state == due.counts else "the final state differs"

    def _out_of_order(self) -> str:
        """The order of each key in the target, where every graph of the history keeps it."""
        last: dict[tuple[str, int, int], int] = {}
        for batches in self._world.committed.values():
            for record in (record for batch in batches for record in batch):
                place = sequence(self._built, record)
                if place is None or place[0][0] not in self._ordered:
                    continue
                of, number = place
                if number <= last.get(of, number - 1):
                    return f"of {of} number {number} comes after {last[of]}"
                last[of] = number
        return ""

    def _outcome(self, wrong: str) -> Outcome:
        loops = any(edge.back for n in self._built.graph.nodes.values() for edge in n.inputs)
        return Outcome(
            self._seed,
            self._strategy.name,
            self._steps,
            self._crashes,
            len(self._world.records),
            loops,
            wrong,
        )


class _Hasty(History):
    """One checkpoint after the other, and the process dies after most of them.

    So what a snapshot had in its channels is still on its way when the next one is decided.
    """

    _batches = MOST_BATCHES

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        interval = self._chance.choice((0, 0, 1))
        self._settings = Settings(interval=interval, timeout=10_000, in_flight=1)
        self._decline, self._crashes_left = 0.0, 8

    def _happens(self, run: Run, doom: int) -> Run | None:
        before = run.coordinator.state.decided
        run.step()
        if run.coordinator.state.decided == before or not self._crashes_left:
            return None
        if self._chance.random() >= 0.7:
            return None
        self._crashes_left -= 1
        self._crashes += 1
        return self._start()

    def _arm(self) -> None:
        """It does not die at any other time."""
