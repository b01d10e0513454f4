"""The steps of a run's commit process, as ``abs_core.coordinator`` takes them.

``commit``: load; roll forward what is open; check; inspect; decide; roll forward; forget and sweep.
``abort``: abandon, then sweep. Each load, compare-and-set and call of the target is a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tests.model.exhaustive.book import Book, Violated, Writer
from tests.model.exhaustive.effects import NO_DECISION, VISIBLE, put, send
from tests.model.exhaustive.tasks import Step, sweep
from tests.model.exhaustive.world import (
    COMMITTING,
    DEAD,
    END,
    FORGETTING,
    STATUS,
    Driver,
    DriverState,
    Handle,
    Task,
    World,
)


def driver_steps(book: Book, world: World) -> Iterator[Step]:
    """What each commit process can do next, as (what, world)."""
    for run, driver in enumerate(world.drivers):
        at = driver.at
        if at in (Driver.OFF, Driver.END):
            continue
        yield from ((f"run{run} {what}", after) for what, after in _steps(book, world, run, driver))
        if book.config.aborts and at < Driver.ABANDON and world.register:
            given_up = driver._replace(at=Driver.ABANDON, knows=0, wants=0)
            yield f"run{run} gives the epoch up", _set(book, world, run, given_up)


def _steps(book: Book, world: World, run: int, driver: DriverState) -> Iterator[Step]:
    at = driver.at
    if at is Driver.RUN:
        for named, drained in _shares(book, world, run, driver.epoch):
            chosen = driver._replace(named=named, drained=drained)
            yield "has all shares, loads", _load(book, world, run, chosen)
    elif at in (Driver.AWAIT_OLD, Driver.AWAIT):
        if _answered(book, world, driver.knows):
            yield "has committed, loads to finish", _finishing(book, world, run, driver)
    elif at is Driver.INSPECT:
        yield "inspects", _inspect(book, world, run, driver)
    elif at is Driver.DECIDE:
        yield "loads to decide", _decide(book, world, run, driver)
    elif at is Driver.TIDY:
        yield "forgets, sweeps, returns", _return(book, world, run, driver)
    elif at is Driver.ABANDON:
        yield "loads to abandon", _abandon(book, world, run, driver)
    elif at is Driver.ABANDON_SWEEP:
        swept = sweep(book, world, run, driver.knows)
        yield "sweeps", _set(book, swept, run, END)
        if book.config.stubborn and driver.named:
            # An engine that commits all the same: the shares are those it had before.
            yield "sweeps, commits all the same", _load(book, swept, run, driver)
    else:
        yield from _swap(book, world, run, driver)
    if book.config.away and at in (Driver.TIDY, Driver.ABANDON_SWEEP):
        yield from _leaving(book, world, run, driver)


def _leaving(book: Book, world: World, run: int, driver: DriverState) -> Iterator[Step]:
    """A sweep of the systems that answer; the rest is looked into later, or left."""
    if driver.at is Driver.ABANDON_SWEEP:
        yield "sweeps what answers", sweep(book, world, run, driver.knows, away=True)
        yield "leaves the rest", _set(book, world, run, END)
        return
    if book.fenced(driver.knows, run) is None:
        yield "sweeps what answers", sweep(book, world, run, driver.knows, away=True)
    yield "returns, and leaves the rest", _return(book, world, run, driver, sweeps=False)


def _shares(book: Book, world: World, run: int, epoch: int) -> Iterator[tuple[int, int]]:
    """Every choice of one share for each partition: (bits of writers, whether one was drained)."""
    options: dict[int, set[tuple[int, int]]] = {}
    for writer in book.of[run, epoch]:
        found = options.setdefault(writer.partition, set())
        at = world.tasks[writer.place].at
        if at is Task.WROTE:
            found.add((writer.bit, 0))
        elif at is Task.DRAINED:
            found.add((0, 1))
    for choice in product(*(sorted(found) for found in options.values())):
        yield sum(bit for bit, _ in choice), max(drained for _, drained in choice)


def _load(book: Book, world: World, run: int, driver: DriverState) -> World:
    """``Decider.mine``, and on."""
    refused = book.fenced(world.register, run)
    if refused is not None:
        book.allow(refused)
        return _set(book, world, run, END)
    return _go_on(book, world, run, driver, world.register, old=True)


def _go_on(
    book: Book, world: World, run: int, driver: DriverState, state: int, *, old: bool
) -> World:
    """The loop of ``RollForward``: commit the oldest open decision, or leave the loop."""
    decision = book.first_open(state)
    if decision is not None:
        named = [writer.place for writer in book.writers_of(book.decision(decision))]
        at = Driver.AWAIT_OLD if old else Driver.AWAIT
        waiting = driver._replace(at=at, knows=decision, wants=0)
        world = _set(book, send(world, named, COMMITTING), run, waiting)
        if not book.rules.awaits_commits:
            return _finishing(book, world, run, waiting)
        return world
    if not old:
        tidy = DriverState(Driver.TIDY, driver.epoch, state)
        return _set(book, world, run, tidy)
    return _known(book, world, run, driver, state)


def _known(book: Book, world: World, run: int, driver: DriverState, state: int) -> World:
    """``Decider.is_known``: is the epoch decided, and is it the same one?"""
    refused = book.fenced(state, run)
    planned = book.plan(state, run, driver.epoch) if refused is None else refused
    if planned is True:
        if driver.drained:
            raise Violated("a task skipped an epoch that is not decided")
        inspects = book.rules.inspects and not book.config.co_commits
        at = Driver.INSPECT if inspects else Driver.DECIDE
        return _set(book, world, run, driver._replace(at=at, knows=0, wants=0))
    differs = book.differs(state, run, driver.epoch) if planned is False else planned
    if differs is not None:
        book.allow(differs)
        return _set(book, world, run, END)
    return _set(book, world, run, driver._replace(at=Driver.DECIDE, knows=0, wants=0))


def _inspect(book: Book, world: World, run: int, driver: DriverState) -> World:
    decide = driver._replace(at=Driver.DECIDE)
    found = {world.handles[w.place] & STATUS for w in _named(book, run, driver)}
    if not book.rules.decides_first:
        world = send(world, [w.place for w in _named(book, run, driver)], COMMITTING)
    if found <= {Handle.PREPARED}:
        return _set(book, world, run, decide)
    refused = book.fenced(world.register, run)
    planned = book.plan(world.register, run, driver.epoch) if refused is None else refused
    if planned is False:
        return _set(book, world, run, decide)
    if planned is True:
        raise Violated("a handle was lost before its decision, and nobody from outside did it")
    book.allow(planned)
    return _set(book, world, run, END)


def _decide(book: Book, world: World, run: int, driver: DriverState) -> World:
    answer = book.decide(world.register, run, driver.epoch, driver.named)
    if answer.refused is not None:
        book.allow(answer.refused)
        return _set(book, world, run, END)
    if not answer.changed:
        return _go_on(book, world, run, driver, answer.state, old=False)
    return _set(book, world, run, driver._replace(at=Driver.SWAP, wants=answer.state))


def _answered(book: Book, world: World, decision: int) -> bool:
    """Whether ``Committer.commit`` can have returned: no handle is prepared any more."""
    writers = book.writers_of(book.decision(decision))
    return all(world.handles[w.place] & STATUS != Handle.PREPARED for w in writers)


def _finishing(book: Book, world: World, run: int, driver: DriverState) -> World:
    """``RollForward._commit`` after the reply, and the load of ``_finish``."""
    writers = book.writers_of(book.decision(driver.knows))
    lost = any(world.handles[w.place] & STATUS != Handle.COMMITTED for w in writers)
    still = book.is_open(world.register, driver.knows) or not book.rules.looks_again
    if lost and still and book.rules.awaits_commits:
        raise Violated("I7: a handle of a decision is lost, and nobody from outside did it")
    answer = book.finish(world.register, driver.knows)
    old = driver.at is Driver.AWAIT_OLD
    if not answer.changed:
        return _go_on(book, world, run, driver, answer.state, old=old)
    at = Driver.FINISH_OLD if old else Driver.FINISH
    return _set(book, world, run, driver._replace(at=at, wants=answer.state))


def _abandon(book: Book, world: World, run: int, driver: DriverState) -> World:
    if book.config.ends:
        answer = book.end(world.register, run)
    else:
        answer = book.abandon(world.register, run, driver.epoch)
    if answer.refused is not None:
        book.allow(answer.refused)
        return _set(book, world, run, END)
    if answer.changed and book.rules.abandons_first:
        return _set(book, world, run, driver._replace(at=Driver.ABANDON_SWAP, wants=answer.state))
    return _abandoned(book, world, run, driver, answer.state)


def _abandoned(book: Book, world: World, run: int, driver: DriverState, state: int) -> World:
    """Sweep where the epoch is abandoned, or the run has ended; else nothing is aborted."""
    if book.config.ends:
        given_up = book.has_ended(state, run)
    else:
        given_up = driver.epoch in book.state(state).abandoned
    if not given_up:
        return _set(book, world, run, END)
    return _set(book, world, run, driver._replace(at=Driver.ABANDON_SWEEP, knows=state, wants=0))


def _swap(book: Book, world: World, run: int, driver: DriverState) -> Iterator[Step]:
    """A compare-and-set, or a co-commit: it happens and is answered; or it is under way for long."""
    at, new = driver.at, driver.wants
    applied = 0 if at is Driver.SWAP else NO_DECISION
    if at is Driver.SWAP and book.config.co_commits:
        named = _named(book, run, driver)
        applied = sum(1 << writer.place for writer in named)
        if not all(world.handles[w.place] & STATUS == Handle.PREPARED for w in named):
            # Staged rows are gone: that was a successor, who has fenced this run, too.
            if book.fenced(world.register, run) is None:
                raise Violated("staged rows were lost, and nobody from outside did it")
            yield "finds its staged rows gone", _set(book, world, run, END)
            return
    done = put(book, world, new, applied)
    if at is Driver.ABANDON_SWAP:
        yield "abandons", _abandoned(book, done, run, driver, new)
        back = Driver.ABANDON
    elif at is Driver.FINISH_OLD:
        yield "finishes", _go_on(book, done, run, driver, new, old=True)
        back = Driver.AWAIT_OLD
    elif at is Driver.FINISH:
        yield "finishes", _go_on(book, done, run, driver, new, old=False)
        back = Driver.AWAIT
    else:
        yield "decides", _go_on(book, done, run, driver, new, old=False)
        back = Driver.DECIDE
    flights = tuple(sorted({*world.flights, (new, applied)}))
    flying = world._replace(flights=flights)
    yield "sends its change", _set(book, flying, run, driver._replace(at=back, wants=0))


def _return(
    book: Book, world: World, run: int, driver: DriverState, *, sweeps: bool = True
) -> World:
    """Forget and sweep; then ``commit`` returns, and the engine notes the epoch as done."""
    forgotten = []
    for writer in book.writers:
        if world.handles[writer.place] & STATUS == Handle.COMMITTED:
            generation = book.generation(world.register, writer.run)
            if book.forgettable(driver.knows, writer.place, generation):
                forgotten.append(writer.place)
    world = send(world, forgotten, FORGETTING)
    if sweeps and book.fenced(driver.knows, run) is None:
        world = sweep(book, world, run, driver.knows)
    content, epoch = book.content_of[run], driver.epoch
    if not complete(book, world.handles, content, epoch):
        raise Violated(f"commit returned, and rows of epoch {epoch} are not visible")
    done = max(world.noted[content], epoch + 1)
    world = world._replace(noted=(*world.noted[:content], done, *world.noted[content + 1 :]))
    last = epoch + 1 == book.config.epochs
    return _set(book, world, run, END if last else DriverState(Driver.RUN, epoch + 1))


def complete(book: Book, handles: tuple[int, ...], content: int, epoch: int) -> bool:
    """Whether all rows of the epoch are visible, by the writers of one run."""
    for run, spec in enumerate(book.config.runs):
        if book.content_of[run] != content or (run, epoch) not in book.of:
            continue
        visible = {w.partition for w in book.of[run, epoch] if handles[w.place] & STATUS in VISIBLE}
        if len(visible) == spec.partitions:
            return True
    return False


def _named(book: Book, run: int, driver: DriverState) -> list[Writer]:
    return [writer for writer in book.of[run, driver.epoch] if driver.named & writer.bit]


def _set(book: Book, world: World, run: int, driver: DriverState) -> World:
    """The process is there now; the tasks that its engine does not wait for any more are dropped."""
    register, flights, handles, drivers, tasks, noted = world
    if drivers[run].at is Driver.RUN or driver.at is Driver.END:
        dropped = (Task.NEW, Task.WROTE, Task.DRAINED)
        epoch = drivers[run].epoch
        tasks = tuple(
            DEAD
            if w.run == run and task.at in dropped and (w.epoch == epoch or driver.at is Driver.END)
            else task
            for w, task in zip(book.writers, tasks, strict=True)
        )
    drivers = (*drivers[:run], driver, *drivers[run + 1 :])
    return World(register, flights, handles, drivers, tasks, noted)
