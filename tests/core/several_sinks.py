"""One query that writes to three fake systems under one decision, and an engine that runs it.

Its calls go over one wire, which tells them apart by their system: ``b.commit``. An engine dies, or its
run fails and is ended, and the next run goes on with the epoch that was not done.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from abs_core.contracts import RegisterStore, Sink, Task, Writer
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import AbsError, ConfigError, UnavailableError
from abs_core.events import Event
from abs_core.fakes import FakeSink, FakeTarget
from abs_core.model import AND, Committable, Drained, JobState, Share, Wrote
from abs_core.patience import Patience
from abs_core.protocol import Identity, Skip
from abs_core.several import sinkmap
from abs_core.several.composite import CompositeCommitter
from abs_core.testing.calls import SinkBehind
from abs_core.testing.case import rows
from abs_core.testing.cuts import Halted
from abs_core.testing.fault_injection import Wire
from abs_core.testing.harness import Row, batch_of
from tests.core.composing_sink import ComposingSink
from tests.kit.fake_harness import FakeHarness

JOB = "job"
EPOCHS: tuple[tuple[Sequence[Row], ...], ...] = ((rows(0, 3), rows(10, 2)), (rows(20, 3),))
"""Each epoch's rows, by task; every sink gets all of them."""

QUICK = Patience(seconds=2.0, first_pause=0.001)
NONE = Patience(seconds=0.0)

LONG = 1_000_000
"""So many calls are not answered: until it is taken back."""

T = TypeVar("T")


class Line(Wire):
    """A system's calls, on the wire of all."""

    def __init__(self, wire: Wire, system: str) -> None:
        super().__init__()
        self.delayed = wire.delayed
        self.away = 0
        """So many calls are not answered from now on."""
        self.dies_before = ""
        """The kind of call before which the process dies."""
        self._wire = wire
        self._system = system

    def read(self, name: str, call: Callable[[], T]) -> T:
        self._answers(name)
        return self._wire.read(f"{self._system}.{name}", call)

    def write(self, name: str, call: Callable[[], T]) -> T:
        self._answers(name)
        return self._wire.write(f"{self._system}.{name}", call)

    def _answers(self, name: str) -> None:
        if name == self.dies_before:
            raise Halted(f"before {self._system}.{name}")
        if self.away:
            self.away -= 1
            raise UnavailableError(f"The system {self._system} is away.")


