"""Files that a process locks (``flock``) until it ends: the system frees the lock however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def of_a_dead_process(path: Path) -> Iterator[BinaryIO | None]:
    """A dead process's file, open and locked; None: its process lives, or it cannot be opened."""
    with ExitStack() as stack:
        found = None
        with suppress(OSError):  # it is locked; or it is gone, or another user's
            file = stack.enter_context(path.open("rb+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = file
        yield found
