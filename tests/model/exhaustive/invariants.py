"""What must hold in every state, whatever led to it."""

from __future__ import annotations

from tests.model.exhaustive.book import Book, Violated
from tests.model.exhaustive.drivers import complete
from tests.model.exhaustive.effects import VISIBLE
from tests.model.exhaustive.world import STATUS, World


def check(book: Book, world: World) -> None:
    """No row is visible twice, and no row of a finished epoch is missing.

    I1 to I6 are asserted where handles and register change (``effects``), I7 where a coordinator
    reads an outcome, and that a commit does what it returned for, where it returns (``drivers``).

    Raises:
        Violated: names the rule.
    """
    _check_visible_once(book, world.handles)
    if world.register:
        _check_finished(book, world)


def _check_visible_once(book: Book, handles: tuple[int, ...]) -> None:
    """I8: an epoch is visible by one decision: one run's, each partition once."""
    seen: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for writer in book.writers:
        if handles[writer.place] & STATUS not in VISIBLE:
            continue
        content = book.content_of[writer.run]
        run, partitions = seen.setdefault((content, writer.epoch), (writer.run, set()))
        if run != writer.run:
            raise Violated(f"epoch {writer.epoch} is visible from run{run} and run{writer.run}")
        if writer.partition in partitions:
            raise Violated(f"rows of epoch {writer.epoch} are visible twice, of run{run}")
        partitions.add(writer.partition)


def _check_finished(book: Book, world: World) -> None:
    """All epochs up to the frontier are visible, whole."""
    state = book.state(world.register)
    if state.frontier is None:
        return
    specs = book.config.runs
    runs = [run for run, spec in enumerate(specs) if spec.lineage == state.lineage]
    first = min(specs[run].first for run in runs)
    for epoch in range(first, state.frontier + 1):
        contents = {book.content_of[run] for run in runs}
        if not any(complete(book, world.handles, content, epoch) for content in contents):
            raise Violated(f"epoch {epoch} is finished, and its rows are not all visible")