class System:
    """A fake system that one sink writes to."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.line = Line(wire, name)
        self._harness = FakeHarness("2pc", "append")
        self._target: FakeTarget = self._harness._target

    def sink(self) -> Sink:
        own = ComposingSink(self._target) if self.name == "c" else self._harness.new_sink()
        return SinkBehind(own, self.line)

    def read(self) -> Counter[Row]:
        return Counter(self._harness.read())

    def leftovers(self) -> Sequence[str]:
        return self._harness.leftovers(JOB)

    def register(self) -> RegisterStore:
        """Past the wire."""
        return FakeSink(self._target, "2pc", "append").register()


@dataclass
class World:
    """Three systems: ``a`` has the register, ``c`` composes what its tasks have staged."""

    wire: Wire = field(default_factory=Wire)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.systems = {name: System(name, self.wire) for name in "abc"}

    def run(self, names: Sequence[str] = "abc", *, patience: Patience = QUICK) -> Run:
        """A new run of the job over these of the systems."""
        chosen = {name: self.systems[name] for name in names}
        return Run(chosen, patience, self.events.append)

    def state(self) -> JobState:
        stored = self.systems["a"].register().load(JOB)
        assert stored is not None
        return stored.state

    def check_whole(self, names: Sequence[str] = "abc") -> None:
        """Each epoch is in all of these exactly once, or in none."""
        for number, parts in enumerate(EPOCHS):
            expected = Counter(row for part in parts for row in part)
            seen = {name: self.systems[name].read() for name in names}
            held = {
                n: Counter({r: c for r, c in s.items() if r in expected}) for n, s in seen.items()
            }
            in_all = all(found == expected for found in held.values())
            assert in_all or not any(held.values()), f"epoch {number} is torn: " + ", ".join(
                f"{found.total()} rows in {name}" for name, found in held.items()
            )

    def check_done(self, epochs: int = len(EPOCHS), names: Sequence[str] = "abc") -> None:
        """Exactly so many epochs are in each of these, once."""
        expected = Counter(row for parts in EPOCHS[:epochs] for part in parts for row in part)
        for name in names:
            found = self.systems[name].read()
            assert found == expected, (
                f"{name}: missing {expected - found}, extra {found - expected}"
            )

    def leftovers(self) -> list[str]:
        return [f"{name}: {left}" for name, s in self.systems.items() for left in s.leftovers()]


class Run:
    """A run of the query, in one process: its tasks and its coordinator.

    Args:
        systems: one sink for each, in this order; the first one has the register.
    """

    def __init__(
        self,
        systems: Mapping[str, System],
        patience: Patience,
        observe: Callable[[Event], None],
    ) -> None:
        self.sinks = {name: system.sink() for name, system in systems.items()}
        identities = tuple((name, f"{name}: {sink.target}") for name, sink in self.sinks.items())
        target = AND.join(target for _, target in identities)
        who = Identity(JOB, "lineage", secrets.token_hex(4), target, sinks=identities)
        first = next(iter(systems.values()))
        stored = first.register().load(JOB)
        mapped = (
            sinkmap.first(identities)
            if stored is None
            else sinkmap.assign(stored.state, identities)
        )
        assert isinstance(mapped, tuple), mapped
        self.numbers = {sink.name: sink.number for sink in mapped if sink.until is None}
        committers = [([self.numbers[name]], s.committer()) for name, s in self.sinks.items()]
        self.coordinator = Coordinator(
            who,
            next(iter(self.sinks.values())).register(),
            CompositeCommitter(committers, sinkmap.number_of, _gone),
            co_commit=False,
            patience=patience,
            observe=observe,
        )
        self.open_writers: list[Writer] = []

    def epoch(self, epoch: int) -> None:
        """All tasks, every sink in each; then commit."""
        shares = self.tasks(epoch)
        self.coordinator.commit(Report(epoch, shares, f"epoch {epoch}"))

    def tasks(self, epoch: int) -> list[Share]:
        """The tasks write and pre-commit; their shares."""
        state, plan = self.coordinator.begin(epoch)
        if isinstance(plan, Skip):
            return [Drained(len(part)) for part in EPOCHS[epoch] for _ in self.sinks]
        return [
            share
            for partition, part in enumerate(EPOCHS[epoch])
            for share in self._task(state, epoch, partition, part)
        ]

    def _task(
        self, state: JobState, epoch: int, partition: int, part: Sequence[Row]
    ) -> list[Share]:
        self.open_writers = [
            sink.writer(self._named(name, state, epoch, partition))
            for name, sink in self.sinks.items()
        ]
        for writer in self.open_writers:
            writer.write(batch_of(part))
        return [Wrote(len(part), writer.pre_commit()) for writer in self.open_writers]

    def _named(self, name: str, state: JobState, epoch: int, partition: int) -> Task:
        place = self.numbers[name] * sinkmap.STRIDE + partition
        who = state.register, JOB, state.generation
        return Task(*who, epoch, place, secrets.token_hex(6), state.frontier, state.abandoned)

    def recover(self, epoch: int) -> None:
        """What a new run does first: it takes over, sweeps, and rolls forward."""
        self.coordinator.begin(epoch)
        self.coordinator.roll_forward()

    def fail(self) -> None:
        """As Spark does with an epoch that failed: writers give up, and the run is ended."""
        for writer in self.open_writers:
            writer.abort()
        with suppress(AbsError):  # it is noted; the next start does it
            self.coordinator.end()


class Query:
    """The engine: it starts run after run until every epoch is done.

    Args:
        begin: makes a run.
    """

    def __init__(self, begin: Callable[[], Run]) -> None:
        self._begin = begin
        self.next = 0

    @property
    def done(self) -> bool:
        return self.next == len(EPOCHS)

    def live(self) -> bool:
        """One run, to its end; whether it died or failed before."""
        try:
            run = self._begin()
        except (Halted, AbsError):
            return False
        try:
            while not self.done:
                run.epoch(self.next)
                self.next += 1
        except Halted:
            return False
        except AbsError as error:
            if not error.retryable:
                raise
            with suppress(Halted):
                run.fail()
            return False
        return True


def _gone(number: int, committable: Committable) -> AbsError:
    return ConfigError(
        f"The sink number {number} is not among this run's.",
        handle=str(committable.handle),
        remedy="run with it once more.",
    )
