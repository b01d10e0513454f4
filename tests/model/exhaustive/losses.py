"""Explores what becomes of a job whose register vanishes, or goes back, at any step.

Runs come one after the other and die anywhere; the checkpoint, with the certificate in it, stays, but
may refuse to have it written some times. Every other write may take effect without an answer; one that
fails without effect is the same step a moment later. The rules are the real ones (``births``,
``protocol``); what is modelled is the order of a run's steps. An engine may leave epochs out
(``Ways.gaps``): there each epoch is told to the certificate before the engine may note it.

An operator may consent to go on without the register (``Ways.consents``), and does all that the error
asks for: cleans the target from the named epoch on, and finishes what a register that went back holds
open. From then on nothing counts as lost. The token stays in the options of all later runs. Where the
target went back with the register (``Ways.restores``), the operator does what the error names for that:
takes the epochs that are gone out of the checkpoint. A target may also go back by itself
(``Ways.backs``), see ``going_back``.

**What is left out**, since no rule of the next run can tell it from a history without a loss:

- A register that loses exactly its last decision, while the engine has not noted the epoch: it is then
  as before that decision, which may as well never have been made. Where no certificate can be written
  the first decision is lost so with the whole register, too.
- All decisions of a job that was never certified (each certificate was refused, which is a warning as
  long as the gap rule guards the job), while the last epoch is decided and not noted, and the
  checkpoint can be written again by the next run. That run is given what a query is given that uses
  this sink for the first time: no register, a readable checkpoint without a certificate, an epoch. It
  mints, so the epoch is written twice: I3 holds for each register, and there are two. This is the loss
  of register and certificate together, which docs/explanation/protocol.md names as undetected.
  ``Ways.unseen`` explores it, and the double epoch is found. Every smaller loss of such a job is
  explored: the gap rule finds a register that went back to any decision, and what is noted is never
  doubled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from abs_core import protocol, sinkmap
from abs_core.births import rules as births
from abs_core.certificate import Origin
from abs_core.errors import (
    EpochGapError,
    FencedError,
    HandleLostError,
    IdentityError,
    ProtocolError,
    RegisterLostError,
    TargetWentBackError,
)
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Refused, RunIdentity, Skip
from tests.model.exhaustive import going_back
from tests.model.exhaustive.book import Violated
from tests.model.exhaustive.histories import explore_histories
from tests.model.exhaustive.loss import (
    AFTERWARDS,
    BEGIN,
    CERTIFY,
    COMMIT,
    DECIDE,
    FINISH,
    LOAD,
    NOTE,
    OFF,
    TELL,
    Loss,
    Ways,
    last,
)

_LOST = (
    RegisterLostError,
    TargetWentBackError,
    HandleLostError,
    EpochGapError,
    FencedError,
    IdentityError,
)
"""How a run may be refused once something was lost."""

JOB, PLACE = "job", "here"
SINKS = (("one", "this target"), ("two", "that target"))


def explore_losses(ways: Ways, limit: int = 500_000) -> int:
    """Every history; how many states there are.

    Raises:
        Violated: an epoch is visible twice, one that is noted is not visible, or a run is refused
            although nothing was lost.
    """
    first = Loss(
        losses=ways.losses,
        refusals=ways.refusals,
        unheard=ways.unheard,
        consents=ways.consents,
        backs=ways.backs,
    )
    came = explore_histories(first, partial(_steps, ways), partial(_check, ways), limit)
    ends = [world for world in came if world.noted == ways.epochs]
    if not any(not world.lost for world in ends):
        raise Violated("no run comes to its end")
    return len(came)


def _check(ways: Ways, world: Loss) -> None:
    written = Counter((handle.epoch, handle.partition) for handle in world.visible)
    for (epoch, _), times in sorted(written.items()):
        if times > 1:
            raise Violated(f"epoch {epoch} is visible {times} times")
    if ways.gaps or world.restored or ways.backs:
        return  # some were left out; or the target lacks them, and the next start says so
    for epoch, partition in product(range(world.noted), _partitions(ways)):
        if not written[epoch, partition]:
            raise Violated(f"epoch {epoch} is noted, and not visible")


def _steps(ways: Ways, world: Loss) -> Iterator[tuple[str, Loss]]:
    if world.losses:
        yield from _losses(ways, world)
    yield from going_back.steps(ways, world)
    if world.at == OFF:
        if world.run + 1 < ways.runs and world.noted < ways.epochs:
            run = world.run + 1
            begun = world._replace(run=run, at=BEGIN, seen=None, certified=False)
            yield f"run {run} starts", begun._replace(origin=Origin(world.certificate))
        return
    yield f"run {world.run} dies", _off(world)
    if world.at == BEGIN and ways.gaps and world.noted > world.begun:
        yield f"epoch {world.noted} is left out", _noted(ways, world)
    refuses = world.refusals and (world.certificate or ways.first_too)
    if world.at in _WRITES and (ways.full or refuses):
        less = world._replace(refusals=0 if ways.full else world.refusals - 1)
        yield from _moved(ways, less, "cannot write the certificate", lambda: _in_vain(ways, less))
        if ways.full:
            return
    if world.unheard and world.at != NOTE:
        less = world._replace(unheard=world.unheard - 1)
        yield from _moved(
            ways, less, f"{_NAMES[world.at]}, and hears nothing", lambda: _unheard(ways, less)
        )
    yield from _moved(ways, world, _NAMES[world.at], lambda: _MOVES[world.at](ways, world))


def _moved(
    ways: Ways, world: Loss, step: str, move: Callable[[], Loss]
) -> Iterator[tuple[str, Loss]]:
    """What becomes of the run by this step."""
    what = f"run {world.run}: {step}"
    try:
        yield what, move()
    except ProtocolError as refused:
        if not world.lost:
            raise Violated(f"{what}: nothing was lost, and it is refused: {refused}") from None
        if not isinstance(refused, _LOST):
            raise Violated(f"refused for another reason: {refused}") from None
        yield f"run {world.run} is refused", _off(world)
        if isinstance(refused, TargetWentBackError):
            for way, after in going_back.ways_out(ways, world, refused):
                yield f"run {world.run} is refused; {way}", _off(after)
            return
        trimmed = re.search("commits/ from ([0-9]+) on", refused.remedy)
        if world.consents and world.restored and trimmed:
            what = f"run {world.run} is refused; the operator trims the checkpoint"
            yield what, _off(world)._replace(noted=int(trimmed[1]), restored=False)
        elif world.consents and "adopt=" in refused.remedy:
            yield f"run {world.run} is refused; the operator consents", _consent(world, refused)
        elif world.consents and "abs job reset" in refused.remedy:
            yield f"run {world.run} is refused; the operator resets the job", _reset(ways, world)
        if "abs in-doubt commit" in refused.remedy:
            yield f"run {world.run} is refused; the operator commits", _off(_in_doubt_commit(world))


def _losses(ways: Ways, world: Loss) -> Iterator[tuple[str, Loss]]:
    if world.register is None or (ways.restores and world.at != OFF):
        return  # no run outlives the restore of its database
    less = world._replace(losses=world.losses - 1, lost=True)
    undone = world.top == world.noted
    anew = undone and ways.first_too and world.certificate is None and not ways.unseen
    if not (anew or (ways.full and undone and world.below == -1)):
        yield "the register vanishes", less._replace(register=None, held=())
    for number, old in enumerate(world.held):
        if not ((undone and last(old) == world.below) or (anew and last(old) == -1)):
            what = f"generation {old.generation}, decided up to {last(old)}"
            gone = less._replace(register=old, held=world.held[:number])
            yield f"the register goes back to {what}", _restored(gone) if ways.restores else gone


def _restored(world: Loss) -> Loss:
    """The target has what its register has decided, as one restored from a copy of its disk."""
    assert world.register is not None
    decided = last(world.register)
    kept = frozenset(handle for handle in world.visible if handle.epoch <= decided)
    return world._replace(visible=kept, restored=world.noted > decided + 1)


def _reset(ways: Ways, world: Loss) -> Loss:
    """The operator cleans the target from this epoch on, and deletes register and certificate."""
    done = _off(_in_doubt_commit(world))
    kept = frozenset(handle for handle in done.visible if handle.epoch < done.noted)
    begun = done._replace(visible=kept, register=None, held=(), certificate=None, top=-1, below=-1)
    # Where no certificate can ever be written the next start asks again.
    return begun._replace(lost=ways.full, consents=0)


def _consent(world: Loss, refused: ProtocolError) -> Loss:
    """The operator cleans the target from this epoch on, and sets the token that the error names."""
    token = refused.remedy.partition("adopt=")[2][:12]
    kept = frozenset(handle for handle in world.visible if handle.epoch < world.noted)
    left = world.consents - 1
    return _off(world)._replace(visible=kept, adopt=token, consents=left, restored=False)


def _in_doubt_commit(world: Loss) -> Loss:
    """The operator finishes what the register holds open."""
    state, visible = world.register, world.visible
    assert state is not None
    for decision in state.open:
        finished = protocol.finish(state, decision)
        assert isinstance(finished, protocol.Changed), finished
        state, visible = finished.state, visible | decision.handles
    return world._replace(register=state, visible=visible)


def _off(world: Loss) -> Loss:
    return world._replace(at=OFF, seen=None, certified=False, tried=False, origin=Origin())


def _who(ways: Ways, world: Loss) -> RunIdentity:
    sinks = SINKS if ways.several else ()
    return RunIdentity(JOB, "lineage", f"run{world.run}", "target", adopt=world.adopt, sinks=sinks)


def _partitions(ways: Ways) -> list[int]:
    """Of the handles of an epoch: one of each sink."""
    return [number * sinkmap.STRIDE for number in range(len(SINKS) if ways.several else 1)]


def _begin(ways: Ways, world: Loss) -> Loss:
    """A task: by the planner's certificate."""
    register = f"{world.run:08x}{world.losses:08x}"
    who = _who(ways, world)
    verdict = ways.start(world.register, who, register, world.origin, world.noted, PLACE)
    if isinstance(verdict, Refused):
        raise verdict.error
    if ways.backs and isinstance(verdict, protocol.Changed):
        verdict = going_back.at_start(ways, world, who, verdict)
        assert not isinstance(verdict, Refused)
    state = verdict.state
    if births.why_lost(world.register, who, world.origin, world.noted) is not None:
        # By consent: the job begins anew.
        world = world._replace(lost=False, top=-1, below=-1)
    planned = protocol.plan(state, state.generation, world.noted, gaps_allowed=ways.gaps)
    if isinstance(planned, Refused):
        raise planned.error
    moved = world._replace(at=LOAD, begun=max(world.begun, world.noted))
    if isinstance(verdict, protocol.Changed):
        moved = moved.puts(state)._replace(seen=world.seen)
    return moved


