"""A history of two processes, of which a lease says who leads: they hang, die, and come back late."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from abs_core.barriers.alignment import STRATEGIES
from abs_core.errors import AbsError
from abs_embedded.lease import Lease
from tests.model.simulation.expected import expected
from tests.model.simulation.history import History, Outcome
from tests.model.simulation.run import Bugs, Run
from tests.model.simulation.world import JOB, Crash, Impatient, Register

SECONDS = 200
"""The lease's length; the clock is the number of the history's steps."""

HANGS = (SECONDS // 2, 2 * SECONDS, 4 * SECONDS)
"""How long a process stands still, or renews nothing; after the longer ones the other one leads."""

MAX_STEPS = 150_000
"""A history that has not ended by then is stuck: nobody leads, or nobody gets on."""


@dataclass(slots=True)
class Process:
    """One that wants to lead; it begins anew after each end.

    Args:
        name: of its present life.
        due: when it looks at the lease next, or renews it.
        asleep: until when it hangs.
        term: the number of its last taking, over both.
        held: when it was last told that it leads.
    """

    name: str
    lease: Lease
    run: Run | None = None
    due: float = 0
    asleep: float = 0
    term: int = 0
    held: float = 0


def simulate_leaders(seed: int, bugs: Bugs | None = None, lease: type[Lease] = Lease) -> Outcome:
    """Run the history of a seed; with planted bugs, of the job or of its lease."""
    chance = Random(seed)
    return _Led(seed, chance, bugs or Bugs(), lease).play()


class _Led(History):
    def __init__(self, seed: int, chance: Random, bugs: Bugs, lease: type[Lease]) -> None:
        strategy = STRATEGIES[chance.choice(tuple(STRATEGIES))]
        super().__init__(seed, strategy, bugs, chance, ordered=False, pausing=False)
        self._new_lease = lease
        self._terms = self._lives = 0
        self._failures = chance.choice((2, 4, 6))
        self._processes = [self._born(), self._born()]
        self._done = False

    def play(self) -> Outcome:
        wrong = ""
        while not (wrong or self._done):
            self._steps += 1
            at = self._chance.randrange(2)
            wrong = self._turn(at)
            if self._steps > MAX_STEPS:
                wrong = "stuck"
        for process in self._processes:  # what hangs comes back once all is done
            process.asleep = process.due = 0
        for _ in range(SECONDS):
            self._steps += 1
            wrong = wrong or self._turn(self._steps % 2)
        if wrong:
            return self._outcome(wrong)
        due = expected(self._built)
        self._start()  # sweeps what is left
        return self._outcome(self._judge(due))

    def _turn(self, at: int) -> str:
        """One process does something; what is wrong."""
        process = self._processes[at]
        if self._steps < process.asleep:
            return ""
        try:
            if process.run is None:
                return self._look(process, self._processes[1 - at])
            if self._failures and self._chance.random() < 0.01:
                return self._trouble(at)
            if self._steps >= process.due and self._chance.random() < 0.05:
                return self._renew(at)
            process.run.step()
            if process.run.closed:
                process.lease.release(done=True)
                self._done, process.run = True, None
        except Crash:
            self._crashes += 1
            self._processes[at] = self._born()
        except AbsError:  # fenced by who leads since
            self._processes[at] = self._born()
        return ""

    def _look(self, process: Process, other: Process) -> str:
        """Of a standby, from time to time."""
        if self._steps < process.due:
            return ""
        process.due = self._steps + SECONDS // 10
        leads = process.lease.attempt()
        self._done = self._done or leads is False  # who ended it may have died before it was told
        if not leads:
            return ""
        if self._done:
            return f"{process.name} leads a job that is done"
        if other.run is not None and self._steps - other.held < SECONDS:
            return f"{process.name} takes over from {other.name}, which has just renewed its lease"
        self._terms += 1
        process.term, process.held = self._terms, self._steps
        process.due = self._steps + SECONDS // 4
        self._arm()
        process.run = self._start()
        return ""

    def _renew(self, at: int) -> str:
        process, other = self._processes[at], self._processes[1 - at]
        if not process.lease.keep():
            self._processes[at] = self._born()
            return ""
        if other.run is not None and other.term > process.term:
            return f"{process.name} has renewed a lease that {other.name} holds"
        process.held, process.due = self._steps, self._steps + SECONDS // 4
        return ""

    def _trouble(self, at: int) -> str:
        self._failures -= 1
        how, until = self._chance.random(), self._steps + self._chance.choice(HANGS)
        if how < 0.3:
            self._crashes += 1
            self._processes[at] = self._born()
        elif how < 0.6:
            self._processes[at].due = until
        else:
            self._processes[at].asleep = until
        return ""

    def _born(self) -> Process:
        self._lives += 1
        name = f"process {self._lives}"
        store = Register(self._world)
        lease = self._new_lease(
            store, JOB, SECONDS, name, Impatient(), clock=lambda: float(self._steps)
        )
        return Process(name, lease)
