"""The steps of a call of the epoch function, as ``abs_spark.foreach`` takes them; see ``engines``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from abs_core import protocol, sinkmap
from abs_core.births.rules import Failed
from abs_core.errors import AbsError, EpochGapError
from abs_core.model import Committable, HandleName, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Skip, Verdict
from abs_spark.foreach.process import Known
from tests.model.exhaustive.book import Violated
from tests.model.exhaustive.engine_world import (
    BEGIN,
    CHECK,
    COMMIT,
    DECIDE,
    DRAIN,
    END,
    FAIL,
    FINISH,
    JOB,
    NOTE,
    OFF,
    PLAN,
    RAISED,
    REGISTER,
    RETURN,
    START,
    TELL,
    WRITE,
    Call,
    Job,
    Rows,
    Ways,
)


def off(world: Job) -> Job:
    return replace(world, at=OFF, known=(), checked=frozenset(), named=(), why="", consents=False)


def _check(ways: Ways, world: Job) -> Job:
    _known(ways, world).check(JOB, world.noted)
    return replace(world, at=START if world.place in world.checked else BEGIN)


def _begin(ways: Ways, world: Job) -> Job:
    epoch, failed = world.noted, world.failed
    refused = ways.passed_over(world.register, _who(ways, world), failed, epoch)
    if refused is not None:
        raise refused.error
    moved = replace(world, at=START, checked=world.checked | {world.place})
    if failed is None or epoch <= failed.epoch:
        return moved
    if world.consents:
        lost = {
            (e, part) for e in range(epoch) for part in ways.parts if not _is_there(world, e, part)
        }
        moved = replace(moved, excused=world.excused | lost)
    return replace(moved, failed=None)


def _start(ways: Ways, world: Job) -> Job:
    verdict = ways.start(world.register, _who(ways, world), REGISTER)
    moved = world
    if isinstance(verdict, Changed):
        moved = _sweep(replace(world, register=verdict.state))
    else:
        _state(verdict)
    return replace(moved, at=PLAN)


def _plan(ways: Ways, world: Job) -> Job:
    state = _mine(ways, world)
    planned = protocol.plan(state, state.generation, world.noted, gaps_allowed=True)
    if isinstance(planned, Refused):
        raise planned.error
    if not isinstance(planned, Skip):
        return replace(world, at=WRITE)
    _known(ways, world).check_not_written(JOB, world.noted)
    return replace(world, at=DRAIN)


def _write(ways: Ways, world: Job) -> Job:
    state, epoch, call = _mine(ways, world), world.noted, _call(ways, world)
    numbers = sinkmap.numbers(state)
    rows = []
    for place, sink in enumerate(call.sinks):
        partition = numbers.get(sink, len(state.sinks) + place) * sinkmap.STRIDE
        attempt = f"{world.run:x}{world.place:x}"
        name = HandleName(REGISTER, JOB, state.generation, epoch, partition, attempt)
        rows += [Rows(sink, epoch, part, name) for part in call.parts]
    return replace(world, prepared=world.prepared | set(rows), named=tuple(rows), at=DECIDE)


def _drain(ways: Ways, world: Job) -> Job:
    moved = _rolled_forward(ways, world)
    state = _mine(ways, moved)
    partly = ways.compares_rows and world.failed == Failed(world.noted, partly=True)
    rows = len(_call(ways, world).parts)
    told = None if partly else f"input {world.noted}"
    refused = protocol.same_epoch(state, world.noted, told, rows)
    if refused is not None:
        raise refused.error
    return replace(moved, at=RETURN)


def _decide(ways: Ways, world: Job) -> Job:
    moved = _rolled_forward(ways, world)
    _check_none_is_lost(ways, moved)
    state, epoch = _mine(ways, moved), world.noted
    names = sorted({rows.handle for rows in world.named})
    verdict = protocol.decide(
        state,
        state.generation,
        epoch,
        [Committable(name, 1, "none:") for name in names],
        fingerprint=f"input {epoch}",
        rows=len(_call(ways, world).parts),
        gaps_allowed=True,
    )
    return replace(moved, register=_state(verdict), at=COMMIT)


def _check_none_is_lost(ways: Ways, world: Job) -> None:
    for epoch in range(world.noted):
        for part in ways.parts:
            if not _is_there(world, epoch, part) and (epoch, part) not in world.excused:
                raise Violated(
                    f"epoch {world.noted} is written, and part {part} of epoch {epoch} was passed over "
                    "without consent"
                )


def _commit(ways: Ways, world: Job) -> Job:
    return replace(_committed(ways, world), at=FINISH)


def _finish(ways: Ways, world: Job) -> Job:
    assert world.register is not None
    verdict = protocol.finish(world.register, world.register.open[0])
    return replace(world, register=_state(verdict), at=RETURN)


def _return(ways: Ways, world: Job) -> Job:
    """The call returns: its rows are there, in each sink that was one of the job's at that epoch."""
    assert world.register is not None
    call, epoch = _call(ways, world), world.noted
    for sink in world.register.sinks:
        mine = sink.name in call.sinks and sink.since <= epoch
        if not mine or (sink.until is not None and sink.until < epoch):
            continue
        for part in call.parts:
            there = _is_there(world, epoch, part, sink.name)
            if not there and (epoch, part) not in world.excused:
                raise Violated(
                    f"a call has returned, and part {part} of epoch {epoch} is not in sink {sink.name}"
                )
    known = _known(ways, world).and_finished(epoch)
    forgets = world.failed is not None and world.failed.epoch <= epoch
    moved = replace(world, failed=None) if forgets else world
    return next_call(ways, _knowing(ways, moved, known))