def _load(ways: Ways, world: Loss) -> Loss:
    """Skips what is decided; rolls forward what is open."""
    state = _looked(ways, world)
    _mine(ways, world, state)
    moved = world._replace(seen=state)
    if state.open:
        return moved._replace(at=COMMIT)
    planned = protocol.plan(state, state.generation, world.noted, gaps_allowed=ways.gaps)
    if isinstance(planned, Refused):
        raise planned.error
    if isinstance(planned, Skip):
        return moved._replace(at=_once_done(ways))
    return moved._replace(at=CERTIFY if ways.first and not world.certified else DECIDE)


def _certify(ways: Ways, world: Loss) -> Loss:
    state = _checked(ways, world)
    certificate = ways.certify(state, PLACE, world.noted)
    at = DECIDE if ways.first else COMMIT
    return world._replace(certificate=certificate, certified=True, at=at)


def _checked(ways: Ways, world: Loss) -> JobState:
    """The register as it was looked at, which goes with the certificate."""
    assert world.seen is not None
    state, origin = world.seen, Origin(world.certificate)
    verdict = ways.start(state, _who(ways, world), state.register, origin, world.noted, PLACE)
    if isinstance(verdict, Refused):
        raise verdict.error
    return state


def _tell(ways: Ways, world: Loss) -> Loss:
    assert world.seen is not None
    return world._replace(certificate=ways.certify(world.seen, PLACE, world.noted), at=NOTE)


