"""Explores what becomes of a job whose register vanishes, or goes back, at any step.

Runs come one after the other and die anywhere; the checkpoint, with the certificate in it, stays, but
may refuse to have it written. The rules are the real ones (``births``, ``protocol``); what is modelled
is the order of a run's steps. An engine may leave epochs out (``Ways.gaps``): there each epoch is told
to the certificate before the engine may note it.

**What is left out**: a register that loses exactly its last decision, while the engine has not noted
the epoch: nothing that is written before a decision can tell that from an epoch that was not decided.
Where no certificate can be written the first decision is lost so with the whole register, too. And a
checkpoint that could not be written from the first epoch on, and can be once the register is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births.certificate import Certificate, Origin
from abs_core.errors import EpochGapError, FencedError, ProtocolError, RegisterLostError
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Identity, Refused, Skip, Verdict
from tests.model.exhaustive.book import Violated

JOB, PLACE = "job", "here"
OFF, BEGIN, LOAD, CERTIFY, DECIDE, COMMIT, FINISH, AFTERWARDS, TELL, NOTE = range(10)
"""What a run does next. ``BEGIN`` is its tasks' step, the others are the commit process's."""

StartRule = Callable[[JobState | None, Identity, str, Origin, int, str], Verdict]
Uncertified = Callable[[JobState, Identity, Origin, int, str, str], Refused | None]


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job goes; tests put a wrong way in place of a right one.

    Args:
        start: the rule by which a run takes the job over.
        certify: makes the certificate.
        first: whether that is written before the run's first decision, not after it.
        uncertified: whether a run may decide although its certificate could not be written.
        gaps: whether the engine may leave epochs out.
        tells: whether each epoch is told to the certificate, where the engine may do so.
        stops: whether a run ends where that fails.
        epochs: in the source.
        runs: starts, at most.
        losses: how often the register is lost, at most.
        full: whether no certificate can ever be written.
        refusals: how often one that is there cannot be written anew, at most.
    """

    start: StartRule = births.start
    certify: Callable[[JobState, str, int], Certificate] = births.certify
    first: bool = True
    uncertified: Uncertified = births.uncertified
    gaps: bool = False
    tells: bool = True
    stops: bool = True
    epochs: int = 3
    runs: int = 3
    losses: int = 1
    full: bool = False
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """One state of the model.

    Args:
        register: what the store holds now.
        held: what it has held before, oldest first.
        top: the highest epoch that was ever decided.
        below: the one that was decided before it.
        begun: the highest epoch that a task has begun: it is not left out when it comes again.
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
    below: int = -1
    begun: int = -1
    certificate: Certificate | None = None
    noted: int = 0
    visible: frozenset[HandleName] = frozenset()
    run: int = -1
    at: int = OFF
    seen: JobState | None = None
    origin: Origin = field(default_factory=Origin)
    certified: bool = False
    losses: int = 0
    refusals: int = 0
    lost: bool = False

    def puts(self, state: JobState) -> Loss:
        """The register holds this state now."""
        held = self.held if self.register is None else (*self.held, self.register)
        decided = _last(state)
        top, below = (decided, self.top) if decided > self.top else (self.top, self.below)
        return replace(self, register=state, seen=state, held=held, top=top, below=below)


def explore_losses(ways: Ways, limit: int = 500_000) -> int:
    """Every history; how many states there are.

    Raises:
        Violated: an epoch is visible twice, or a run is refused although nothing was lost.
    """
    first = Loss(losses=ways.losses, refusals=ways.refusals)
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
        yield from _losses(ways, world)
    if world.at == OFF:
        if world.run + 1 < ways.runs and world.noted < ways.epochs:
            run = world.run + 1
            begun = replace(world, run=run, at=BEGIN, seen=None, certified=False)
            yield f"run {run} starts", replace(begun, origin=Origin(world.certificate))
        return
    yield f"run {world.run} dies", _off(world)
    if world.at == BEGIN and ways.gaps and world.noted > world.begun:
        yield f"epoch {world.noted} is left out", _noted(ways, world)
    if world.at in _WRITES and (ways.full or (world.refusals and world.certificate)):
        less = replace(world, refusals=0 if ways.full else world.refusals - 1)
        yield from _moved(less, "cannot write the certificate", lambda: _in_vain(ways, less))
        if ways.full:
            return
    yield from _moved(world, _NAMES[world.at], lambda: _MOVES[world.at](ways, world))


def _moved(world: Loss, what: str, move: Callable[[], Loss]) -> Iterator[tuple[str, Loss]]:
    """What becomes of the run by this step."""
    try:
        yield f"run {world.run}: {what}", move()
    except ProtocolError as refused:
        if not world.lost:
            raise Violated(f"nothing was lost, and a run is refused: {refused}") from None
        if not isinstance(refused, RegisterLostError | EpochGapError | FencedError):
            raise Violated(f"refused for another reason: {refused}") from None
        yield f"run {world.run} is refused", _off(world)


def _losses(ways: Ways, world: Loss) -> Iterator[tuple[str, Loss]]:
    if world.register is None:
        return
    less = replace(world, losses=world.losses - 1, lost=True)
    undone = world.top == world.noted
    if not (ways.full and undone and world.below == -1):
        yield "the register vanishes", replace(less, register=None, held=())
    for number, old in enumerate(world.held):
        if not (undone and _last(old) == world.below):
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
    state = verdict.state
    planned = protocol.plan(state, state.generation, world.noted, gaps_allowed=ways.gaps)
    if isinstance(planned, Refused):
        raise planned.error
    moved = replace(world, at=LOAD, begun=max(world.begun, world.noted))
    if isinstance(verdict, protocol.Changed):
        moved = replace(moved.puts(state), seen=world.seen)
    return moved


def _load(ways: Ways, world: Loss) -> Loss:
    """Skips what is decided; rolls forward what is open."""
    state = _looked(world)
    _mine(world, state)
    moved = replace(world, seen=state)
    if state.open:
        return replace(moved, at=COMMIT)
    planned = protocol.plan(state, state.generation, world.noted, gaps_allowed=ways.gaps)
    if isinstance(planned, Refused):
        raise planned.error
    if isinstance(planned, Skip):
        return replace(moved, at=_once_done(ways))
    return replace(moved, at=CERTIFY if ways.first and not world.certified else DECIDE)


def _certify(ways: Ways, world: Loss) -> Loss:
    state = _checked(ways, world)
    certificate = ways.certify(state, PLACE, world.noted)
    at = DECIDE if ways.first else COMMIT
    return replace(world, certificate=certificate, certified=True, at=at)


def _checked(ways: Ways, world: Loss) -> JobState:
    """The register as it was looked at, which goes with the certificate."""
    assert world.seen is not None
    state, origin = world.seen, Origin(world.certificate)
    verdict = ways.start(state, _who(world), state.register, origin, world.noted, PLACE)
    if isinstance(verdict, Refused):
        raise verdict.error
    return state


def _tell(ways: Ways, world: Loss) -> Loss:
    assert world.seen is not None
    return replace(world, certificate=ways.certify(world.seen, PLACE, world.noted), at=NOTE)


def _in_vain(ways: Ways, world: Loss) -> Loss:
    """The certificate cannot be written."""
    if world.at == TELL:
        return _off(world) if ways.stops else replace(world, at=NOTE)
    state = _checked(ways, world)
    if ways.gaps and ways.stops:
        return _off(world)
    origin = Origin(world.certificate)
    refused = ways.uncertified(state, _who(world), origin, world.noted, PLACE, "It is full.")
    if refused is None:
        return replace(world, at=DECIDE)
    if ways.full:
        raise refused.error
    return _off(world)


def _decide(ways: Ways, world: Loss) -> Loss:
    state = _looked(world)
    generation = _mine(world, state)
    epoch = world.noted
    name = HandleName(state.register, JOB, generation, epoch, 0, f"{world.run:x}")
    committables = [Committable(name, 1, "none:")]
    verdict = protocol.decide(
        state,
        generation,
        epoch,
        committables,
        fingerprint="f",
        rows=1,
        gaps_allowed=ways.gaps,
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
    return replace(world.puts(verdict.state), at=_once_done(ways) if done else LOAD)


def _once_done(ways: Ways) -> int:
    return TELL if ways.gaps and ways.tells else NOTE


def _noted(ways: Ways, world: Loss) -> Loss:
    noted = replace(world, noted=world.noted + 1)
    if noted.noted == ways.epochs:
        return _off(noted)
    # An engine that leaves epochs out is one process: it has read the checkpoint as it began.
    origin = world.origin if ways.gaps else Origin(world.certificate)
    return replace(noted, at=BEGIN, origin=origin)


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
    TELL: _tell,
    NOTE: _noted,
}
_WRITES = (CERTIFY, TELL)
_NAMES = {
    BEGIN: "a task begins",
    LOAD: "the commit process looks",
    CERTIFY: "writes the certificate",
    DECIDE: "decides",
    COMMIT: "commits",
    FINISH: "finishes",
    AFTERWARDS: "writes the certificate afterwards",
    TELL: "tells the certificate of the epoch",
    NOTE: "the engine notes the epoch",
}
