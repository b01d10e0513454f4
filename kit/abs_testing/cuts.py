"""Where a coordinator stops between two of its effects: a crash, simulated within one process.

Everything before the chosen call takes effect, the call itself does not. The check then continues with
a new coordinator, as after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abs_core.model import JobState


class Halted(Exception):  # noqa: N818 - not an error: the check asked for it
    """The coordinator has reached the cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to stop.

    Args:
        before: name of the committer's call, or ``compare_and_set``.
        handles: for ``commit``: number of handles that are committed first, or all (``whole``).
        where: for ``compare_and_set`` and ``co_commit``: only for a new state that satisfies it.
        lose_reply: of these two: make the call, and raise as a lost connection does, once.
    """

    before: str
    handles: int = 0
    where: Callable[[JobState], bool] = lambda state: True
    lose_reply: bool = False
