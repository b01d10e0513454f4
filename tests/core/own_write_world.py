"""A small world of ``abs_core.ownwrite``: registers, checkpoints, a target, writes that arrive late.

The register's states are real, and all verdicts come from the real rules. What is modelled is the rest:
the steps of a run, the user's two functions, and writes under way, which take effect at any later time
or never, whether or not their client is still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births import targets
from abs_core.certificate import Certificate, Origin
from abs_core.errors import FencedError
from abs_core.lookback import EPOCHS, past_of
from abs_core.model import HandleName, JobState
from abs_core.ownwrite import OwnWrite, begin_of, is_applied, token_of
from abs_core.protocol import Changed, Refused, RunIdentity, Skip

JOB, PLACE = "job", "place"


class Flight(NamedTuple):
    """A write under way; ``seen`` is the fence that its client saw last."""

    begin: HandleName
    version: int
    seen: int


class Target(NamedTuple):
    """What one transaction of the target changes; ``rows``: how often each epoch is there."""

    version: int | None
    fence: int
    rows: tuple[int, ...]

    def with_rows(self, epoch: int) -> Target:
        rows = list(self.rows)
        rows[epoch] += 1
        return self._replace(rows=tuple(rows))


class Run(NamedTuple):
    """One run: its next step, its epoch, the begin of it, and what it knows."""

    step: str = "off"
    epoch: int = 0
    begin: HandleName | None = None
    generation: int = 0
    seen: int = 0
    applied: bool = False


class World(NamedTuple):
    register: JobState | None
    certificate: Certificate | None
    target: Target
    runs: tuple[Run, ...]
    flights: tuple[Flight, ...]
    noted: int
    """The last epoch that the engine's checkpoint has as done; -1: none."""
    lost: bool = False


@dataclass(frozen=True)
class Recipe:
    """The user's two functions: what a look returns and changes, and what an arriving write does."""

    look: Callable[[Target], tuple[int | None, Target]] = lambda target: (target.version, target)
    land: Callable[[Target, Flight], Target] = lambda target, _: target
    fences_later: bool = False


def _on_condition(target: Target, flight: Flight) -> Target:
    if target.version is not None and target.version >= flight.version:
        return target
    return target.with_rows(flight.begin.epoch)._replace(version=flight.version)


def _on_fence(target: Target, flight: Flight) -> Target:
    if target.fence != flight.seen:
        return target
    return target.with_rows(flight.begin.epoch)._replace(version=flight.version)


def _always(target: Target, flight: Flight) -> Target:
    return target.with_rows(flight.begin.epoch)._replace(version=flight.version)


def _raise_fence(target: Target) -> Target:
    return target._replace(fence=target.fence + 1)


CONDITION = Recipe(land=_on_condition)
FENCE = Recipe(lambda target: (target.version, _raise_fence(target)), _on_fence)
UNCONDITIONAL = Recipe(land=_always)
ERASING = Recipe(lambda t: (t.version, _raise_fence(t)._replace(version=None)), _on_fence)
LOOK_THEN_FENCE = Recipe(land=_on_fence, fences_later=True)


@dataclass(frozen=True)
class Configuration:
    """What is explored.

    Args:
        loses: the register may vanish, once.
        goes_back: a run may begin with any epoch that the checkpoint had, as when it is restored.
        certified: whether certificates are looked at (a planted bug: they are not).
        kept: whether a begin keeps its version (a planted bug: it has that of the present generation).
    """

    recipe: Recipe
    runs: int = 2
    epochs: int = 2
    loses: bool = False
    goes_back: bool = False
    certified: bool = True
    kept: bool = True


class Violated(AssertionError):  # noqa: N818 - the name says what happened
    """An epoch is in the target twice, or is taken for written and is not, or a start is refused."""


def explore(config: Configuration) -> int:
    """Visit every world; return their number.

    Raises:
        Violated: with the shortest history that leads there.
    """
    start = World(
        None, None, Target(None, 0, (0,) * config.epochs), (Run(),) * config.runs, (), noted=-1
    )
    parents: dict[World, tuple[World, str] | None] = {start: None}
    todo = deque([start])
    while todo:
        world = todo.popleft()
        try:
            following = list(steps(config, world))
        except Violated as refused:
            raise Violated("\n".join([*_history(parents, world), str(refused)])) from refused
        for what, after in following:
            if after in parents:
                continue
            parents[after] = world, what
            why = _broken(after)
            if why is not None:
                raise Violated("\n".join([*_history(parents, after), why]))
            todo.append(after)
    return len(parents)


