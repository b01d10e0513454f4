"""The local file system: what it keeps over a power cut, who may read it, and what its errors mean.

Files and folders that hold rows or registers are made for their owner alone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abs_core.errors import RefusedError, UnavailableError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_HANDLE_LEFT = {errno.EMFILE, errno.ENFILE}


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable (fsync(2): flushing a file does not flush its name).

    Raises:
        OSError: the folder is not there, or the disk fails.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_durably(folder: Path) -> None:
    """Make the folder where it is missing; every folder that is made is durable, and its owner's alone.

    Raises:
        OSError: a part of it is a file, may not be made, or the disk fails.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for made in reversed(missing):
        made.mkdir(mode=0o700, exist_ok=True)
        flush_folder(made.parent)


def owners_alone(path: str, flags: int) -> int:
    """An ``opener`` for ``open()``: a file that is made is its owner's alone."""
    return os.open(path, flags, 0o600)


@contextmanager
def disk_errors(
    what: str, doing: str = "", *, room: str = "make room", job: str | None = None
) -> Iterator[None]:
    """Let only the project's errors out.

    Args:
        what: what is used, as the begin of a sentence: ``The register folder /x``.
        doing: what it is used for: ``sealing a segment``.
        room: what to do where the disk is full.

    Raises:
        RefusedError: this user may not, or the disk is full.
        UnavailableError: there are too many open files, or the disk does not answer.
    """
    try:
        yield
    except OSError as error:
        why = f"{f' ({doing})' if doing else ''}: {error.strerror or error}"
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            raise RefusedError(
                f"{what} cannot be used{why}.",
                job=job,
                remedy="give this user the right to read and write it.",
            ) from error
        if error.errno in FULL:
            raise RefusedError(
                f"{what} is full{why}.", job=job, remedy=f"{room}, then restart."
            ) from error
        if error.errno in NO_HANDLE_LEFT:
            raise UnavailableError(
                f"{what} cannot be opened{why}.",
                job=job,
                remedy="raise the limit of open files (`ulimit -n`; LimitNOFILE= of a systemd unit).",
            ) from error
        raise UnavailableError(
            f"{what} does not answer{why}.",
            job=job,
            remedy="look for a disk or a file system that has failed or gone.",
        ) from error
