"""Durable files and folders, files locked by their owner, and the mapping of file system errors."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from abs_core.errors import RefusedError, TargetError, UnavailableError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_FLUSH = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of fsync(2) by which a file system says that it cannot, not that it failed."""
NO_HANDLE_LEFT = {errno.EMFILE, errno.ENFILE}
RAISE_FILES = "raise the limit of open files (`ulimit -n`; LimitNOFILE= of a systemd unit)."


def flush_folder(folder: Path) -> None:
    """Flush a folder, so that the names in it are durable (fsync(2): flushing a file does not do it).

    Some file systems cannot flush a folder (FUSE, mounts of cloud storage). There it is left out, with
    a warning: whether a name survives a loss of power is theirs to say.

    Raises:
        OSError: the folder is missing, or the disk fails.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NO_FLUSH:
            raise
        _warn_unflushed(folder)
    finally:
        os.close(opened)


@cache
def _warn_unflushed(folder: Path) -> None:
    """Once per process and folder."""
    logging.getLogger(__name__).warning(
        "The file system of %s cannot flush a folder: a file made there may be gone after a loss of "
        "power, unless the file system keeps it by other means.",
        folder,
    )


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder.

    ``Path.exists`` may take any error for absence (from Python 3.14 on), and absence must be proven.

    Raises:
        OSError: it cannot be told.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in order; none if there is no such folder.

    ``Path.glob`` takes any error for an empty folder (from Python 3.12 on).

    Raises:
        OSError: it cannot be told.
    """
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []


def make_durably(folder: Path, *, private: bool = True) -> None:
    """Make a missing folder and its parents, durably.

    Those that are there are flushed too, once by each process: who made one may have died before it
    was durable, and what is written into it would be lost with its name.

    Args:
        private: accessible to the owner only; else as the umask says.

    Raises:
        OSError: a part of the path is a file or may not be made, or the disk fails.
    """
    for path in reversed((folder, *folder.parents)):
        missing = not is_there(path)
        if missing:
            path.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        status = path.stat()
        try:
            _flush_name(path, status.st_dev, status.st_ino)
        except PermissionError:
            if missing:  # else no process of this user has made it: that takes the same right
                raise


@lru_cache(maxsize=1024)
def _flush_name(folder: Path, device: int, inode: int) -> None:
    """Once by each process; device and inode tell a folder from one that is made anew."""
    flush_folder(folder.parent)


def owners_alone(path: str, flags: int) -> int:
    """An ``opener`` for ``open()`` that makes files accessible to the owner only."""
    return os.open(path, flags, 0o600)


