"""The course of an epoch, and what targets show at its end; import both from ``abs_core.model``."""

from __future__ import annotations

from dataclasses import dataclass

MAX_MARK = 2048
"""Longest ``Shown.mark``, in characters: a register keeps ``MAX_RECENT`` of them for each sink."""

MAX_FULL_MARK = 16_384
"""Longest ``Shown.full``, in characters: a register keeps one for each sink."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a sink's target showed when an epoch was finished, see ``abs_core.lookback``.

    Args:
        sink: its number; of sinks that share transactions, one of them.
        rows: of the epoch, in their targets.
        mark: a text of the sink's system, at most ``MAX_MARK`` characters; no secret (I9).
        full: where that is too short to tell all: a longer text, at most ``MAX_FULL_MARK``. It stands
            for ``mark`` until a later epoch of the sink is finished.
    """

    sink: int
    rows: int
    mark: str
    full: str = ""


@dataclass(frozen=True, slots=True)
class Course:
    """When an epoch was decided and finished, and where it has rows.

    Times are in milliseconds since 1970 by the clock of the process that notes them; None: unknown.

    Args:
        input: when the engine had asked the sources what the epoch reads.
        sinks: numbers of those with handles, ascending; of sinks that share transactions, one of them.
    """

    input: int | None = None
    decided: int | None = None
    finished: int | None = None
    sinks: tuple[int, ...] = ()
