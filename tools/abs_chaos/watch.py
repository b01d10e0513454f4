"""Watches a Spark query from outside, by its checkpoint folder: whatever its sink is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from abs_chaos.moments import Sight


class Watch(Protocol):
    """Watches one job.

    Attributes:
        thing: name of one thing in doubt, for people.
    """

    thing: str

    def look(self, *, closely: bool = True) -> Sight:
        """The visible state; takes about a millisecond.

        Without ``closely`` it leaves out slower queries that only aiming a kill needs.
        """
        ...

    def settled(self) -> Sight:
        """The state after a kill."""
        ...


class CheckpointWatch:
    """Watches a query whose checkpoint is a folder of this machine.

    Spark writes ``commits/N`` after the sink's ``commit()`` has returned: first under a temporary
    name, then it renames the file. So the temporary file shows the moment in between. It lasts some
    milliseconds.
    """

    thing = "write"

    def __init__(self, checkpoint: Path) -> None:
        self._offsets = checkpoint / "offsets"
        self._commits = checkpoint / "commits"
        self._old: set[str] = set()
        self.settled()

    def look(self, *, closely: bool = True) -> Sight:
        planned = newest(names_in(self._offsets))
        names = names_in(self._commits)
        noted = newest(names)
        begun = {name for name in names if name.endswith(".tmp")} - self._old
        if any(name.startswith(f".{planned}.") for name in begun):
            return Sight(planned, noted, finished=planned)
        return Sight(planned, noted, finished=noted)

    def settled(self) -> Sight:
        seen = self.look()
        # A killed job leaves its temporary file for good; it tells nothing of the next run.
        self._old.update(names_in(self._commits))
        return seen


class Blind:
    """For a job of which nothing is visible before its end."""

    thing = "write"

    def look(self, *, closely: bool = True) -> Sight:
        return Sight()

    def settled(self) -> Sight:
        return Sight()


def newest(names: list[str]) -> int | None:
    """The highest number among names of files."""
    return max((int(name) for name in names if name.isdecimal()), default=None)


def names_in(folder: Path) -> list[str]:
    """Names of what is in a folder; none if it is not there."""
    try:
        return os.listdir(folder)  # noqa: PTH208 (called a thousand times a second)
    except FileNotFoundError:
        return []
