"""Folders for the cache, the state of ``abs up`` and temporary data."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from abs_clients.ownfolder import check_own, in_shared, own_folder
from abs_core.errors import ConfigError


def cache_folder() -> Path:
    """``$ABS_CACHE``, or ``$XDG_CACHE_HOME/abs-sinks``, or ``~/.cache/abs-sinks``; made if absent.

    Holds downloaded jars, and state and data of ``abs up``. Mode 0700: it holds credentials.
    """
    named = os.environ.get("ABS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(base) / "abs-sinks"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if in_shared(folder):
            check_own(folder)
    except OSError as error:
        raise ConfigError(
            f"the cache folder {folder} cannot be used: {error.strerror or error}",
            remedy="set ABS_CACHE to a folder that can be written.",
        ) from error
    return folder


def delete(path: Path) -> None:
    """Delete a folder or file of a temporary server; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def shared_folder() -> Path:
    """A lasting folder of root's that every user can pass through; made if absent.

    Root's home and cache are closed to others, and PostgreSQL refuses to run as root.
    """
    try:
        return own_folder()
    except OSError as error:
        raise ConfigError(
            f"no folder for servers can be made in {tempfile.gettempdir()}: {error}",
            remedy="remove what is there, or point TMPDIR to another folder.",
        ) from error


@dataclass(frozen=True)
class Account:
    """The operating system's user that a server runs as."""

    name: str
    uid: int
    gid: int

    @classmethod
    def for_servers(cls) -> Account | None:
        """``nobody`` for root, else None: run as the caller."""
        if os.geteuid() != 0:
            return None
        user = pwd.getpwnam("nobody")
        return cls(user.pw_name, user.pw_uid, user.pw_gid)

    def can_reach(self, path: Path) -> bool:
        """Whether this user may pass through a folder and all of its parents (by mode bits)."""
        named, real = path.absolute(), path.resolve()
        passed = {named, *named.parents, real, *real.parents}
        return all(self._may_pass(folder.stat()) for folder in passed)

    def _may_pass(self, info: os.stat_result) -> bool:
        if info.st_uid == self.uid:
            return bool(info.st_mode & stat.S_IXUSR)
        if info.st_gid == self.gid:
            return bool(info.st_mode & stat.S_IXGRP)
        return bool(info.st_mode & stat.S_IXOTH)

    def own(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid)


def reachable_copy(root: Path, parts: Sequence[str], name: str, account: Account) -> Path:
    """``root``, or a copy of its ``parts`` that ``account`` can reach, made once.

    For programs below a closed home, as those of a venv of root's often are.
    """
    if all(account.can_reach(root / part) for part in parts):
        return root
    copy = shared_folder() / name
    if not copy.exists():
        with tempfile.TemporaryDirectory(dir=copy.parent) as scratch:
            half = Path(scratch) / name
            for part in parts:
                shutil.copytree(root / part, half / part, symlinks=True)
            with contextlib.suppress(OSError):  # another process was first
                half.rename(copy)
    return copy