def _broken(world: World) -> str | None:
    state = world.register
    done = -1 if state is None or state.frontier is None else state.frontier
    for epoch, times in enumerate(world.target.rows):
        if times > 1:
            return f"epoch {epoch} is there {times} times"
        if times == 0 and epoch <= max(done, world.noted):
            return f"epoch {epoch} is taken for written"
    return None


def _history(parents: dict[World, tuple[World, str] | None], world: World) -> Sequence[str]:
    lines = []
    while (parent := parents[world]) is not None:
        world, what = parent
        lines.append(what)
    return lines[::-1]


def steps(config: Configuration, world: World) -> Iterator[tuple[str, World]]:
    """All that can happen next."""
    for number, run in enumerate(world.runs):
        if run.step == "dead" or (run.step == "off" and number and world.runs[number - 1] == Run()):
            continue
        for what, after in _run_steps(config, world, number, run):
            yield f"run {number}: {what}", after
        if run.step != "off":
            yield f"run {number}: dies", _with(world, number, Run("dead"))
    for place, flight in enumerate(world.flights):
        left = world._replace(flights=world.flights[:place] + world.flights[place + 1 :])
        epoch = flight.begin.epoch
        yield f"a write of epoch {epoch} is lost", left
        landed = left._replace(target=config.recipe.land(world.target, flight))
        yield f"a write of epoch {epoch} arrives, its reply does not", landed
        for number, run in enumerate(world.runs):
            if run.step == "wait" and run.begin == flight.begin and run.seen == flight.seen:
                yield f"run {number}: its write is done", _with(landed, number, _at(run, "verify"))
    if config.loses and not world.lost and world.register is not None:
        yield "the register is lost", world._replace(register=None, lost=True)


def _run_steps(
    config: Configuration, world: World, number: int, run: Run
) -> Iterator[tuple[str, World]]:
    match run.step:
        case "off":
            firsts = range(world.noted + 2) if config.goes_back else [world.noted + 1]
            for epoch in firsts:
                if epoch < config.epochs:
                    yield f"starts at epoch {epoch}", _started(config, world, number, epoch)
        case "plan":
            yield _planned(config, world, number, run)
        case "certify":
            yield "writes the certificate", _certified(world, number, run, "inspect")
        case "inspect done":
            yield _decided(world, number, run)
        case "look done":
            yield "goes on", _with(world, number, _at(run, "finish" if run.applied else "send"))
        case "verify done":
            then = _at(run, "finish") if run.applied else Run("dead")
            yield "knows what has become of its write", _with(world, number, then)
        case _:
            yield from _look_or_write(config, world, number, run)


def _look_or_write(
    config: Configuration, world: World, number: int, run: Run
) -> Iterator[tuple[str, World]]:
    match run.step:
        case "inspect" | "look" | "verify":
            version, target = config.recipe.look(world.target)
            there = is_applied(version, _begun(run)) and _version(config, run) <= (version or 0)
            then = run._replace(step=f"{run.step} done", seen=target.fence, applied=there)
            if config.recipe.fences_later:
                then = _at(then, f"{run.step} fence")
            yield f"looks: {there}", _with(world._replace(target=target), number, then)
        case "inspect fence" | "look fence" | "verify fence":
            target = _raise_fence(world.target)
            then = run._replace(step=run.step.replace("fence", "done"), seen=target.fence)
            yield "fences", _with(world._replace(target=target), number, then)
        case "send":
            flight = Flight(_begun(run), _version(config, run), run.seen)
            sent = world._replace(flights=tuple(sorted((*world.flights, flight))))
            yield "writes", _with(sent, number, _at(run, "wait"))
        case "wait":
            yield "its write fails", _with(world, number, _at(run, "verify"))
        case "finish":
            yield _finished(world, number, run)
        case "note":
            noted = _certified(world, number, run, "tell") if world.register else world
            yield "notes it", _with(noted, number, _at(run, "tell"))
        case "tell":
            told = world._replace(noted=max(world.noted, run.epoch))
            more = run.epoch + 1 < config.epochs
            then = Run("plan", run.epoch + 1, None, run.generation) if more else Run("dead")
            yield f"epoch {run.epoch} is done", _with(told, number, then)


