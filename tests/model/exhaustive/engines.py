"""Explores engines that go on where they should stop, and functions as people write them.

Runs come one after the other and die anywhere. A function may keep an error to itself, so that the
engine takes the batch for written and goes on with the next one, in the same run and in later ones. It
may call for one job several times in a batch, and its sinks may be others in another batch. The rules
are the real ones (``protocol``, ``sinkmap``, ``births``, ``abs_spark.foreach.process``); what is
modelled is the order of a call's steps, and what becomes of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from abs_core.errors import AbsError
from tests.model.exhaustive.book import Violated
from tests.model.exhaustive.engine_calls import MOVES, NAMES, fails, next_call, off, refused
from tests.model.exhaustive.engine_world import (
    BEGIN,
    CHECK,
    NOTE,
    OFF,
    RAISED,
    WRITE,
    Job,
    Ways,
)
from tests.model.exhaustive.histories import explore_histories


def explore_engines(ways: Ways, limit: int = 500_000) -> int:
    """Every history; how many states there are.

    Raises:
        Violated: rows are visible twice, a call has returned and its rows are not there, an epoch is
            written after one that was passed over without consent, or a run is refused for nothing.
    """
    first = Job(failures=ways.failures, deaths=ways.deaths)
    came = explore_histories(first, partial(_steps, ways), _check_once, limit)
    if ways.as_told and not any(w.noted == ways.epochs and not w.excused for w in came):
        raise Violated("no history writes all rows")
    return len(came)


def _check_once(world: Job) -> None:
    seen = sorted((rows.sink, rows.epoch, rows.part) for rows in world.visible)
    for one, other in pairwise(seen):
        if one == other:
            raise Violated(f"part {one[2]} of epoch {one[1]} is visible 2 times in sink {one[0]}")


def _steps(ways: Ways, world: Job) -> Iterator[tuple[str, Job]]:
    if world.at == OFF:
        if world.run + 1 < ways.runs and world.noted < ways.epochs:
            yield from _starts(world)
        return
    run = f"run {world.run}, epoch {world.noted}, call {world.place}"
    if world.deaths:
        yield f"{run}: the process dies", off(replace(world, deaths=world.deaths - 1))
    if world.at in (BEGIN, WRITE) and world.failures:
        blamed = replace(world, failures=world.failures - 1, blamed=True)
        yield f"{run}: it fails", fails(blamed, "the target is away")
    if world.at == RAISED:
        yield f"{run}: the error ends the query", off(world)
        if ways.keeps_errors:
            kept = replace(world, blamed=True, why="")
            yield f"{run}: the error is kept", next_call(ways, kept)
            yield f"{run}: the error of the batch is kept", replace(kept, at=NOTE)
        return
    try:
        yield f"{run}: {NAMES[world.at]}", MOVES[world.at](ways, world)
    except AbsError as error:
        if not world.blamed and ways.as_told:
            raise Violated(f"nothing has failed, and a run is refused: {error}") from None
        yield f"{run}: refused, {type(error).__name__}", refused(ways, world, error)


def _starts(world: Job) -> Iterator[tuple[str, Job]]:
    """As a person starts it: again; with the consent, or after the step, that the error has told."""
    run = replace(
        world, run=world.run + 1, at=CHECK, place=0, known=(), checked=frozenset(), consents=False
    )
    yield f"run {run.run} starts", run
    if world.told is None:
        return
    failed, epoch = world.told
    if epoch == world.noted:
        consents = replace(run, consents=True, told=None)
        yield f"run {run.run} starts with consent to pass over epoch {failed}", consents
    back = replace(run, noted=failed, told=None)
    yield f"run {run.run} starts, the checkpoint taken back to epoch {failed}", back
