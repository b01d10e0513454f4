"""Writes every event as a line of JSON to a file that many processes share.

``ABS_OBSERVE=abs_core.eventlog:to_file ABS_EVENT_LOG=/path/events.jsonl`` in the environment of a Spark
driver, or ``Job(events=to_file())`` in the embedded runtime. Lines are in the order in which they were
written: a line is one append, so lines of several processes never mix on a local file system.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from abs_core.errors import ConfigError
from abs_core.events import Event, Observer

VARIABLE = "ABS_EVENT_LOG"


def to_file(path: str | Path | None = None) -> Observer:
    """An observer that appends to the file.

    A line has the event's fields, its name as ``event``, and the process as ``pid``. It is handed to
    the operating system before the observer returns, and not flushed to the disk.

    Args:
        path: default: what ``ABS_EVENT_LOG`` names.

    Raises:
        ConfigError: neither names a file.
        OSError: the file cannot be opened.
    """
    place = path or os.environ.get(VARIABLE)
    if not place:
        raise ConfigError(
            "The event log has no file.", remedy=f"set {VARIABLE} to a path that can be written to."
        )
    log = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(event: Event) -> None:
        line = {"event": type(event).__name__, "pid": os.getpid(), **asdict(event)}
        os.write(log, json.dumps(line).encode() + b"\n")

    return write
