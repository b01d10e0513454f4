"""Which crash points a job passes, by the way its sink commits; for tests that must hit them all."""

from __future__ import annotations

from abs_core.crash import CrashPoint

CO_COMMIT = frozenset({CrashPoint.INSIDE_CO_COMMIT, CrashPoint.AFTER_CO_COMMIT})
"""Passed only where rows and register change in one transaction."""

TWO_STEP = frozenset(
    {
        CrashPoint.AFTER_INSPECT,
        CrashPoint.AFTER_DECIDE,
        CrashPoint.BETWEEN_COMMITS,
        CrashPoint.AFTER_COMMIT,
        CrashPoint.AFTER_FINISH,
    }
)
"""Passed only where a decision comes first, and the commits after it."""

WORST = frozenset(
    {
        CrashPoint.AFTER_PRE_COMMIT,
        CrashPoint.AFTER_DECIDE,
        CrashPoint.BETWEEN_COMMITS,
        CrashPoint.AFTER_COMMIT,
        CrashPoint.INSIDE_CO_COMMIT,
        CrashPoint.AFTER_CO_COMMIT,
        CrashPoint.AFTER_ABANDON,
        CrashPoint.BETWEEN_ABORTS,
    }
)
"""Where a process dies between two effects in the target."""

RARE = frozenset({CrashPoint.AFTER_ABANDON, CrashPoint.BETWEEN_ABORTS})
"""Not on the way of a healthy run; the sinks' own tests crash there."""
