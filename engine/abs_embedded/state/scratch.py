"""Folders on a local disk that are removed after their process's end.

Each folder has a file ``owner``, locked (``flock``) by its process: the system frees the lock
however the process ends. Making a folder removes unlocked ones beside it. A folder without that
file is kept: an earlier release made it, and may still use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
from pathlib import Path

from abs_core.durable import disk_errors, of_a_dead_process

_OWNER = "owner"
_NEW = ".new-"
"""How the name of a folder begins that is not locked yet."""
_log = logging.getLogger("abs_embedded.state")


class ScratchFolder:
    """A new folder in ``parent``, this process's own until ``remove`` or its end.

    Raises RefusedError or UnavailableError, see ``disk_errors``.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        name = f"{prefix}{secrets.token_hex(8)}"
        self.path, new = parent / name, parent / f"{_NEW}{name}"
        with disk_errors(f"The folder {parent}"):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_orphans(parent)
            new.mkdir(mode=0o700)
            self._lock: int | None = os.open(new / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self.path)  # nobody looks at it before it is locked

    def remove(self) -> None:
        """Delete it (idempotent). What cannot be deleted is left to the next start."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                _remove(self.path)
            os.close(self._lock)
            self._lock = None


def _remove_orphans(parent: Path) -> None:
    for owner in parent.glob(f"*/{_OWNER}"):
        if owner.parent.name.startswith(_NEW):
            continue
        with contextlib.suppress(OSError), of_a_dead_process(owner) as file:
            if file is not None:
                _log.info("removing %s: the process that made it has died", owner.parent)
                _remove(owner.parent)


def _remove(folder: Path) -> None:
    """Delete the file ``owner`` last, so that remains are found if this process dies."""
    for path in folder.iterdir():
        if path.name == _OWNER:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
