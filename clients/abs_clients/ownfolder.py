"""Folders of ours in a folder that all users share, such as /tmp: the only place that makes them.

Other users may make any name there before us: a folder, or a link to one of ours. What lies in a folder
that this has returned can be made, locked and deleted by its name: nobody else can put a link there.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PRIVATE, PASSABLE = 0o700, 0o711
"""Modes: for the user alone; or also for other users to pass through, who can list nothing."""


def own_folder(*parts: str, mode: int = PRIVATE) -> Path:
    """The folder ``abs-sinks-<uid>`` in the machine's temporary folder, or one below it.

    It is made if absent. Each step is looked at without following a link, and is a folder of this
    user's that nobody else can write to.

    Args:
        parts: names, each of a folder in the one before.
        mode: of the last part; others can pass through the first folder.

    Raises:
        PermissionError: one of them is a link, another user's, or open to others.
        OSError: it cannot be made.
    """
    shared = Path(tempfile.gettempdir())
    here = shared.stat()
    others_write = here.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others_write and not here.st_mode & stat.S_ISVTX:
        raise PermissionError(
            f"{shared} lets every user rename what is another one's (no sticky bit)"
        )
    folder = shared / f"abs-sinks-{os.geteuid()}"
    steps = [folder, *(folder := folder / part for part in parts)]
    for step in steps:
        wanted = mode if parts and step == steps[-1] else PASSABLE
        with suppress(FileExistsError):
            step.mkdir(mode=wanted)
        check_own(step)
        step.chmod(wanted)
    return steps[-1]


def check_own(folder: Path) -> None:
    """Raise PermissionError unless this is a folder of the user's own, and no link to one."""
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode):
        raise PermissionError(f"{folder} is a link or a file")
    if there.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{folder} is open to other users (mode {stat.S_IMODE(there.st_mode):o})"
        )


def in_shared(folder: Path) -> bool:
    """Whether others can make names beside this one."""
    return bool(folder.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
