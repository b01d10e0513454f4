"""Requests under way: each may arrive at any time, or never."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.exhaustive.book import Book
from tests.model.exhaustive.effects import deliver, put
from tests.model.exhaustive.tasks import Step
from tests.model.exhaustive.world import (
    ABORTING,
    COMMITTING,
    FORGETTING,
    STATUS,
    Handle,
    World,
)

_REQUESTS = ((COMMITTING, "commit"), (ABORTING, "abort"), (FORGETTING, "forget"))
_ANY = COMMITTING | ABORTING | FORGETTING


def deliveries(book: Book, world: World) -> Iterator[Step]:
    """Everything that can arrive now."""
    for index, code in enumerate(world.handles):
        if code & _ANY:
            for request, what in _REQUESTS:
                if code & request:
                    yield f"{what} of {book.writers[index]} arrives", deliver(world, index, request)
    for flight in world.flights:
        new, applied = flight
        indexes = [i for i in range(len(world.handles)) if applied > 0 and applied >> i & 1]
        if all(world.handles[i] & STATUS == Handle.PREPARED for i in indexes):
            left = world._replace(flights=tuple(f for f in world.flights if f != flight))
            yield "a delayed change of the register arrives", put(book, left, new, applied)
