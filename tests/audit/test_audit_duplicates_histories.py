"""`abs audit duplicates` beside what each version of a table really holds, over random histories.

A version that is read back tells which rows it holds twice. The finding and the advice are compared
with that: no row twice in any version, no finding; a batch twice, a finding; and what the advice
removes never takes the last copy of a row.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import RemoveAction
from pyiceberg.catalog import load_catalog
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from abs_audit.duplicates import Duplicate, duplicates
from abs_sinks.door import format_at
from tests.sample import seed
from tests.sinks.iceberg.harness import catalog_in

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
BATCHES = 3


def batch(number: int) -> pa.Table:
    """Rows of one day: a batch that is sent again is the same to the byte."""
    ids = list(range(number * 10, number * 10 + 3))
    return pa.table({"id": ids, "day": [f"d{number}"] * 3}, schema=SCHEMA)


class Lake(Protocol):
    """A table that is changed as people change it; the numbers are those of batches."""

    url: str

    def append(self, number: int) -> None: ...
    def overwrite(self, number: int) -> None: ...
    def replace_day(self, number: int) -> None: ...
    def delete_day(self, number: int) -> None: ...
    def rewrite_day(self, number: int) -> None: ...
    def undo(self, number: int) -> None: ...
    def compact(self, number: int) -> None: ...
    def remove_a_file(self, number: int) -> None: ...
    def versions(self) -> Iterator[Counter[int]]:
        """How often each id is there, in each version that the newest one came from, oldest first."""
        ...

    def files(self) -> list[str]:
        """Of the newest state."""
        ...


class Delta:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "t")
        self.url = f"delta:{self.path}"
        write_deltalake(self.path, SCHEMA.empty_table())

    def append(self, number: int) -> None:
        write_deltalake(self.path, batch(number), mode="append")

    def overwrite(self, number: int) -> None:
        write_deltalake(self.path, batch(number), mode="overwrite")

    def replace_day(self, number: int) -> None:
        predicate = f"day = 'd{number}'"
        write_deltalake(self.path, batch(number), mode="overwrite", predicate=predicate)

    def delete_day(self, number: int) -> None:
        DeltaTable(self.path).delete(f"day = 'd{number}'")

    def rewrite_day(self, number: int) -> None:
        DeltaTable(self.path).update(updates={"day": "day"}, predicate=f"day = 'd{number}'")

    def undo(self, number: int) -> None:
        table = DeltaTable(self.path)
        if table.version() > number:
            table.restore(table.version() - 1 - number)

    def compact(self, number: int) -> None:
        DeltaTable(self.path).optimize.compact()

    def remove_a_file(self, number: int) -> None:
        table = DeltaTable(self.path)
        paths = table.get_add_actions()["path"].to_pylist()
        if paths:
            gone = RemoveAction(paths[number % len(paths)], True, 0)
            table.create_write_transaction([gone], "append", table.schema())

    def _ids(self, version: int) -> Counter[int]:
        return Counter(DeltaTable(self.path, version).to_pyarrow_table()["id"].to_pylist())

    def versions(self) -> Iterator[Counter[int]]:
        yield from (self._ids(version) for version in range(DeltaTable(self.path).version() + 1))

    def files(self) -> list[str]:
        return DeltaTable(self.path).file_uris()


class Iceberg:
    def __init__(self, folder: Path) -> None:
        given = catalog_in(folder)
        query = "&".join(f"catalog.{name}={value}" for name, value in given.items())
        self.url = f"iceberg:db.t?{query}"
        self.table = load_catalog("default", **given).create_table("db.t", SCHEMA)

    def append(self, number: int) -> None:
        self.table.append(batch(number))

    def overwrite(self, number: int) -> None:
        self.table.overwrite(batch(number))

    def replace_day(self, number: int) -> None:
        self.table.overwrite(batch(number), f"day = 'd{number}'")

    def delete_day(self, number: int) -> None:
        self.table.delete(f"day = 'd{number}'")

    def rewrite_day(self, number: int) -> None:
        self.replace_day(number)

    def undo(self, number: int) -> None:
        lineage = [entry.snapshot_id for entry in self._lineage()]
        if len(lineage) > 1 + number:
            self.table.manage_snapshots().rollback_to_snapshot(lineage[1 + number]).commit()

    def compact(self, number: int) -> None:
        """There is no such call: append goes on."""

    def remove_a_file(self, number: int) -> None:
        files = [task.file for task in self.table.scan().plan_files()]
        if files:
            with (
                self.table.transaction() as change,
                change.update_snapshot().overwrite() as files_of,
            ):
                files_of.delete_data_file(files[number % len(files)])

    def _lineage(self) -> list[Snapshot]:
        self.table.refresh()
        return list(ancestors_of(self.table.current_snapshot(), self.table.metadata))

    def versions(self) -> Iterator[Counter[int]]:
        for snapshot in reversed(self._lineage()):
            rows = self.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            yield Counter(rows["id"].to_pylist())

    def files(self) -> list[str]:
        return [task.file.file_path for task in self.table.scan().plan_files()]


ACTS = (
    *("append", "append", "append", "overwrite", "replace_day", "delete_day", "rewrite_day"),
    *("undo", "compact", "remove_a_file"),
)


quiet = pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
"""A day that is not there may be deleted."""


def findings(lake: Lake) -> list[Duplicate]:
    place = format_at(lake.url)
    log = place.log()
    assert log is not None
    return duplicates(log.history(place.at(lake.url)))


def ids_in(files: Iterable[str]) -> set[int]:
    tables = (pq.read_table(file.removeprefix("file://"), columns=["id"]) for file in files)
    return {id_ for table in tables for id_ in table["id"].to_pylist()}


def wrong_of(make: Callable[[Path], Lake], folder: Path, number: int) -> list[str]:
    """What is wrong with the findings after a random history; nothing, if all is right."""
    rng = random.Random(seed() * 1000 + number)
    lake = make(folder)
    acts = [rng.choice(ACTS) for _ in range(rng.randint(3, 8))]
    for act in acts:
        getattr(lake, act)(rng.randrange(BATCHES))
    versions = [Counter[int](), *lake.versions()]
    certain = [finding for finding in findings(lake) if finding.certain]
    wrong = []
    if certain and not any(count > 1 for version in versions for count in version.values()):
        wrong.append(f"no version holds a row twice, but: {certain}")
    # A file with rows of a compacted one that a change rewrites says nothing of them any more.
    traced = "compact" not in acts or not {"replace_day", "delete_day", "rewrite_day"} & {*acts}
    if traced and not certain and any(count > 1 for count in versions[-1].values()):
        wrong.append("the newest version holds rows twice, and nothing is found")
    for finding in certain:
        advised = finding.repair.split(" out of the table")[0]
        left = [file for file in lake.files() if Path(file).name not in advised]
        if ids_in(left) != set(versions[-1]):
            wrong.append(f"the advice takes the last copy of a row: {finding}")
    return wrong


def histories(size: int) -> list[tuple[Callable[[Path], Lake], int]]:
    return [(make, number) for make in (Delta, Iceberg) for number in range(size)]


def _all_right(folder: Path, size: int) -> list[str]:
    wrong = []
    for index, (make, number) in enumerate(histories(size)):
        place = folder / str(index)
        place.mkdir()
        wrong += [f"{make.__name__} {number}: {line}" for line in wrong_of(make, place, number)]
    return wrong


@quiet
def test_a_finding_is_two_copies_in_one_version_and_the_advice_leaves_one(tmp_path: Path) -> None:
    assert _all_right(tmp_path, 25) == []


@pytest.mark.campaign
@quiet
def test_the_same_over_many_histories(tmp_path: Path) -> None:
    assert _all_right(tmp_path, 300) == []
