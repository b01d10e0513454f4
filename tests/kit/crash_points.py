"""The crash points that a job passes, by its sink's way to commit, for tests that must hit all."""

from __future__ import annotations

from abs_core.crash import CrashPoint

CO_COMMIT = frozenset({CrashPoint.INSIDE_CO_COMMIT, CrashPoint.AFTER_CO_COMMIT})
"""Passed only if rows and register change in one transaction."""

TWO_STEP = frozenset(
    {
        CrashPoint.AFTER_INSPECT,
        CrashPoint.AFTER_DECIDE,
        CrashPoint.BETWEEN_COMMITS,
        CrashPoint.AFTER_COMMIT,
        CrashPoint.AFTER_FINISH,
    }
)
"""Passed only if commits follow a separate decision."""

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
"""Between two effects in the target."""

RARE = frozenset({CrashPoint.AFTER_ABANDON, CrashPoint.BETWEEN_ABORTS})
"""Not passed by a healthy run; the sinks' own tests crash there."""