def _unheard(ways: Ways, world: Loss) -> Loss:
    """A write takes effect, and the run is told that it failed: it tries again, if it goes on."""
    after = _MOVES[world.at](ways, world)
    if world.at not in (CERTIFY, TELL):
        return after._replace(at=world.at, seen=world.seen)
    return _in_vain(ways, world)._replace(certificate=after.certificate)


def _in_vain(ways: Ways, world: Loss) -> Loss:
    """The certificate cannot be written."""
    world = world._replace(tried=True, certified=not ways.tries_again)
    if world.at == TELL:
        return _off(world) if ways.stops else world._replace(at=NOTE)
    state = _checked(ways, world)
    if ways.gaps and ways.stops:
        return _off(world)
    origin = Origin(world.certificate)
    refused = ways.uncertified(state, _who(ways, world), origin, world.noted, PLACE, "It is full.")
    if refused is None:
        return world._replace(at=DECIDE)
    if ways.full:
        raise refused.error
    return _off(world)


def _decide(ways: Ways, world: Loss) -> Loss:
    state = _looked(ways, world)
    generation = _mine(ways, world, state)
    epoch = world.noted
    certificate = world.certificate
    mine = certificate is not None and certificate.generation == generation
    if ways.first and not mine and not world.tried:
        raise Violated(f"epoch {epoch} is decided, and its run has not tried to be certified")
    attempt = f"{world.run:x}"
    committables = [
        Committable(HandleName(state.register, JOB, generation, epoch, part, attempt), 1, "none:")
        for part in _partitions(ways)
    ]
    if ways.backs:
        going_back.before_a_decision(ways, world, _who(ways, world), state)
    verdict = protocol.decide(
        state,
        generation,
        epoch,
        committables,
        fingerprint="f",
        rows=len(committables),
        gaps_allowed=ways.gaps,
    )
    if isinstance(verdict, Refused):
        raise verdict.error
    late = not ways.first and not world.certified
    return world.puts(verdict.state)._replace(at=AFTERWARDS if late else COMMIT, stale=False)


