"""One state of the model: plain tuples of small numbers, equal where they behave alike.

Reductions, each with the reason why nothing is lost:

- A process that has died is one that takes no further step; a request that is lost is one that is
  never delivered. Neither needs a state of its own: every prefix of a history is explored.
- A request to commit, abort or forget is sent as soon as its sender knows what to send, and is
  delivered at any later moment: sending it later adds nothing.
- A delayed compare-and-set is dropped once the register has changed: states never come again (the
  generation, or what is recorded in it, only grows), so it can only conflict. For the same reason a
  process that is about to compare-and-set against a state that is gone goes back to its load.
- Tasks that have not begun when their engine has left their epoch would only find it decided, given
  up or fenced: they are dropped. So are the marks of tasks whose share the engine holds already.
- Writers of one epoch are interchangeable where every decision names all of them: they are sorted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Handle(IntEnum):
    """What the target holds under a name; the other bits of a handle's number are flags."""

    ABSENT = 0
    PREPARED = 1
    COMMITTED = 2
    FORGOTTEN = 3  # committed, and its marker deleted
    ABORTED = 4


STATUS = 7
NAMED = 8
"""A decision has named it (seen by the invariants only)."""
COMMITTING, ABORTING, FORGETTING = 16, 32, 64
"""A request to do so is under way."""


class Task(IntEnum):
    """Where one attempt of a task is."""

    NEW = 0
    AGAIN = 1  # it tried to start the run; it will sweep once it knows the run started
    SWAP = 2  # has loaded, and is about to start the run by compare-and-set
    SWEEP = 3  # started the run
    WRITE = 4  # was told to write; pre-commits at any time from now on
    WROTE = 5
    DRAINED = 6
    DEAD = 7


class Driver(IntEnum):
    """Where the commit process of a run is."""

    OFF = 0
    RUN = 1  # tasks are running
    AWAIT_OLD = 2  # rolls an older decision forward: its handles are being committed
    FINISH_OLD = 3
    INSPECT = 4
    DECIDE = 5
    SWAP = 6  # has loaded and decided, and is about to compare-and-set
    AWAIT = 7
    FINISH = 8
    TIDY = 9
    ABANDON = 10
    ABANDON_SWAP = 11
    ABANDON_SWEEP = 12
    END = 13


class TaskState(NamedTuple):
    """``knows``: the register's state it acts on (SWEEP), or wants to put in place (SWAP)."""

    at: Task
    knows: int = 0


class DriverState(NamedTuple):
    """``knows``: a state or, while awaiting and finishing, a decision. ``wants``: the new state.

    ``named``: bits of the chosen writers of the epoch; ``drained``: some share was skipped.
    """

    at: Driver
    epoch: int = 0
    knows: int = 0
    wants: int = 0
    named: int = 0
    drained: int = 0


class World(NamedTuple):
    """Everything that a history has led to.

    ``register``: number of its state, 0 before the first start. ``flights``: compare-and-sets under
    way, as (new state, handles applied with it; see ``effects.put``). ``noted``: for each content,
    how many epochs the engine's checkpoint holds for done.
    """

    register: int
    flights: tuple[tuple[int, int], ...]
    handles: tuple[int, ...]
    drivers: tuple[DriverState, ...]
    tasks: tuple[TaskState, ...]
    noted: tuple[int, ...]


OFF = DriverState(Driver.OFF)
END = DriverState(Driver.END)
NEW = TaskState(Task.NEW)
DEAD = TaskState(Task.DEAD)
