"""One query that writes to several systems under one decision, and an engine that runs it.

Its calls go over one wire, which tells them apart by their system: ``b.commit``. An engine dies, or its
run fails and is ended, and the next run goes on with the epoch that was not done.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from abs_core import sinkmap
from abs_core.contracts import RegisterStore, Sink, Task, Writer
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import AbsError, ConfigError, UnavailableError
from abs_core.events import Event
from abs_core.model import AND, Committable, Drained, JobState, Share, Wrote
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, Skip
from abs_core.several import CompositeCommitter
from abs_testing.behind import SinkBehind
from abs_testing.case import rows
from abs_testing.cuts import Halted
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.fault_injection import Wire
from abs_testing.harness import Row, batch_of
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
        self.answers = ""
        """The kind of call that is answered all the same."""
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
        if self.away and name != self.answers:
            self.away -= 1
            raise UnavailableError(f"The system {self._system} is away.")


class System:
    """A system that one sink writes to.

    Args:
        new_sink: builds a sink, as a new process would.
        register: the system's own, past the wire.
        look: what is in it, past the wire.
        dies: what the system makes of a writer whose process dies.
    """

    def __init__(
        self,
        name: str,
        wire: Wire,
        new_sink: Callable[[], Sink],
        register: Callable[[], RegisterStore],
        look: Look,
        dies: Callable[[Writer], None] = lambda writer: None,
    ) -> None:
        self.line = Line(wire, name)
        self.register = register
        self.dies = dies
        self._new_sink = new_sink
        self._look = look

    def sink(self) -> Sink:
        return SinkBehind(self._new_sink(), self.line)

    def read(self) -> Counter[Row]:
        return Counter(self._look.read())

    def leftovers(self) -> Sequence[str]:
        return self._look.leftovers(JOB)


class Look(Protocol):
    """The part of a ``Harness`` that looks at its target."""

    def read(self) -> Iterable[Row]: ...

    def leftovers(self, job: str) -> Sequence[str]: ...


def fake(name: str, wire: Wire) -> System:
    harness = FakeHarness("2pc", "append")
    target: FakeTarget = harness._target
    new_sink = partial(ComposingSink, target) if name == "c" else harness.new_sink
    return System(name, wire, new_sink, FakeSink(target, "2pc", "append").register, harness)


def three_fakes(wire: Wire) -> Mapping[str, System]:
    """``a`` has the register, ``c`` composes what its tasks have staged."""
    return {name: fake(name, wire) for name in "abc"}


@dataclass
class World:
    """Several systems; the first one has the register.

    Args:
        opened: makes them, by name, with their calls going over the wire.
    """

    wire: Wire = field(default_factory=Wire)
    opened: Callable[[Wire], Mapping[str, System]] = three_fakes
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.systems = self.opened(self.wire)

    def run(self, names: Iterable[str] = (), *, patience: Patience = QUICK) -> Run:
        """A new run of the job over these of the systems, or all."""
        chosen = {name: self.systems[name] for name in names or self.systems}
        return Run(chosen, patience, self.events.append)

    def state(self) -> JobState:
        stored = next(iter(self.systems.values())).register().load(JOB)
        assert stored is not None
        return stored.state

    def check_whole(self) -> None:
        """Each epoch is in all systems exactly once, or in none."""
        seen = {name: system.read() for name, system in self.systems.items()}
        for number, parts in enumerate(EPOCHS):
            expected = Counter(row for part in parts for row in part)
            held = {
                n: Counter({r: c for r, c in s.items() if r in expected}) for n, s in seen.items()
            }
            in_all = all(found == expected for found in held.values())
            assert in_all or not any(held.values()), f"epoch {number} is torn: " + ", ".join(
                f"{found.total()} rows in {name}" for name, found in held.items()
            )

    def check_done(self, epochs: int = len(EPOCHS), names: Iterable[str] = ()) -> None:
        """Exactly so many epochs are in each of these, or in all, once."""
        expected = Counter(row for parts in EPOCHS[:epochs] for part in parts for row in part)
        for name in names or self.systems:
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
        self._systems = systems
        self.sinks = {name: system.sink() for name, system in systems.items()}
        identities = tuple((name, f"{name}: {sink.target_id}") for name, sink in self.sinks.items())
        target = AND.join(target for _, target in identities)
        who = RunIdentity(JOB, "lineage", secrets.token_hex(4), target, sinks=identities)
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
            fence=self._fence,
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

    def _fence(self, state: JobState) -> None:
        for sink in self.sinks.values():
            sink.fence(state)

    def die(self) -> None:
        """Its process dies: each system makes of the writers what it does with a dead client's."""
        for system, writer in zip(self._systems.values(), self.open_writers, strict=False):
            system.dies(writer)

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
            run.die()
            return False
        except AbsError as error:
            if not error.retryable:
                raise
            try:
                run.fail()
            except Halted:
                run.die()
            return False
        return True


def _gone(number: int, committable: Committable) -> AbsError:
    return ConfigError(
        f"The sink number {number} is not among this run's.",
        handle=str(committable.handle),
        remedy="run with it once more.",
    )
