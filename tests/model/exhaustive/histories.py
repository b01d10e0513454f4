"""Every history from a first world on, one after the other to its end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Set
from typing import TypeVar

from tests.model.exhaustive.book import Violated

World = TypeVar("World", bound=Hashable)


def explore_histories(
    first: World,
    steps: Callable[[World], Iterable[tuple[str, World]]],
    check: Callable[[World], None],
    limit: int,
) -> Set[World]:
    """All worlds that there can be.

    Args:
        steps: what can happen in a world, and the world after it.
        check: of each world but the first.

    Raises:
        Violated: by a step or a check; the message ends with the history that leads there.
    """
    came: dict[World, tuple[World | None, str]] = {first: (None, "")}
    waiting = [first]
    while waiting:
        world = waiting.pop()
        what = ""
        try:
            for what, after in steps(world):
                known = len(came)
                came.setdefault(after, (world, what))  # one hash: most of the time goes there
                if len(came) > known:
                    waiting.append(after)
                    check(after)
                what = ""
        except Violated as violated:
            told = [what] if what else []
            at: World | None = world
            while at is not None:
                at, what = came[at]
                told.append(what)
            history = "\n".join(reversed(told))
            raise Violated(f"{violated}\n{history}") from None
        if len(came) > limit:
            raise AssertionError(f"more than {limit} states")
    return came.keys()
