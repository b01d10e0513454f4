"""What a run under kills has shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from abs_audit import Report
from abs_chaos.killing import Killed


@dataclass(frozen=True, slots=True)
class Outcome:
    """The kills of a job, and what its target holds at the end.

    Args:
        asked: how many kills were asked for.
        failures: how often the job ended by itself with an error, and was started again.
        job_seconds: from its first start to its end.
        sees: whether phases and recovery could be seen.
    """

    seed: int
    asked: int
    kills: tuple[Killed, ...]
    failures: int
    job_seconds: float
    report: Report
    sees: bool

    @property
    def found(self) -> dict[str, int]:
        """The four answers, in rows; ``left_behind`` in unfinished writes."""
        differences = self.report.differences
        left = self.report.left_behind
        return {
            "missing": differences.missing,
            "doubled": differences.duplicate,
            "changed": differences.corrupted,
            "unexpected": differences.unexpected,
            "left_behind": 0
            if left is None
            else sum(map(len, (left.prepared, left.staging, left.decisions, left.pending))),
        }

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Why it is not shown that the job is exactly-once; empty if it is."""
        found = [f"{number} {_WORDS[what]}" for what, number in self.found.items() if number]
        own = ("missing", "duplicate", "unexpected", "corrupted")
        found += [each for each in self.report.reasons if not each.endswith(own)]
        if len(self.kills) < self.asked:
            found.append(
                f"the job ended after {len(self.kills)} of {self.asked} kills; give it more input, "
                "or ask for fewer"
            )
        return tuple(found)

    @property
    def clean(self) -> bool:
        return not self.shortcomings

    def recovery(self, share: float) -> float | None:
        """The time to recover that this share of the kills kept to, in seconds; None if unknown."""
        times = [kill.recovered_s for kill in self.kills if kill.recovered_s is not None]
        return percentile(times, share)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "clean": self.clean,
            "shortcomings": list(self.shortcomings),
            "seed": self.seed,
            **self.found,
            "recovery_p50_s": self.recovery(0.5),
            "recovery_p99_s": self.recovery(0.99),
            "failures": self.failures,
            "job_seconds": round(self.job_seconds, 3),
            "kills": [asdict(kill) for kill in self.kills],
            "audit": self.report.to_dict(),
        }


_WORDS = {
    "missing": "rows missing",
    "doubled": "rows doubled",
    "changed": "rows changed",
    "unexpected": "rows that nobody expected",
    "left_behind": "unfinished writes left behind",
}


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of the values that this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None