def _commit(ways: Ways, world: Loss) -> Loss:
    handles = _decision(world).handles
    if ways.backs:
        if world.stale and handles - world.visible:
            raise HandleLostError("It went back.", handle=min(handles), remedy="see what is lost")
        held = () if world.visible in world.held_rows else (world.visible,)
        world = world._replace(held_rows=(*world.held_rows, *held), ever=world.ever | handles)
    return world._replace(visible=world.visible | handles, at=FINISH)


def _finish(ways: Ways, world: Loss) -> Loss:
    decision = _decision(world)
    marks = (ways.marks or going_back.marks_of)(decision, world.visible) if ways.backs else ()
    verdict = protocol.finish(_looked(ways, world), decision, marks)
    if isinstance(verdict, Refused):
        raise verdict.error
    done = _decision(world).epoch == world.noted
    return world.puts(verdict.state)._replace(at=_once_done(ways) if done else LOAD)


def _once_done(ways: Ways) -> int:
    return TELL if ways.gaps and ways.tells else NOTE


def _noted(ways: Ways, world: Loss) -> Loss:
    noted = world._replace(noted=world.noted + 1, tried=False)
    if noted.noted == ways.epochs:
        return _off(noted)
    # An engine that leaves epochs out is one process: it has read the checkpoint as it began.
    origin = world.origin if ways.gaps else Origin(world.certificate)
    return noted._replace(at=BEGIN, origin=origin)


def _looked(ways: Ways, world: Loss) -> JobState:
    if world.seen is not None:
        why = births.went_back(world.register, world.seen)
        if why is not None:
            raise births.lost_error(JOB, why, PLACE)
    if world.register is None:
        raise births.missing_verdict(_who(ways, world), PLACE).error
    return world.register


def _mine(ways: Ways, world: Loss, state: JobState) -> int:
    held = protocol.generation_of(state, _who(ways, world))
    if isinstance(held, Refused):
        raise held.error
    return held


def _decision(world: Loss) -> Decision:
    assert world.seen is not None
    assert world.seen.open
    return world.seen.open[0]


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
