"""The steps of a task: start its run, sweep where it raised the generation, plan, pre-commit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.exhaustive.book import Book, Violated, Writer
from tests.model.exhaustive.effects import AGAIN, NO_DECISION, put, send, set_handle
from tests.model.exhaustive.world import (
    ABORTING,
    DEAD,
    STATUS,
    Driver,
    DriverState,
    Handle,
    Task,
    TaskState,
    World,
)

Step = tuple[str, World]
DRAINED, WRITE, WROTE = TaskState(Task.DRAINED), TaskState(Task.WRITE), TaskState(Task.WROTE)


def task_steps(book: Book, world: World) -> Iterator[Step]:
    """What each task can do next."""
    for writer, task in zip(book.writers, world.tasks, strict=True):
        if task.at < Task.WROTE:
            for what, after in _steps(book, world, writer, task):
                yield f"task {writer} {what}", after


def _steps(book: Book, world: World, writer: Writer, task: TaskState) -> Iterator[Step]:
    at = task.at
    if at is Task.NEW:
        yield from _first_step(book, world, writer)
    elif at is Task.AGAIN:
        yield "begins again", _begin(book, world, writer, sweeps=True)
    elif at is Task.SWAP:
        yield "starts the run", _started(put(book, world, task.knows), writer, task.knows)
        yield "sends the start", _fly(world, writer, task.knows)
    elif at is Task.SWEEP:
        yield "sweeps and plans", _sweep(book, world, writer, task.knows)
        if book.config.away:
            yield "sweeps what answers", sweep(book, world, writer.run, task.knows, away=True)
            yield "leaves the rest, and plans", _plan(book, world, writer, task.knows)
    else:
        yield "pre-commits", _pre_commit(world, writer)


def _first_step(book: Book, world: World, writer: Writer) -> Iterator[Step]:
    """A task begins while its engine is in its epoch; the first one boots the run, too."""
    driver = world.drivers[writer.run]
    if driver.at is Driver.RUN:
        if driver.epoch == writer.epoch:
            yield "begins", _begin(book, world, writer, sweeps=False)
    elif driver.at is Driver.OFF and _may_boot(book, world, writer):
        yield "boots", _begin(book, _boot(book, world, writer), writer, sweeps=False)


def _may_boot(book: Book, world: World, writer: Writer) -> bool:
    """A run starts with the first epoch of its checkpoint, or goes on after the last one noted.

    Runs that are equal boot in order: which of them is which makes no difference.
    """
    specs = book.config.runs
    spec = specs[writer.run]
    noted = world.noted[book.content_of[writer.run]]
    if writer.epoch not in (spec.first, noted) or noted < spec.after:
        return False
    earlier = range(writer.run)
    return all(specs[r] != spec or world.drivers[r].at is not Driver.OFF for r in earlier)


def _boot(book: Book, world: World, writer: Writer) -> World:
    register, flights, handles, drivers, tasks, noted = world
    run = DriverState(Driver.RUN, writer.epoch)
    drivers = (*drivers[: writer.run], run, *drivers[writer.run + 1 :])
    tasks = tuple(
        DEAD if w.run == writer.run and w.epoch < writer.epoch else task
        for w, task in zip(book.writers, tasks, strict=True)
    )
    return World(register, flights, handles, drivers, tasks, noted)


def _begin(book: Book, world: World, writer: Writer, *, sweeps: bool) -> World:
    """Load, and apply the rule ``start``; where nothing is to be changed, plan."""
    answer = book.start(world.register, writer.run)
    if answer.refused is not None:
        book.allow(answer.refused)
        return set_task(world, writer, DEAD)
    if answer.changed:
        return set_task(world, writer, TaskState(Task.SWAP, answer.state))
    if sweeps:
        return _started(world, writer, answer.state)
    return _plan(book, world, writer, answer.state)


def _started(world: World, writer: Writer, state: int) -> World:
    return set_task(world, writer, TaskState(Task.SWEEP, state))


def _fly(world: World, writer: Writer, new: int) -> World:
    """The reply is lost, or the request is delayed: it may arrive later, or never."""
    register, flights, handles, drivers, tasks, noted = world
    flights = tuple(sorted({*flights, (new, NO_DECISION)}))
    return set_task(World(register, flights, handles, drivers, tasks, noted), writer, AGAIN)


def _sweep(book: Book, world: World, writer: Writer, state: int) -> World:
    return _plan(book, sweep(book, world, writer.run, state), writer, state)


def _plan(book: Book, world: World, writer: Writer, state: int) -> World:
    planned = book.plan(state, writer.run, writer.epoch)
    if isinstance(planned, bool):
        return set_task(world, writer, WRITE if planned else DRAINED)
    book.allow(planned)
    return set_task(world, writer, DEAD)


def _pre_commit(world: World, writer: Writer) -> World:
    if world.handles[writer.place] & STATUS != Handle.ABSENT:
        raise Violated(f"I6: {writer} pre-commits under a name that was used before")
    driver = world.drivers[writer.run]
    waited_for = driver.at is Driver.RUN and driver.epoch == writer.epoch
    prepared = set_handle(world, writer.place, Handle.PREPARED)
    return set_task(prepared, writer, WROTE if waited_for else DEAD)


def sweep(book: Book, world: World, run: int, state: int, *, away: bool = False) -> World:
    """Look what is in doubt now, and send aborts for what the run may abort, knowing ``state``.

    Args:
        away: only the first system answers.
    """
    swept = []
    for writer in book.writers:
        if away and writer.partition > 0:
            continue
        if world.handles[writer.place] & STATUS == Handle.PREPARED:
            generation = book.generation(world.register, writer.run)
            if book.sweepable(state, run, writer.place, generation):
                swept.append(writer.place)
    return send(world, swept, ABORTING)


def set_task(world: World, writer: Writer, task: TaskState) -> World:
    register, flights, handles, drivers, tasks, noted = world
    place = writer.place
    tasks = (*tasks[:place], task, *tasks[place + 1 :])
    return World(register, flights, handles, drivers, tasks, noted)
