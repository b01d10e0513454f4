"""An error of a disk says what is, and its remedy is one for that: no name is taken for an outage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abs_core import durable, registers
from abs_core.durable import disk_error, disk_errors
from abs_core.errors import RefusedError, TargetError, UnavailableError
from abs_core.model import JobState
from abs_core.registers import FileRegister
from abs_core.wal import FolderSegments
from abs_embedded.state import local_store
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_sinks.lake.folder import FolderStore
from abs_sources.files.cells import WriteOnceFolder
from tests.planted import Defect, planted

OUTAGES = {
    *("EIO", "ENXIO", "ENODEV", "ENOMEM", "ETIMEDOUT", "EHOSTDOWN", "ENOTCONN", "ENOLCK"),
    *("EBUSY", "EAGAIN", "EINTR", "EREMOTEIO"),
}
"""What no person's names, rights, links or room cause; it may go away by itself."""

NEVER = {
    *("EBADF", "EFAULT", "ESPIPE", "EDESTADDRREQ", "EOVERFLOW", "ETXTBSY", "ENOTEMPTY", "ENODATA"),
}
"""What only a defect of ours, or a call that we do not make, causes."""

CALLS = {
    "open(2)": "EACCES EBUSY EDQUOT EEXIST EFAULT EFBIG EINTR EINVAL EISDIR ELOOP EMFILE ENAMETOOLONG "
    "ENFILE ENODEV ENOENT ENOMEM ENOSPC ENOTDIR ENXIO EOPNOTSUPP EOVERFLOW EPERM EROFS ETXTBSY EAGAIN",
    "write(2)": "EAGAIN EBADF EDESTADDRREQ EDQUOT EFAULT EFBIG EINTR EINVAL EIO ENOSPC EPERM",
    "fsync(2)": "EBADF EINTR EIO ENOSPC EROFS EINVAL EDQUOT",
    "rename(2)": "EACCES EBUSY EDQUOT EFAULT EINVAL EISDIR ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM "
    "ENOSPC ENOTDIR ENOTEMPTY EEXIST EPERM EROFS EXDEV",
    "link(2)": "EACCES EDQUOT EEXIST EFAULT EIO ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM ENOSPC ENOTDIR "
    "EPERM EROFS EXDEV",
    "mkdir(2)": "EACCES EDQUOT EEXIST EFAULT EINVAL ELOOP EMLINK ENAMETOOLONG ENOENT ENOMEM ENOSPC "
    "ENOTDIR EPERM EROFS",
    "stat(2)": "EACCES EBADF EFAULT ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EOVERFLOW",
    "getdents(2)": "EBADF EFAULT EINVAL ENOENT ENOTDIR",
    "flock(2)": "EBADF EINTR EINVAL ENOLCK EAGAIN",
    "NFS, SMB, FUSE": "EIO ESTALE ETIMEDOUT EHOSTDOWN ENOTCONN EREMOTEIO EILSEQ EOPNOTSUPP ENOSYS",
}
"""What each call that we make can raise, by its manual page."""

NAMES = sorted({name for names in CALLS.values() for name in names.split()} - NEVER)


def told(number: int) -> TargetError:
    return disk_error(OSError(number, os.strerror(number)), "The folder /x", "writing")


@pytest.mark.parametrize("name", NAMES)
def test_only_an_outage_is_told_as_one(name: str) -> None:
    number = getattr(errno, name)
    error = told(number)
    assert ("does not answer" in error.what) is (name in OUTAGES)
    assert ("has failed or gone" in error.remedy) is (name in OUTAGES)
    assert os.strerror(number) in error.what


def test_planted_an_error_that_is_told_as_an_outage_is_found() -> None:
    for name in sorted(set(NAMES) - OUTAGES - {"EPERM"}):  # which Python makes EACCES's exception
        others = {n: m for n, m in durable._MEANINGS.items() if n != getattr(errno, name)}
        with planted((durable, "_MEANINGS", others)):
            test_only_an_outage_is_told_as_one(name)


def test_a_full_disk_is_told_with_the_way_to_make_room_there() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        full = OSError(number, os.strerror(number))
        error = disk_error(full, "The folder /x", room="empty the folder {y}")
        assert error.what.startswith("The folder /x is full: ")
        assert error.remedy.startswith("empty the folder {y}, ")


def test_a_right_that_is_missing_is_told_without_a_number_too() -> None:
    assert "give this user the right" in disk_error(PermissionError("it is open"), "X").remedy


