"""What is promised to be on disk is there after a power cut: on a disk that keeps no more than it must.

The disk is FUSE's (``tests/kit/power_loss``): it is looked at behind each change, as any of the images
that POSIX lets a power cut leave. ``test_durable_writers.py`` watches the same writers without FUSE, in
``make test``. Where FUSE cannot be mounted, the tests say that they were not run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from abs_core.errors import AbsError
from tests import sample
from tests.core.durable_programs import PLANTED as AFTER_KILLS
from tests.core.durable_programs import PROGRAMS
from tests.core.test_durable_writers import PLANTED
from tests.kit.power_loss.disk import REPOSITORY, Event, Named, PowerDisk, Synced
from tests.kit.power_loss.images import BEGIN, images, put
from tests.planted import planted

pytestmark = pytest.mark.campaign

ROWS = pa.table({"a": pa.array([1, 2, 3])})
AT_RANDOM = 20
"""Random cuts behind each change, besides six plain ones."""
BUGS = [bug for bug in PLANTED if PLANTED[bug][0].__name__ in PROGRAMS]


@dataclass(slots=True)
class Looked:
    """Figures of a check.

    Args:
        broken: what was wrong of the first images that were wrong.
    """

    images: int
    broken: list[str]


def looked(name: str, record: Sequence[Event], folder: str, scratch: Path) -> Looked:
    """Check a program's promises on each image of its folder."""
    found = Looked(0, [])
    for event, said, image in images(record, folder, AT_RANDOM, sample.seed()):
        found.images += 1
        place = put(image, scratch / f"{folder}-{found.images}")
        try:
            PROGRAMS[name].check(place, said)
        except (AssertionError, AbsError, OSError) as error:
            found.broken.append(f"behind {record[event]}, promised {said}: {error}")
            if len(found.broken) == 3:
                break
    return found


def made(disk: PowerDisk, name: str) -> Path:
    """A folder on the disk, durable: what is tried begins in it."""
    folder = disk.root / name
    folder.mkdir()
    root = os.open(disk.root, os.O_RDONLY)
    os.fsync(root)
    os.close(root)
    disk.say(f"{BEGIN}{name}")
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_promised_survives_each_power_cut(name: str, tmp_path: Path) -> None:
    with PowerDisk(tmp_path) as disk:
        PROGRAMS[name].run(made(disk, "here"), disk.say)
    found = looked(name, disk.record(), "here", tmp_path)
    print(f"\n{name}: {len(disk.record())} events, {found.images} images")
    assert found.broken == []
    assert found.images >= 10


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_loses_what_was_promised(bug: str, tmp_path: Path) -> None:
    write, defect = PLANTED[bug]
    name = write.__name__
    with planted(defect) as error:
        with PowerDisk(tmp_path) as disk:
            PROGRAMS[name].run(made(disk, "here"), disk.say)
        assert looked(name, disk.record(), "here", tmp_path).broken == []
    print(f"\n{bug}: {str(error.value)[:300]}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_killed_process_has_left_unsynced_is_not_built_upon(
    name: str, tmp_path: Path
) -> None:
    """A process is killed before each of its changes; the next one promises, and the power is cut."""
    kills, found = looked_after_kills(name, tmp_path)
    print(f"\n{name}: killed before each of {kills} changes, {found.images} images")
    assert found.broken == []


@pytest.mark.parametrize("bug", AFTER_KILLS)
def test_a_planted_trust_in_what_a_killed_process_has_left_is_found(
    bug: str, tmp_path: Path
) -> None:
    kills, found = looked_after_kills(AFTER_KILLS[bug][0], tmp_path, bug)
    assert found.broken
    print(f"\n{bug}: {len(found.broken)} of {kills} kills, {found.broken[0][:300]}")


def looked_after_kills(name: str, scratch: Path, bug: str | None = None) -> tuple[int, Looked]:
    """Run the program twice in each of several folders: killed, then to its end.

    Args:
        bug: planted in both.

    Returns:
        before how many changes it was killed, and what the images show.
    """
    folders: list[str] = []
    with PowerDisk(scratch) as disk, _Forking() as forking:
        while True:
            folder = made(disk, f"after-{len(folders)}")
            code = forking.run(name, folder, len(folders), bug)
            assert forking.run(name, folder, 1_000_000, bug) == 0
            if code == 0:  # it makes no more changes than that
                break
            assert code == -signal.SIGKILL
            folders.append(folder.name)
    found = Looked(0, [])
    for each in folders:
        one = looked(name, disk.record(), each, scratch)
        found.images += one.images
        found.broken += one.broken[:1]
    return len(folders), found


class _Forking:
    """The process that forks programs: see ``durable_programs``. A context manager."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.core.durable_programs"]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, *request: object) -> int:
        """The exit code of a program; negative for a signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def of_delta(folder: Path) -> None:
    deltalake.write_deltalake(str(folder / "table"), ROWS)


def of_iceberg(folder: Path) -> None:
    at = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
    with closing(SqlCatalog("local", **at)) as catalog:
        catalog.create_namespace("n")
        catalog.create_table("n.t", ROWS.schema).append(ROWS)


@pytest.mark.parametrize("write", [of_delta, of_iceberg], ids=lambda write: write.__name__)
def test_libraries_of_the_lake_sync_none_of_their_files_in_a_local_folder(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """The limit that the guarantees name: when this fails, it is one no more."""
    with PowerDisk(tmp_path) as disk:
        write(made(disk, "here"))
    record = disk.record()
    names = {event.node: event.name for event in record if isinstance(event, Named)}
    synced = {names.get(event.node) for event in record if isinstance(event, Synced)}
    files = {name for name in names.values() if name.endswith((".json", ".avro", ".parquet"))}
    assert len(files) > 1
    assert not files & synced