def next_call(ways: Ways, world: Job) -> Job:
    last = world.place + 1 == len(ways.calls(world.run, world.noted))
    return replace(
        world, at=NOTE if last else CHECK, place=0 if last else world.place + 1, named=()
    )


def _note(ways: Ways, world: Job) -> Job:
    noted = replace(world, noted=world.noted + 1, place=0, named=())
    return off(noted) if noted.noted == ways.epochs else replace(noted, at=CHECK)


def fails(world: Job, why: str) -> Job:
    return replace(world, at=FAIL, named=(), why=why)


def refused(ways: Ways, world: Job, refused: AbsError) -> Job:
    moved = fails(world, str(refused)[:60])
    if world.at == CHECK:  # outside of what notes and ends: it was done before
        return replace(moved, at=RAISED)
    if world.at == BEGIN and isinstance(refused, EpochGapError) and world.failed is not None:
        return replace(moved, told=(_first(world), world.noted))
    if world.at in (PLAN, DRAIN):  # the error says that the rows of this call are not written
        lost = {(world.noted, part) for part in _call(ways, world).parts}
        return replace(moved, excused=world.excused | lost)
    return moved


def _first(world: Job) -> int:
    """The epoch that the refusal names, and that a person takes the checkpoint back to."""
    assert world.failed is not None
    last = None if world.register is None else world.register.last_decided
    first = world.failed.epoch
    return first if last is None or world.failed.partly else max(first, last + 1)


def _fail(ways: Ways, world: Job) -> Job:
    known = _known(ways, world).and_failed(world.noted, RuntimeError(world.why))
    return replace(_knowing(ways, world, known), at=TELL)


def _tell(ways: Ways, world: Job) -> Job:
    if not ways.notes:
        return replace(world, at=END)
    failed = Failed(world.noted, world.noted in _known(ways, world).finished)
    noted = world.failed
    if noted is not None and ways.keeps_the_first:
        failed = min(noted, failed, key=lambda each: (each.epoch, not each.partly))
    return replace(world, failed=failed, at=END)


