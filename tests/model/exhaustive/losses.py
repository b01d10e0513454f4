"""Explores what becomes of a job whose register vanishes, or goes back, at any step.

Runs come one after the other and die anywhere; the checkpoint, with the certificate in it, stays. The
rules are the real ones (``births``, ``protocol``); what is modelled is the order of a run's steps.

**What is left out**: a register that loses exactly its last decision, while the engine has not noted
the epoch. Nothing that is written before a decision can tell that from an epoch that was not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from abs_core import births, protocol
from abs_core.certificate import Certificate, Origin
from abs_core.errors import EpochGapError, FencedError, ProtocolError, RegisterLostError
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Identity, Refused, Skip, Verdict
from tests.model.exhaustive.book import Violated

JOB, PLACE = "job", "here"
OFF, BEGIN, LOAD, CERTIFY, DECIDE, COMMIT, FINISH, AFTERWARDS, NOTE = range(9)
"""What a run does next. ``BEGIN`` is its tasks' step, the others are the commit process's."""

StartRule = Callable[[JobState | None, Identity, str, Origin, int, str], Verdict]


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job goes; tests put a wrong way in place of a right one.

    Args:
        start: the rule by which a run takes the job over.
        certify: makes the certificate.
        first: whether that is written before the run's first decision, not after it.
        epochs: in the source.
        runs: starts, at most.
        losses: how often the register is lost, at most.
    """

    start: StartRule = births.start
    certify: Callable[[JobState, str, int], Certificate] = births.certify
    first: bool = True
    epochs: int = 3
    runs: int = 3
    losses: int = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """One state of the model.

    Args:
        register: what the store holds now.
        held: what it has held before, oldest first.
        top: the highest epoch that was ever decided.
        noted: epochs that the engine's checkpoint holds for done.
        visible: handles whose rows readers see.
        run: number of the present run, or of the last one.
        seen: what this run's commit process knows of the register.
        origin: what its planner has read.
        certified: whether this run has written the certificate.
    """

    register: JobState | None = None
    held: tuple[JobState, ...] = ()
    top: int = -1
    certificate: Certificate | None = None
    noted: int = 0
    visible: frozenset[HandleName] = frozenset()
    run: int = -1
    at: int = OFF
    seen: JobState | None = None
    origin: Origin = field(default_factory=Origin)
    certified: bool = False
    losses: int = 0
    lost: bool = False

    def puts(self, state: JobState) -> Loss:
        """The register holds this state now."""
        held = self.held if self.register is None else (*self.held, self.register)
        top = max(self.top, _last(state))
        return replace(self, register=state, seen=state, held=held, top=top)


def explore_losses(ways: Ways, limit: int = 500_000) -> int:
    """Every history; how many states there are.

    Raises:
        Violated: an epoch is visible twice, or a run is refused although nothing was lost.
    """
    first = Loss(losses=ways.losses)
    came: dict[Loss, tuple[Loss | None, str]] = {first: (None, "")}
    waiting = [first]
    while waiting:
        world = waiting.pop()
        try:
            for what, after in _steps(ways, world):
                if after not in came:
                    came[after] = (world, what)
                    waiting.append(after)
                    _check(after)
        except Violated as violated:
            raise Violated(f"{violated}\n{_history(came, world, what)}") from None
        if len(came) > limit:
            raise AssertionError(f"more than {limit} states")
    ends = [world for world in came if world.noted == ways.epochs]
    if not any(not world.lost for world in ends):
        raise Violated("no run comes to its end")
    return len(came)


def _history(came: dict[Loss, tuple[Loss | None, str]], world: Loss, last: str) -> str:
    steps = [last]
    at: Loss | None = world
    while at is not None:
        at, what = came[at]
        steps.append(what)
    return "\n".join(reversed(steps))


def _check(world: Loss) -> None:
    epochs = [handle.epoch for handle in world.visible]
    for epoch in sorted(set(epochs)):
        if epochs.count(epoch) > 1:
            raise Violated(f"epoch {epoch} is visible {epochs.count(epoch)} times")


def _steps(ways: Ways, world: Loss) -> Iterator[tuple[str, Loss]]:
    if world.losses:
        yield from _losses(world)
    if world.at == OFF:
        if world.run + 1 < ways.runs and world.noted < ways.epochs:
            run = world.run + 1
            begun = replace(world, run=run, at=BEGIN, seen=None, certified=False)
            yield f"run {run} starts", replace(begun, origin=Origin(world.certificate))
        return
    yield f"run {world.run} dies", _off(world)
    try:
        yield f"run {world.run}: {_NAMES[world.at]}", _MOVES[world.at](ways, world)
    except ProtocolError as refused:
        if not world.lost:
            raise Violated(f"nothing was lost, and a run is refused: {refused}") from None
        if not isinstance(refused, RegisterLostError | EpochGapError | FencedError):
            raise Violated(f"refused for another reason: {refused}") from None
        yield f"run {world.run} is refused", _off(world)


