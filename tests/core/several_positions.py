"""Every call of a query to several systems, by its position, meets every fault; one a query.

The calls are the contract's: of the register, and of all systems' writers and committers, in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from abs_core.errors import AbsError
from abs_testing.fault_injection import Fault
from tests.core.several_sinks import EPOCHS, NONE, QUICK, Query, Run, World

EARLY, LATE = "delayed until the next run", "delayed beyond the end"
FAULTS = {
    "dies before": Fault.HALTED,
    "dies after": Fault.ENDED,
    "request lost": Fault.LOST,
    "reply lost": Fault.UNANSWERED,
    "doubled": Fault.DOUBLED,
    EARLY: Fault.DELAYED,
    LATE: Fault.DELAYED,
}
READS = ("load", "inspect", "in_doubt")
WRITERS = ("write", "pre_commit")
LIVES = 4
"""How often the engine starts a run again that has failed."""

Opened = Callable[[], AbstractContextManager[World]]
Begin = Callable[[World], Callable[..., Run]]
"""Of a world, what makes a run in it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A call of the query, and what becomes of it."""

    number: int
    call: str
    what: str

    def __str__(self) -> str:
        return f"{self.call} at {self.number}, {self.what}"


@contextmanager
def on_fakes() -> Iterator[World]:
    yield World()


def running(world: World) -> Callable[..., Run]:
    return world.run


def calls(opened: Opened = on_fakes) -> list[str]:
    """The calls of the query without a fault."""
    with opened() as world:
        assert Query(world.run).live()
        world.check_done()
        assert world.leftovers() == []
        return list(world.wire.seen)


def places(seen: Sequence[str], whats: Iterable[str] = FAULTS) -> list[Place]:
    """Every position of a query with these calls."""
    return [
        Place(number, call, what)
        for what in whats
        for number, call in enumerate(seen)
        if may_be(FAULTS[what], call)
    ]


def may_be(fault: Fault, call: str) -> bool:
    kind = call.partition(".")[2]
    if kind in READS:
        return fault in (Fault.HALTED, Fault.LOST)
    return fault is not Fault.DOUBLED or kind not in WRITERS


def meet(place: Place, opened: Opened = on_fakes, begin: Begin = running) -> None:
    """A query whose call meets the fault; after every run that ends, look."""
    with opened() as world:
        world.wire.planned.extend([*[Fault.NONE] * place.number, FAULTS[place.what]])
        query = Query(partial(begin(world), patience=NONE if place.what == EARLY else QUICK))
        for _ in range(LIVES):
            if query.live():
                break
            if place.what == EARLY:
                deliver(world)
            recovered = begin(world)()
            recovered.recover(query.next)
            world.check_whole()
        assert query.done, "the query does not get to its end"
        assert not world.wire.planned, "the call did not come"
        world.check_done()
        deliver(world)
        world.check_done()
        last = len(EPOCHS) - 1
        begin(world)().epoch(last)
        world.check_done()
        begin(world)().recover(last + 1)  # a start sweeps
        world.check_done()
        assert world.leftovers() == []


def deliver(world: World) -> None:
    while world.wire.delayed:
        world.wire.deliver(0)


def meet_all(
    chosen: Sequence[Place], opened: Opened = on_fakes, begin: Begin = running, at_once: int = 1
) -> None:
    """Each of these; one line for each that breaks a rule.

    Args:
        at_once: how many queries run at the same time, each in a thread.
    """

    def broken(place: Place) -> str:
        try:
            meet(place, opened, begin)
        except (AssertionError, AbsError) as error:
            return f"{place}: {type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(at_once) as pool:
        failures = [line for line in pool.map(broken, chosen) if line]
    assert chosen, "no position was chosen"
    assert not failures, f"{len(failures)} of {len(chosen)}:\n" + "\n".join(failures)