def _end(ways: Ways, world: Job) -> Job:
    if world.register is None:
        return replace(world, at=RAISED)
    verdict = protocol.end(world.register, _who(ways, world))
    return replace(_sweep(replace(world, register=_state(verdict))), at=RAISED)


def _rolled_forward(ways: Ways, world: Job) -> Job:
    while world.register is not None and world.register.open:
        world = _committed(ways, world)
        assert world.register is not None
        verdict = protocol.finish(world.register, world.register.open[0])
        world = replace(world, register=_state(verdict))
    return world


def _committed(ways: Ways, world: Job) -> Job:
    """What the oldest decision names is visible, by the committer of each handle's sink."""
    state = world.register
    assert state is not None
    assert state.open
    present = sinkmap.numbers(state)
    mine = {present.get(sink) for sink in _call(ways, world).sinks}
    named = set(state.open[0].handles)
    for handle in named:
        if sinkmap.number_of(handle) not in mine:
            raise Violated(f"a decision names {handle}, of a sink that this run does not know")
    rows = {rows for rows in world.prepared if rows.handle in named}
    there = {rows.handle for rows in world.visible | rows}
    if named - there:
        raise Violated(f"a decision names {named - there}, which are lost")
    return replace(world, prepared=world.prepared - rows, visible=world.visible | rows)


def _sweep(world: Job) -> Job:
    state = world.register
    assert state is not None
    kept = frozenset(
        rows
        for rows in world.prepared
        if not protocol.sweepable(state, state.generation, rows.handle)
    )
    return replace(world, prepared=kept)


def _is_there(world: Job, epoch: int, part: int, sink: str | None = None) -> bool:
    return any(
        (rows.epoch, rows.part) == (epoch, part) and sink in (None, rows.sink)
        for rows in world.visible
    )


def _mine(ways: Ways, world: Job) -> JobState:
    assert world.register is not None
    held = protocol.generation_of(world.register, _who(ways, world))
    if isinstance(held, Refused):
        raise held.error
    return world.register


def _state(verdict: Verdict) -> JobState:
    if isinstance(verdict, Refused):
        raise verdict.error
    return verdict.state


def _who(ways: Ways, world: Job) -> RunIdentity:
    sinks = tuple((sink, f"target {sink}") for sink in _call(ways, world).sinks)
    target = "+".join(target for _, target in sinks)
    who = RunIdentity(JOB, "lineage", f"run{world.run}", target, sinks=sinks)
    return replace(who, adopt=_consent(ways, world, who)) if world.consents else who


def _consent(ways: Ways, world: Job, who: RunIdentity) -> str | None:
    """The token that the refusal of this very start would name."""
    refused = ways.passed_over(world.register, who, world.failed, world.noted)
    return None if refused is None else refused.error.remedy.partition("adopt=")[2].split()[0]


def _call(ways: Ways, world: Job) -> Call:
    return ways.calls(world.run, world.noted)[world.place]


def _known(ways: Ways, world: Job) -> Known:
    place = 0 if ways.by_process else world.place
    return world.known[place] if place < len(world.known) else Known()


def _knowing(ways: Ways, world: Job, known: Known) -> Job:
    place = 0 if ways.by_process else world.place
    there: Sequence[Known] = (*world.known, *[Known()] * (place + 1 - len(world.known)))
    return replace(world, known=(*there[:place], known, *there[place + 1 :]))


MOVES: dict[int, Callable[[Ways, Job], Job]] = {
    CHECK: _check,
    BEGIN: _begin,
    START: _start,
    PLAN: _plan,
    WRITE: _write,
    DRAIN: _drain,
    DECIDE: _decide,
    COMMIT: _commit,
    FINISH: _finish,
    RETURN: _return,
    FAIL: _fail,
    TELL: _tell,
    END: _end,
    NOTE: _note,
}
NAMES = {at: move.__name__.strip("_") for at, move in MOVES.items()}
