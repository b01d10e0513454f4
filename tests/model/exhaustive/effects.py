"""What changes the register and the target, with the invariants asserted at every change."""

from __future__ import annotations

from abs_core.model import JobState
from tests.model.exhaustive.book import Book, Violated
from tests.model.exhaustive.world import (
    ABORTING,
    COMMITTING,
    FORGETTING,
    NAMED,
    STATUS,
    Driver,
    DriverState,
    Handle,
    Task,
    TaskState,
    World,
)

_GONE_BACK = {
    Driver.FINISH_OLD: Driver.AWAIT_OLD,
    Driver.SWAP: Driver.DECIDE,
    Driver.FINISH: Driver.AWAIT,
    Driver.ABANDON_SWAP: Driver.ABANDON,
}
AGAIN = TaskState(Task.AGAIN)
NO_DECISION = -1
VISIBLE = (Handle.COMMITTED, Handle.FORGOTTEN)


def put(book: Book, world: World, new: int, applied: int = NO_DECISION) -> World:
    """The register changes to ``new``.

    Args:
        applied: bits of the handles that become visible in the same transaction (co-commit); 0 for
            a decision that is committed later.

    Raises:
        Violated: I2, I3, I4 or I5 is broken by it.
    """
    handles = list(world.handles)
    if world.register:
        before, after = book.state(world.register), book.state(new)
        _check_generation(before, after)
        _check_kept(book, handles, before, after)
        _check_named(book, handles, before, after)
        if applied > 0:
            _apply(book, handles, before, applied)
    if not book.rules.compares_versions:
        late = tuple(flight for flight in world.flights if flight[1] != NO_DECISION)
        drivers = tuple(d if d.at is Driver.SWAP else _conflicted(d) for d in world.drivers)
    else:
        late, drivers = (), tuple(_conflicted(driver) for driver in world.drivers)
    tasks = tuple(AGAIN if task.at is Task.SWAP else task for task in world.tasks)
    return World(new, late, tuple(handles), drivers, tasks, world.noted)


def _conflicted(driver: DriverState) -> DriverState:
    """A compare-and-set against a state that is gone conflicts: back to where it loads."""
    back = _GONE_BACK.get(driver.at)
    if back is None:
        return driver
    _, epoch, knows, _, named, drained = driver
    return DriverState(back, epoch, knows, 0, named, drained)


def _check_generation(before: JobState, after: JobState) -> None:
    if after.generation < before.generation:
        raise Violated("I5: the generation went down")
    if after.run != before.run and after.run in (*before.superseded, before.run):
        raise Violated(f"I5: {after.run} took the job over a second time")
    if before.run not in (*after.superseded, after.run):
        raise Violated(f"I5: {before.run} started, and the register has forgotten it")
    same = before.lineage == after.lineage
    if same and (after.frontier or 0) < (before.frontier or 0):
        raise Violated("I2: the frontier went back")


def _check_kept(book: Book, handles: list[int], before: JobState, after: JobState) -> None:
    """I2: a decision that has left the register was proven committed; none has changed."""
    kept = {decision.key: decision for decision in after.open}
    for decision in before.open:
        still = kept.get(decision.key)
        if still is not None and still != decision:
            raise Violated(f"I2, I3: the decision on epoch {decision.epoch} was changed")
        if still is None:
            for writer in book.writers_of(decision):
                if handles[writer.place] & STATUS not in VISIBLE:
                    raise Violated(
                        f"I2: the decision on epoch {decision.epoch} left the register before "
                        f"{writer} was committed"
                    )


def _check_named(book: Book, handles: list[int], before: JobState, after: JobState) -> None:
    """I3, I4, I5: what a new decision names is prepared, the present run's, and of a new epoch."""
    old = {decision.key for decision in before.open}
    for decision in after.open:
        if decision.key in old:
            continue
        if decision.generation != before.generation:
            raise Violated(f"I5: generation {decision.generation} decided")
        indexes = [writer.place for writer in book.writers_of(decision)]
        _name(book, handles, before, indexes)


def _name(book: Book, handles: list[int], before: JobState, indexes: list[int]) -> None:
    for index in indexes:
        writer = book.writers[index]
        if f"run{writer.run}" != before.run:
            raise Violated(f"I5: a decision names {writer}, of a superseded run")
        if handles[index] & STATUS != Handle.PREPARED or handles[index] & ABORTING:
            raise Violated(f"I4: a decision names {writer}, which is {show(handles[index])}")
        content = book.content_of[writer.run]
        for other in book.writers:
            twin = book.content_of[other.run] == content and other.epoch == writer.epoch
            if twin and is_named(handles[other.place]) and other.place not in indexes:
                raise Violated(f"I3: {writer} is named by a second decision, after {other}")
    for index in indexes:
        handles[index] |= NAMED


def _apply(book: Book, handles: list[int], before: JobState, applied: int) -> None:
    """Co-commit: the rows appear with the register; staged rows need no marker."""
    indexes = [index for index in range(len(handles)) if applied >> index & 1]
    _name(book, handles, before, indexes)
    for index in indexes:
        handles[index] = Handle.FORGOTTEN


def deliver(world: World, index: int, request: int) -> World:
    """A request to commit, abort or forget a handle arrives.

    Raises:
        Violated: I1 or I4 is broken by it.
    """
    code = world.handles[index]
    if request == COMMITTING:
        if not is_named(code):
            raise Violated("I1: a handle was committed that no decision names")
        new = int(Handle.COMMITTED)
    elif request == ABORTING:
        if is_named(code):
            raise Violated("I4: a handle was aborted that a decision names")
        new = int(Handle.ABORTED)
    else:
        new = int(Handle.FORGOTTEN)
    return set_handle(world, index, new)


def set_handle(world: World, index: int, code: int) -> World:
    register, flights, handles, drivers, tasks, noted = world
    handles = (*handles[:index], code, *handles[index + 1 :])
    return World(register, flights, handles, drivers, tasks, noted)


def send(world: World, indexes: list[int], request: int) -> World:
    """Put requests under way; what they cannot change any more needs none."""
    useful = Handle.COMMITTED if request == FORGETTING else Handle.PREPARED
    handles = list(world.handles)
    for index in indexes:
        if handles[index] & STATUS == useful:
            handles[index] |= request
    register, flights, _, drivers, tasks, noted = world
    return World(register, flights, tuple(handles), drivers, tasks, noted)


def is_named(code: int) -> bool:
    """Whether a decision has named the handle: what is visible keeps no flag for it."""
    return bool(code & NAMED) or code & STATUS in VISIBLE


def show(code: int) -> str:
    flags = [
        name
        for bit, name in (
            (NAMED, "named"),
            (COMMITTING, "commit under way"),
            (ABORTING, "abort under way"),
            (FORGETTING, "forget under way"),
        )
        if code & bit
    ]
    return ", ".join([Handle(code & STATUS).name.lower(), *flags])
