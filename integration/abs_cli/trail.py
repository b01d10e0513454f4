"""The trail of manual commands: one line of JSON before and one after each, on this machine.

It is ``$ABS_TRAIL``, or ``abs/trail.jsonl`` below ``$XDG_STATE_HOME`` (``~/.local/state``). A line
is durable before the command acts, and another one is added after it: a command without a second
line was interrupted. It contains names and no secret (I9). A command that cannot be noted is not
run.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from abs_core.durable import flush_folder, make_durably, owners_alone
from abs_core.errors import AbsError, ConfigError


def trail_path() -> Path:
    named = os.environ.get("ABS_TRAIL")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "abs" / "trail.jsonl"


@contextmanager
def noted(act: str, job: str, url: str | None, **more: object) -> Iterator[dict[str, object]]:
    """Note a command before it runs, and its result after; yields what is noted then, to be corrected.

    Args:
        url: of the register, noted without user, password and query. None: a file names several.
        more: the command's arguments.

    Raises:
        ConfigError: the trail cannot be written; nothing was done.
    """
    from abs_sinks.door import shown

    line = {"act": act, "job": job, "at": "several systems" if url is None else shown(url), **more}
    _write({**line, "step": "begun"})
    try:
        yield line
    except AbsError as error:
        _write({**line, "step": "failed", "error": type(error).__name__})
        raise
    _write({**line, "step": "done"})


def _write(line: Mapping[str, object]) -> None:
    path = trail_path()
    who = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "user": getpass.getuser(),
        "host": socket.gethostname(),
    }
    try:
        make_durably(path.parent)
        existed = path.exists()
        with open(path, "a", encoding="utf-8", opener=owners_alone) as file:
            file.write(json.dumps({**who, **line}, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if not existed:
            flush_folder(path.parent)
    except OSError as error:
        raise ConfigError(
            f"The trail of manual commands cannot be written: {path}: {error.strerror}.",
            remedy="set ABS_TRAIL to a file that can be written.",
        ) from error
