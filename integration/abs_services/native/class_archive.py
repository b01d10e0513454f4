"""Archives of classes that Java maps at its start; each is made once on a machine."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_once(archive: Path, lock: str, dump: Callable[[Path], None]) -> None:
    """Make the archive where it is not there; who asks at the same time waits for the one that does.

    It appears whole, or not at all.

    Args:
        lock: name of the file, in the same folder, that all who make such archives lock.
        dump: leaves the archive in the file that is given.

    Raises:
        OSError: the folder cannot be used; and whatever ``dump`` raises.
    """
    with (archive.parent / lock).open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if archive.is_file():
            return
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch) / archive.name
            dump(made)
            made.rename(archive)
