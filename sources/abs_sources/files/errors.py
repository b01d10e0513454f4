"""Errors of files; maps foreign exceptions."""

from __future__ import annotations

from contextlib import AbstractContextManager

from abs_core.durable import disk_errors
from abs_core.errors import ReplayMismatchError


def gone(name: str) -> ReplayMismatchError:
    """The pinned file does not exist any more."""
    return ReplayMismatchError(
        f"The file {name} was taken into an epoch and is gone now.",
        remedy="put it back, unchanged; keep files until the epoch that reads them is committed.",
    )


def changed(name: str, then: str, now: str) -> ReplayMismatchError:
    """The file differs from the pinned one."""
    return ReplayMismatchError(
        f"The file {name} has changed since it was taken into an epoch: {then} then, {now} now.",
        remedy="restore the original content with its modification time; give new content a new "
        "name, and write files elsewhere before you rename them into place.",
    )


def reading(name: str) -> AbstractContextManager[None]:
    """Raise errors of the disk as RefusedError or UnavailableError."""
    return disk_errors(name, right="read")
