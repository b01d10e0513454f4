"""Counts the target's visible rows while the job runs."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from abs_audit import Relation
from abs_audit.workspace import workspace
from abs_core.errors import AbsError

_MEMORY_MIB = 256
_EVERY_S = 1.0
_SHARE = 0.1
"""Counting takes at most this share of the time."""


class VisibleRows:
    """Counts in a thread of its own, once a second or less often where a count takes long.

    A target that is not there yet, or does not answer, has no count at that moment.

    Args:
        column: to read.
    """

    def __init__(self, target: Relation, column: str) -> None:
        self._target = target
        self._column = column
        self._began = time.monotonic()
        self._counts: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def counts(self) -> tuple[tuple[float, int], ...]:
        """Seconds since the start, and rows."""
        return tuple(self._counts)

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                with (
                    workspace(_MEMORY_MIB, None) as connection,
                    self._target.rows(connection, [self._column]) as rows,
                ):
                    ((count,),) = rows.aggregate("count(*)").fetchall()
                self._counts.append((round(began - self._began, 3), count))
            except AbsError:  # it is away, or not there yet: the audit at the end will say so
                pass
            pause = max(_EVERY_S, (time.monotonic() - began) / _SHARE)
