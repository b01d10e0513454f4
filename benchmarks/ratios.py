"""Ratios of paired measurements, their spread, and whether they meet a bar. Pure; no I/O.

Machines drift: the same program varies up to twofold between minutes. So two sides are measured one
right after the other, each such pair gives one ratio, and the median over the pairs is the result
(as in "Rigorous benchmarking in reasonable time", Kalibera and Jones, ISMM 2013: repeat at the level
where the variation is). Averages over all runs of a side are never divided by one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median, quantiles

UNMETERED = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run of one side.

    Args:
        wall_s: elapsed seconds of what is compared.
        cpu_s: CPU seconds of all processes that are counted (see ``meter``), over the whole run;
            ``UNMETERED`` where that would not be the CPU of ``amount``.
        amount: how much was done: rows, or epochs.
        parts: where the seconds went, by the side's own account.
    """

    wall_s: float
    cpu_s: float
    amount: int
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def speed(self) -> float:
        """Amount per second."""
        return self.amount / self.wall_s

    @property
    def cpu_us_each(self) -> float:
        """CPU microseconds for each of it."""
        return self.cpu_s / self.amount * 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with what lies around it."""

    median: float
    q1: float
    q3: float
    least: float
    most: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Median, quartiles (inclusive method) and extremes of one value or more.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("a spread needs at least one value")
    q1, _, q3 = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(median(values), q1, q3, min(values), max(values), len(values))


def speed_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """How many times as fast ours was as theirs, pair by pair.

    Raises:
        ValueError: the two do not pair up.
    """
    return [a.speed / b.speed for a, b in zip(ours, theirs, strict=True)]


def cpu_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """How many times as much CPU ours took as theirs for the same amount, pair by pair.

    Pairs in which theirs took less than the meter can see are left out.

    Raises:
        ValueError: the two do not pair up.
    """
    pairs = zip(ours, theirs, strict=True)
    return [a.cpu_us_each / b.cpu_us_each for a, b in pairs if b.cpu_s > 0]


class Verdict(StrEnum):
    """Whether a bar is reached. ``UNCLEAR``: by the median yes, but not by the worse quartile."""

    MET = "met"
    UNCLEAR = "unclear"
    MISSED = "missed"
    NONE = "for information"


@dataclass(frozen=True, slots=True)
class Bar:
    """What a ratio must reach: at least ``low``, at most ``high``, where given."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        parts = [f">= {self.low:g}"] if self.low is not None else []
        parts += [f"<= {self.high:g}"] if self.high is not None else []
        return ", ".join(parts) or "-"

    def holds(self, value: float) -> bool:
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    def judge(self, found: Spread) -> Verdict:
        """The median decides; the quartile on the wrong side tells if that is beyond doubt."""
        if self.low is None and self.high is None:
            return Verdict.NONE
        if not self.holds(found.median):
            return Verdict.MISSED
        return Verdict.MET if self.holds(found.q1) and self.holds(found.q3) else Verdict.UNCLEAR


NO_BAR = Bar()