def write_beside(path: Path, content: bytes, suffix: str = ".tmp", *, private: bool = True) -> Path:
    """A durable file with this content beside ``path``; missing folders are made, durably.

    Args:
        private: accessible to the owner only; else as the umask says.

    Raises:
        OSError: nothing is left of it.
    """
    make_durably(path.parent)
    temporary = path.with_name(f"{path.name}{suffix}")
    try:
        with open(temporary, "wb", opener=owners_alone if private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk: it would keep it full
        raise
    return temporary


def replace_durably(path: Path, content: bytes, *, private: bool = True) -> None:
    """Replace the file's content; after a crash it has the old or the new one. See ``write_beside``."""
    write_beside(path, content, private=private).replace(path)
    flush_folder(path.parent)


def create_durably(path: Path, content: bytes, *, private: bool = True) -> bool:
    """Create the file if there is none; whole and durable on return. Of several writers one wins.

    Returns whether this one did. See ``write_beside``; the file beside it has a hidden name.
    """
    hidden = path.with_name(f".{secrets.token_hex(8)}")
    aside = write_beside(hidden, content, private=private)
    try:
        path.hardlink_to(aside)  # unlike a rename it never replaces
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
        flush_folder(path.parent)
    return True


@contextmanager
def disk_errors(
    subject: str,
    doing: str = "",
    *,
    room: str = "make room",
    job: str | None = None,
    right: str = "read and write",
) -> Iterator[None]:
    """Map every ``OSError`` to one of the project's errors: what a person can mend is refused.

    Args:
        subject: of the error's sentence: ``The register folder /x``.
        doing: what was being done: ``sealing a segment``.
        room: remedy for a full disk.
        right: what this user must be allowed to do.

    Raises:
        RefusedError: missing permission, no room, or a name or a link that cannot be used.
        UnavailableError: too many open files, a folder that is gone, or the disk does not answer.
    """
    try:
        yield
    except OSError as error:
        raise disk_error(error, subject, doing, room=room, job=job, right=right) from error


def disk_error(
    error: OSError,
    subject: str,
    doing: str = "",
    *,
    room: str = "make room",
    job: str | None = None,
    right: str = "read and write",
) -> TargetError:
    """The project's error for one of a disk; see ``disk_errors``."""
    number = errno.EACCES if isinstance(error, PermissionError) else error.errno
    kind, how, remedy = _MEANINGS.get(number or 0, _SILENT)
    why = f"{f' ({doing})' if doing else ''}: {error.strerror or error}"
    named = error.filename
    if isinstance(named, str | Path) and str(named) not in f"{subject}{why}":
        why += f": {named}"
    remedy = remedy.format(right=right, room=room)
    return kind(f"{subject} {how}{why}.", job=job, remedy=remedy)


class _Meaning(NamedTuple):
    kind: type[TargetError]
    how: str
    remedy: str


_SILENT = _Meaning(
    UnavailableError,
    "does not answer",
    "look for a disk or a file system that has failed or gone.",
)
"""What is in no list below: EIO, ETIMEDOUT, EHOSTDOWN, ..."""

_MEANINGS = {
    errno.EACCES: _Meaning(  # and EPERM: both are PermissionError
        RefusedError, "cannot be used", "give this user the right to {right} it."
    ),
    errno.EROFS: _Meaning(
        RefusedError,
        "cannot be written",
        "mount its file system for writing (the system may have closed it after an error of the "
        "disk), or name another place.",
    ),
    errno.ENOSPC: _Meaning(RefusedError, "is full", "{room}, then restart."),
    errno.EDQUOT: _Meaning(
        RefusedError, "is full", "{room}, or raise this user's quota, then restart."
    ),
    errno.EFBIG: _Meaning(
        RefusedError,
        "cannot be written",
        "raise the limit of a file's size (`ulimit -f`; LimitFSIZE= of a systemd unit), or name a "
        "place on a file system that has larger files.",
    ),
    **dict.fromkeys(NO_HANDLE_LEFT, _Meaning(UnavailableError, "cannot be opened", RAISE_FILES)),
    errno.ELOOP: _Meaning(
        RefusedError, "cannot be used", "remove the symbolic link that leads back to itself."
    ),
    errno.ENAMETOOLONG: _Meaning(
        RefusedError, "cannot be used", "shorten the name: most file systems have 255 bytes."
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST),
        _Meaning(
            RefusedError,
            "cannot be used",
            "a file stands where a folder is needed: correct the path, or move the file.",
        ),
    ),
    errno.EISDIR: _Meaning(
        RefusedError,
        "cannot be used",
        "a folder stands where a file is needed: correct the path, or move the folder.",
    ),
    **dict.fromkeys(
        (errno.EINVAL, errno.EILSEQ, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV),
        _Meaning(
            RefusedError,
            "cannot be used",
            "its file system cannot do this, or has no such names: name a place on another one.",
        ),
    ),
    **dict.fromkeys(
        (errno.ENOENT, errno.ESTALE),
        _Meaning(
            UnavailableError,
            "is not there",
            "see who has removed it, and whether its file system is mounted.",
        ),
    ),
}
"""What people can mend, by the system's number. None of the first ones goes away by itself."""


@contextmanager
def of_a_dead_process(path: Path) -> Iterator[BinaryIO | None]:
    """A dead process's file, open and locked; None: its process lives, or it cannot be opened.

    A process locks its file (``flock``) until it ends: the system frees the lock however it ends.
    """
    with ExitStack() as stack:
        locked_file = None
        with suppress(OSError):  # it is locked; or it is gone, or another user's
            file = stack.enter_context(path.open("rb+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked_file = file
        yield locked_file
