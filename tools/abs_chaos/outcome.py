"""What a run under kills has shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from abs_audit import Report
from abs_audit.report import KINDS
from abs_chaos.blame import Blame
from abs_chaos.killing import Killed


@dataclass(frozen=True, slots=True)
class Course:
    """How a job went under kills.

    Args:
        asked: how many kills were asked for.
        events: what was done to the job and to the servers, in order.
        failures: how often the job ended by itself with an error, and was started again.
        job_seconds: from its first start to its end.
        asked_blows: how often servers were to go away.
        epochs: when Spark had noted which epoch.
    """

    seed: int
    asked: int
    events: tuple[Killed, ...]
    failures: int
    job_seconds: float
    asked_blows: int = field(default=0, kw_only=True)
    epochs: tuple[tuple[float, int], ...] = field(default=(), kw_only=True)

    @property
    def kills(self) -> tuple[Killed, ...]:
        """What was done to the job."""
        return tuple(event for event in self.events if event.server is None)

    @property
    def blows(self) -> tuple[Killed, ...]:
        """What was done to servers."""
        return tuple(event for event in self.events if event.server is not None)

    @property
    def too_few(self) -> list[str]:
        """What was asked for and not done, for people."""
        reasons = []
        if len(self.kills) < self.asked:
            reasons.append(
                f"the job ended after {len(self.kills)} of {self.asked} kills; give it more input, "
                "or ask for fewer"
            )
        if len(self.blows) < self.asked_blows:
            reasons.append(
                f"the job ended after servers went away {len(self.blows)} of {self.asked_blows} times"
            )
        return reasons

    def recovery(self, share: float) -> float | None:
        """Seconds to recover that this share of kills and blows kept to; None if unknown."""
        times = [kill.recovered_s for kill in self.events if kill.recovered_s is not None]
        return percentile(times, share)

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "recovery_p50_s": self.recovery(0.5),
            "recovery_p99_s": self.recovery(0.99),
            "failures": self.failures,
            "job_seconds": round(self.job_seconds, 3),
            "kills": [asdict(kill) for kill in self.kills],
            "blows": [asdict(blow) for blow in self.blows],
            "epochs": self.epochs,
        }


@dataclass(frozen=True, slots=True)
class Outcome(Course):
    """The kills of a job, and what its target holds at the end.

    Args:
        blamed: which kill did it, where that can be told.
        visible: the target's rows over time.
    """

    report: Report
    blamed: tuple[Blame, ...] = ()
    visible: tuple[tuple[float, int], ...] = ()

    @property
    def found(self) -> dict[str, int]:
        """The four answers, in rows; ``left_behind`` in unfinished writes."""
        differences, left = self.report.differences, self.report.left_behind
        unfinished = 0
        if left is not None:
            # A database may have other jobs; their writes are not this job's fault.
            unfinished = len(left.decisions) + len(left.pending)
            unfinished += sum(transaction.on_table for transaction in left.prepared)
            unfinished += sum(bool(table.rows) for table in left.staging)
        return {
            "missing": differences.missing,
            "doubled": differences.duplicate,
            "changed": differences.corrupted,
            "unexpected": differences.unexpected,
            "left_behind": unfinished,
        }

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Why it is not shown that the job is exactly-once; empty if it is."""
        figures = self.found
        reasons = [f"{figures[kind]} {words}" for kind, words in _WORDS.items() if figures[kind]]
        left = {doubt for look in self.report.looks for doubt in look.doubts}
        others = (reason for reason in self.report.reasons if not reason.endswith(KINDS))
        reasons += [f"left behind: {other}" if other in left else other for other in others]
        return (*reasons, *self.too_few)

    @property
    def clean(self) -> bool:
        return not self.shortcomings

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "clean": self.clean,
            "shortcomings": list(self.shortcomings),
            "seed": self.seed,
            **self.found,
            **self.figures(),
            "blamed": [asdict(blamed) for blamed in self.blamed],
            "visible": self.visible,
            "audit": self.report.to_dict(),
        }


_WORDS = {
    "missing": "rows missing",
    "doubled": "rows doubled",
    "changed": "rows changed",
    "unexpected": "rows that nobody expected",
}


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of the values that this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None
