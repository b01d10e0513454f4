"""Waits until a server serves; if it does not, the error has the end of its log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from abs_core.errors import UnavailableError

_PAUSE_S = 0.05
_LOG_LINES = 3
_TELLING = re.compile(r"FATAL|ERROR|Exception|invalid|unrecognized|could not|already in use")


def await_ready(
    name: str,
    *,
    is_ready: Callable[[], bool],
    is_running: Callable[[], bool],
    said: Callable[[], str],
    deadline_s: float,
) -> None:
    """Wait until ``is_ready()``.

    Args:
        said: the server's log since its start.

    Raises:
        UnavailableError: the server ended, or is not ready in time.
    """
    give_up = time.monotonic() + deadline_s
    what = "ended while it started"
    while is_running():
        if is_ready():
            return
        if time.monotonic() > give_up:
            what = f"is not ready after {deadline_s:.0f} s"
            break
        time.sleep(_PAUSE_S)
    lines = [line for line in said().splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines
    raise UnavailableError(
        f"{name} {what}; its log says: {' | '.join(telling[-_LOG_LINES:])}",
        remedy="act on what the log says, then start again.",
    )
