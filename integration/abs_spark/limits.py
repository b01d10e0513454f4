"""Converts the core's limits of an epoch to Spark's read limits and back.

Spark 4.1 has no read limits and no ``availableNow`` for Python sources (new in 4.2); it gets stand-ins,
which it never uses.
"""

from __future__ import annotations

from typing import Any

from abs_core.source import Limit

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # Spark 4.1
    HAS_LIMITS = False
    ReadLimit = ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = ReadMaxRows = Any  # type: ignore
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

__all__ = ["HAS_LIMITS", "ReadLimit", "SupportsTriggerAvailableNow", "default_limit", "given_limit"]


def default_limit(limit: Limit) -> ReadLimit:
    """The limit as Spark's; only one of several bounds, as Spark's limits have one."""
    if limit.rows is not None:
        return ReadMaxRows(limit.rows)
    if limit.files is not None:
        return ReadMaxFiles(limit.files)
    if limit.bytes is not None:
        return ReadMaxBytes(limit.bytes)
    return ReadAllAvailable()


def given_limit(given: ReadLimit, own: Limit) -> Limit:
    """Spark's limit as the core's: ``own`` in full if Spark returns ``default_limit(own)``.

    Spark passes another limit if the trigger overrides the options (``once``: all data).
    """
    if given == default_limit(own):
        return own
    if isinstance(given, ReadMaxRows):
        return Limit(rows=given.max_rows)
    if isinstance(given, ReadMaxFiles):
        return Limit(files=given.max_files)
    if isinstance(given, ReadMaxBytes):
        return Limit(bytes=given.max_bytes)
    return Limit()
