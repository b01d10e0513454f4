"""Class archives that Java maps at its start; each is made once per machine."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_once(archive: Path, lock: str, dump: Callable[[Path], None]) -> None:
    """Make the archive if absent, whole or not at all; concurrent callers wait.

    Args:
        lock: name of the lock file in the same folder.
        dump: writes the archive to a file.

    Raises:
        OSError: the folder cannot be used; and whatever ``dump`` raises.
    """
    with (archive.parent / lock).open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch) / archive.name
            dump(made)
            made.rename(archive)