def _started(config: Configuration, world: World, number: int, epoch: int) -> World:
    who, register = _who(number), f"{number:016x}"
    origin = Origin(world.certificate if config.certified else None)
    verdict = _start(world.register, who, register, origin, epoch)
    if isinstance(verdict, Refused):
        return _refused(world, number)
    if world.register is None and world.target.version is not None:
        newest = divmod(world.target.version, EPOCHS)
        if targets.lost(who, origin, epoch, newest, PLACE) is not None:
            return _refused(world, number)
    before = targets.continues(world.register, verdict)
    if before is not None:
        version = world.target.version
        own = OwnWrite(_nothing, lambda application: version)
        if targets.refused(before, who, epoch, own.look_back(past_of(before))) is not None:
            return _refused(world, number)
    state = verdict.state
    then = Run("plan", epoch, None, state.generation)
    return _with(world._replace(register=state), number, then)


def _refused(world: World, number: int) -> World:
    if not world.lost:
        raise Violated("a start is refused, and nothing was lost")
    return _with(world, number, Run("dead"))


def _planned(config: Configuration, world: World, number: int, run: Run) -> tuple[str, World]:
    state = world.register
    if state is None:
        return "its register is gone", _with(world, number, Run("dead"))
    planned = protocol.plan(state, run.generation, run.epoch, gaps_allowed=True)
    if isinstance(planned, Refused):
        assert isinstance(planned.error, FencedError)
        return "is fenced", _with(world, number, Run("dead"))
    if isinstance(planned, Skip):
        decision = state.decision(run.epoch)
        if decision is None:
            return "skips", _with(world, number, _at(run, "note"))
        begin = decision.committables[0].handle
        return "finds a begin", _with(world, number, run._replace(step="look", begin=begin))
    begin = HandleName(state.register, JOB, run.generation, run.epoch, 0, f"{number:x}")
    return "has a new epoch", _with(world, number, run._replace(step="certify", begin=begin))


def _decided(world: World, number: int, run: Run) -> tuple[str, World]:
    state, begin = world.register, _begun(run)
    if state is None or state.run != _who(number).run:
        return "is fenced", _with(world, number, Run("dead"))
    if run.applied:
        assert world.lost, "a begin that is new is there already"
        return "is refused", _with(world, number, Run("dead"))
    verdict = _decide(state, begin)
    if not isinstance(verdict, Changed):
        return "is refused", _with(world, number, Run("dead"))
    return "begins", _with(world._replace(register=verdict.state), number, _at(run, "send"))


def _finished(world: World, number: int, run: Run) -> tuple[str, World]:
    state = world.register
    if state is None or state.register != _begun(run).register:
        return "its register is gone", _with(world, number, Run("dead"))
    decision = next((d for d in state.open if _begun(run) in d.handles), None)
    if decision is not None:
        shown = OwnWrite(_nothing, lambda _: None).shown(decision.committables)
        verdict = protocol.finish(state, decision, shown)
        assert isinstance(verdict, Changed)
        world = world._replace(register=verdict.state)
    return "records", _with(world, number, _at(run, "note"))


def _certified(world: World, number: int, run: Run, then: str) -> World:
    state = world.register
    if state is None or state.run != _who(number).run:
        return _with(world, number, Run("dead"))
    certificate = births.certify(state, PLACE, run.epoch)
    return _with(world._replace(certificate=certificate), number, _at(run, then))


def _version(config: Configuration, run: Run) -> int:
    begin = _begun(run)
    return token_of(begin if config.kept else replace(begin, generation=run.generation)).version


def _begun(run: Run) -> HandleName:
    assert run.begin is not None
    return run.begin


def _at(run: Run, step: str) -> Run:
    return run._replace(step=step)


def _with(world: World, number: int, run: Run) -> World:
    runs = (*world.runs[:number], run, *world.runs[number + 1 :])
    return world._replace(runs=runs)


def _nothing(rows: object, token: object) -> None:
    """The model writes by itself."""


@cache
def _who(number: int) -> RunIdentity:
    return RunIdentity(JOB, "lineage", f"run {number}", "target", checkpoint="checkpoint")


@cache
def _start(
    state: JobState | None, who: RunIdentity, register: str, origin: Origin, epoch: int
) -> protocol.Verdict:
    return births.start(state, who, register, origin, epoch, PLACE)


@cache
def _decide(state: JobState, begin: HandleName) -> protocol.Verdict:
    return protocol.decide(
        state,
        state.generation,
        begin.epoch,
        [begin_of(begin)],
        fingerprint=f"sha256:{begin.epoch}",
        rows=0,
        gaps_allowed=True,
    )
