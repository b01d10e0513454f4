"""What targets show when an epoch is finished; import it from ``abs_core.model``."""

from __future__ import annotations

from dataclasses import dataclass

MAX_MARK = 2048
"""Longest ``Shown.mark``, in characters: a register keeps ``MAX_RECENT`` of them for each sink."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a sink's target showed when an epoch was finished, see ``abs_core.lookback``.

    Args:
        sink: its number; of sinks that share transactions, one of them.
        rows: of the epoch, in their targets.
        mark: a text of the sink's system, at most ``MAX_MARK`` characters; no secret (I9).
    """

    sink: int
    rows: int
    mark: str
