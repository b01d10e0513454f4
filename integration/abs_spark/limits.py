"""How much one epoch may take, in the core's terms and in Spark's.

Spark 4.2 brought read limits and ``availableNow`` to Python sources; 4.1 knows neither, and is given
stand-ins here: it never asks for them.
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
    """What Spark is told; of several bounds one, since it knows no limit with two."""
    if limit.rows is not None:
        return ReadMaxRows(limit.rows)
    if limit.files is not None:
        return ReadMaxFiles(limit.files)
    if limit.bytes is not None:
        return ReadMaxBytes(limit.bytes)
    return ReadAllAvailable()


def given_limit(given: ReadLimit, own: Limit) -> Limit:
    """What Spark asks for: ``own``, all of it, where it hands back what ``default_limit`` said.

    It asks for something else where the trigger overrules the options (``once``: all there is).
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