def _losses(world: Loss) -> Iterator[tuple[str, Loss]]:
    if world.register is None:
        return
    less = replace(world, losses=world.losses - 1, lost=True)
    yield "the register vanishes", replace(less, register=None, held=())
    for number, old in enumerate(world.held):
        only_the_last = world.top == world.noted and _last(old) == world.top - 1
        if not only_the_last:
            what = f"generation {old.generation}, decided up to {_last(old)}"
            gone = replace(less, register=old, held=world.held[:number])
            yield f"the register goes back to {what}", gone


def _off(world: Loss) -> Loss:
    return replace(world, at=OFF, seen=None, certified=False, origin=Origin())


def _who(world: Loss) -> Identity:
    return Identity(JOB, "lineage", f"run{world.run}", "target")


def _begin(ways: Ways, world: Loss) -> Loss:
    """A task: by the planner's certificate."""
    register = f"{world.run:08x}{world.losses:08x}"
    verdict = ways.start(world.register, _who(world), register, world.origin, world.noted, PLACE)
    if isinstance(verdict, Refused):
        raise verdict.error
    planned = protocol.plan(verdict.state, verdict.state.generation, world.noted)
    if isinstance(planned, Refused):
        raise planned.error
    moved = replace(world, at=LOAD)
    if isinstance(verdict, protocol.Changed):
        moved = replace(moved.puts(verdict.state), seen=world.seen)
    return moved


def _load(ways: Ways, world: Loss) -> Loss:
    """Skips what is decided; rolls forward what is open."""
    state = _looked(world)
    _mine(world, state)
    moved = replace(world, seen=state)
    if state.open:
        return replace(moved, at=COMMIT)
    planned = protocol.plan(state, state.generation, world.noted)
    if isinstance(planned, Refused):
        raise planned.error
    if isinstance(planned, Skip):
        return replace(moved, at=NOTE)
    return replace(moved, at=CERTIFY if ways.first and not world.certified else DECIDE)


def _certify(ways: Ways, world: Loss) -> Loss:
    assert world.seen is not None
    origin = Origin(world.certificate)
    state = world.seen
    verdict = ways.start(state, _who(world), state.register, origin, world.noted, PLACE)
    if isinstance(verdict, Refused):
        raise verdict.error
    certificate = ways.certify(world.seen, PLACE, world.noted)
    at = DECIDE if ways.first else COMMIT
    return replace(world, certificate=certificate, certified=True, at=at)


def _decide(ways: Ways, world: Loss) -> Loss:
    state = _looked(world)
    generation = _mine(world, state)
    epoch = world.noted
    name = HandleName(state.register, JOB, generation, epoch, 0, f"{world.run:x}")
    verdict = protocol.decide(
        state, generation, epoch, [Committable(name, 1, "none:")], fingerprint="f", rows=1
    )
    if isinstance(verdict, Refused):
        raise verdict.error
    late = not ways.first and not world.certified
    return replace(world.puts(verdict.state), at=AFTERWARDS if late else COMMIT)


def _commit(ways: Ways, world: Loss) -> Loss:
    handles = _decision(world).handles
    return replace(world, visible=world.visible | handles, at=FINISH)


def _finish(ways: Ways, world: Loss) -> Loss:
    verdict = protocol.finish(_looked(world), _decision(world))
    if isinstance(verdict, Refused):
        raise verdict.error
    done = _decision(world).epoch == world.noted
    return replace(world.puts(verdict.state), at=NOTE if done else LOAD)


def _note(ways: Ways, world: Loss) -> Loss:
    noted = replace(world, noted=world.noted + 1)
    if noted.noted == ways.epochs:
        return _off(noted)
    return replace(noted, at=BEGIN, origin=Origin(world.certificate))


def _looked(world: Loss) -> JobState:
    if world.seen is not None:
        why = births.went_back(world.register, world.seen)
        if why is not None:
            raise births.gone(JOB, why, PLACE)
    if world.register is None:
        raise births.missing(_who(world), PLACE).error
    return world.register


def _mine(world: Loss, state: JobState) -> int:
    held = protocol.generation_of(state, _who(world))
    if isinstance(held, Refused):
        raise held.error
    return held


def _decision(world: Loss) -> Decision:
    assert world.seen is not None
    assert world.seen.open
    return world.seen.open[0]


def _last(state: JobState) -> int:
    return -1 if state.last_decided is None else state.last_decided


_MOVES: dict[int, Callable[[Ways, Loss], Loss]] = {
    BEGIN: _begin,
    LOAD: _load,
    CERTIFY: _certify,
    DECIDE: _decide,
    COMMIT: _commit,
    FINISH: _finish,
    AFTERWARDS: _certify,
    NOTE: _note,
}
_NAMES = {
    BEGIN: "a task begins",
    LOAD: "the commit process looks",
    CERTIFY: "writes the certificate",
    DECIDE: "decides",
    COMMIT: "commits",
    FINISH: "finishes",
    AFTERWARDS: "writes the certificate afterwards",
    NOTE: "the engine notes the epoch",
}
