"""Follows a live job: how far the target is behind, and what is wrong; rows in flight are no alarm.

Each round reads the target first, and what is expected afterwards. So a record that the target has,
and the expected side has not, was never expected; and one that the target lacks may be on its way. It
is late once it has been absent for a time that the caller names.

Both sides are read whole in each round. What is expected must only grow: rows that it loses are
unexpected in the target.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from abs_audit.auditor import AuditSettings, matched_plan
from abs_audit.comparison import compare
from abs_audit.contracts import Relation
from abs_audit.plan import Plan
from abs_audit.progress import meter_here
from abs_audit.report import Differences
from abs_audit.workspace import load, locate, prepare, workspace


@dataclass(frozen=True, slots=True)
class Round:
    """What one look at both sides found.

    Args:
        differences: as in a report; ``missing`` and ``corrupted`` may be in flight.
        in_flight: records that are expected, and absent or not yet as they should be.
        late: those of them that have been so for longer than allowed.
        oldest_seconds: since the oldest of them was seen first; 0 without any.
        seconds: that the look took.
    """

    differences: Differences
    in_flight: int
    late: int
    oldest_seconds: float
    seconds: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this is an alarm; empty if nothing is wrong."""
        wrong = {
            "duplicate": self.differences.duplicate,
            "unexpected": self.differences.unexpected,
            "late": self.late,
        }
        return tuple(f"{records:,} {kind}" for kind, records in wrong.items() if records)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures = self.differences.figures()
        return {
            "reasons": list(self.reasons),
            "in_flight": self.in_flight,
            "late": self.late,
            "oldest_seconds": round(self.oldest_seconds, 3),
            **{name: figures[name] for name in ("expected", "actual", "duplicate", "unexpected")},
            "samples": {
                name: [dataclasses.asdict(sample) for sample in samples]
                for name, samples in self.differences.samples.items()
            },
            "seconds": round(self.seconds, 3),
        }


def follow(
    expected: Relation,
    actual: Relation,
    settings: AuditSettings | None = None,
    *,
    late: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Round]:
    """Look at both sides each time that the next round is asked for. Close it at the end.

    Args:
        settings: ``settle`` has no effect.
        late: seconds for which a record may be absent.
        clock: seconds.

    Raises:
        What ``abs_audit.audit`` raises. After an UnavailableError the caller follows anew.
    """
    settings = settings or AuditSettings()
    with workspace(settings.memory_mib, settings.temp_directory) as connection:
        plan = matched_plan(connection, expected, actual, settings, {})
        prepare(connection, plan)
        key = ", ".join(f"c{index}" for index in range(len(plan.identity)))
        seen = False
        while True:
            start = clock()
            _read(connection, expected, actual, plan)

            def at_hand(start: float = start, seen: bool = seen) -> None:
                _wait(connection, key, start, seen=seen)
                # Rows in flight are no alarm: for them nobody asks where they are, in each round.
                if _waiting(connection, start, late)[1] or connection.execute(_ALARMS).fetchall():
                    locate(connection, expected, actual, plan)

            differences = compare(
                connection, "expected", "actual", plan, samples=settings.samples, matched=at_hand
            )
            seen = True
            in_flight, behind, oldest = _waiting(connection, start, late)
            yield Round(differences, in_flight, behind, oldest, clock() - start)


_ALARMS = "select 1 from sampled where kind in ('duplicate', 'unexpected') limit 1"


def _read(connection: DuckDBPyConnection, expected: Relation, actual: Relation, plan: Plan) -> None:
    meter = meter_here()
    meter.begin("reading the target", connection)
    # First: what is expected is then read at a later moment, and holds all that the target may have.
    load(connection, "actual", actual, plan, actual=True)
    meter.begin("reading what is expected", connection)
    load(connection, "expected", expected, plan, actual=False)
    meter.begin("comparing", connection)


def _wait(connection: DuckDBPyConnection, key: str, now: float, *, seen: bool) -> None:
    """Make ``waiting``: what is absent or not yet as it should be, each since it was first seen so."""
    since = f"cast({now!r} as double)"
    if seen:
        same = " and ".join(f"w.{c} is not distinct from v.{c}" for c in key.split(", "))
        since = f"coalesce((select min(w.since) from waiting w where {same}), {since})"
    connection.execute(
        f"create or replace table still as select {key}, missing + corrupted as records, "
        f"{since} as since from verdicts v where missing + corrupted > 0"
    )
    connection.execute("create or replace table waiting as from still")


def _waiting(connection: DuckDBPyConnection, now: float, late: float) -> tuple[int, int, float]:
    (row,) = connection.execute(
        "select coalesce(sum(records), 0), coalesce(sum(records) filter ($now - since > $late), 0), "
        "coalesce(max($now - since), 0) from waiting",
        {"now": now, "late": late},
    ).fetchall()
    return int(row[0]), int(row[1]), float(row[2])
