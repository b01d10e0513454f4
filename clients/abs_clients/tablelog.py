"""What the log of a table of the lake tells of its commits, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFECT = (
    "this is a defect: please report it. A decision stays as it is, and a release that mends this adds "
    "its files at the next start"
)
"""The remedy for an exception of a library that no list of its client has."""


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file that a commit added.

    Args:
        content: equal for files whose sizes, rows, partition values and column statistics are equal;
            None if too little is told to compare them, or if the file only holds rows of others.
    """

    path: str
    rows: int
    content: str | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a writer says it has reached with a commit.

    Args:
        writer: of one run of a job; the numbers of one writer grow from commit to commit.
        reached: one number, or an offset for each partition.
        repeats: why a right writer may reach the same again in a second commit; empty if it never does.
        begins_again: why the numbers of a right writer may begin again lower; empty if they never do.
    """

    writer: str
    reached: Mapping[str, int]
    repeats: str = ""
    begins_again: str = ""


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One commit of a table.

    Args:
        name: its version, or its snapshot's id.
        at: when, in milliseconds since 1970; None if that is no longer told.
        unread: properties of known writers whose text tells no number or offsets.
        removed: paths that readers no longer see from here on.
        restored: paths of earlier files that an undo of later commits shows again.
        rewrites: whether the added files hold the rows of the removed ones, as after a compaction.
        altered: paths of files of which some rows are deleted from here on; None: it may be any file.
    """

    name: str
    at: int | None
    added: tuple[LoggedFile, ...]
    epochs: tuple[Epoch, ...] = ()
    unread: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    rewrites: bool = False
    altered: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The commits that a table's log still tells, oldest first.

    Args:
        live: how often the newest state holds each file.
        repair_files: what removes the second registration of a file.
        remove_file: what takes one file, with its rows, out of the table.
    """

    commits: tuple[LoggedCommit, ...]
    live: Mapping[str, int]
    repair_files: str
    remove_file: str

    @property
    def unread(self) -> tuple[LoggedCommit, ...]:
        """Commits that may be an epoch which occurs twice: what they say of it cannot be read."""
        return tuple(commit for commit in self.commits if commit.unread)