def _loop(place: Path) -> None:
    place.symlink_to(place)


def _file(place: Path) -> None:
    place.write_text("")


def _folder(place: Path) -> None:
    (place / "x").mkdir(parents=True)


def _nothing(place: Path) -> None:
    pass


def _remove(place: Path) -> None:
    place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()


LONG = "n" * 300
MADE: dict[str, tuple[Callable[[Path], None], str, type[TargetError], str]] = {
    "loop": (_loop, "place/x", RefusedError, "remove the symbolic link"),
    "file": (_file, "place/x", RefusedError, "move the file"),
    "folder": (_folder, "place", RefusedError, "move the folder"),
    "long name": (_nothing, LONG, RefusedError, "shorten the name"),
    "gone": (_nothing, "place/x", UnavailableError, "who has removed it"),
}


@pytest.mark.parametrize("case", MADE)
def test_what_a_person_has_made_is_named_and_can_be_mended(case: str, tmp_path: Path) -> None:
    make, name, kind, remedy = MADE[case]
    make(tmp_path / "place")
    with (
        pytest.raises(kind, match=r"The folder X .*/(place|nnn)") as error,
        disk_errors("The folder X"),
    ):
        (tmp_path / name).write_text("x")
    assert remedy in error.value.remedy
    assert type(error.value) is kind


SILENT = OSError(errno.EIO, os.strerror(errno.EIO))
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")

LOOKS: dict[str, Callable[[Path], object]] = {
    "a job's register": lambda folder: FileRegister(folder).load("job"),
    "all registers": lambda folder: FileRegister(folder).jobs(),
    "registers of others": lambda folder: FileRegister(folder).others_on("target", "another"),
    "a register to retire": lambda folder: FileRegister(folder).retire("none"),
    "segments": lambda folder: FolderSegments(folder).list(None),
    "a log's cells": lambda folder: WriteOnceFolder(folder).names(),
    "snapshots": lambda folder: LocalSnapshotStore(folder).completed(),
    "blobs": lambda folder: LocalSnapshotStore(folder).blobs(),
    "staged files": lambda folder: [*FolderStore(folder).list("")],
}
"""Looks of which the answer "nothing is there" is acted on."""


LISTING = sorted(set(LOOKS) - {"a job's register", "a register to retire"})


def errors_as_absence(patch: pytest.MonkeyPatch, below: Path, *, looks: bool) -> None:
    """The folder's disk has failed, and Python's own looks say that nothing is there, or raise.

    Args:
        looks: also at the folder itself; else it cannot be listed only.
    """
    look = os.stat

    def no_look(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(below)):
            raise SILENT
        return look(path, **more)

    def no_list(path: object = ".") -> object:
        raise SILENT

    patch.setattr(Path, "glob", lambda path, pattern: iter(()))  # from Python 3.12 on
    patch.setattr(os, "scandir", no_list)
    patch.setattr(os, "listdir", no_list)
    if looks:
        patch.setattr(Path, "exists", lambda path: False)  # from Python 3.14 on
        patch.setattr(os, "stat", no_look)


@pytest.mark.parametrize(
    ("name", "looks"), [*((name, True) for name in LOOKS), *((name, False) for name in LISTING)]
)
def test_a_folder_that_cannot_be_looked_at_is_not_taken_for_an_empty_one(
    name: str, looks: bool, tmp_path: Path
) -> None:
    FileRegister(tmp_path).compare_and_set("job", None, STATE)
    LocalSnapshotStore(tmp_path).complete(1, b"x", [])
    LOOKS[name](tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        errors_as_absence(patch, tmp_path, looks=looks)
        with pytest.raises(UnavailableError, match="does not answer"):
            LOOKS[name](tmp_path)


def globbed(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


@pytest.mark.parametrize(
    ("defect", "name"),
    [
        ((registers, "is_there", lambda folder: folder.exists()), "a job's register"),
        ((registers, "names_in", globbed), "registers of others"),
        ((local_store, "names_in", globbed), "snapshots"),
        ((local_store, "_refuse", None), "blobs"),
    ],
)
def test_planted_an_error_that_is_taken_for_absence_is_found(
    defect: Defect, name: str, tmp_path: Path
) -> None:
    with planted(defect, by=pytest.fail.Exception):
        test_a_folder_that_cannot_be_looked_at_is_not_taken_for_an_empty_one(name, True, tmp_path)
