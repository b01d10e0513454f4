"""`abs audit duplicates` finds what others wrote twice to tables of the lake, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from abs_audit.duplicates import duplicates
from abs_clients.tablelog import LoggedCommit, LoggedFile, TableHistory
from tests.kit.command import abs_
from tests.sinks.iceberg.harness import catalog_in

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
OFFSETS = "kafka.connect.offsets.control-iceberg.cg-control-sink-coord"


def rows(first: int, many: int = 3) -> pa.Table:
    ids = list(range(first, first + many))
    return pa.table({"id": ids, "word": [f"w{id_}" for id_ in ids]}, schema=SCHEMA)


def asked(url: str, code: int) -> list[dict[str, Any]]:
    done = abs_("audit", "duplicates", url, "--json")
    assert done.exit_code == code, done.output
    found: list[dict[str, Any]] = json.loads(done.output)["duplicates"]
    return found


class Iceberg:
    """A table of a catalog in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given = catalog_in(folder)
        query = "&".join(f"catalog.{name}={value}" for name, value in self.given.items())
        self.url = f"iceberg:db.t?{query}"

    @property
    def table(self) -> Table:
        return load_catalog("default", **self.given).create_table_if_not_exists("db.t", SCHEMA)

    def file(self, number: int) -> str:
        path = self.folder / f"{number}.parquet"
        if not path.exists():
            pq.write_table(rows(number * 10), path)
        return f"file://{path}"

    def add(self, files: Sequence[int], **told: str) -> str:
        """The snapshot's id."""
        paths = [self.file(number) for number in files]
        self.table.add_files(paths, told, check_duplicate_files=False)
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return str(snapshot.snapshot_id)

    def count(self) -> int:
        return len(self.table.scan().to_arrow())


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    return Iceberg(tmp_path)


def offsets(number: int) -> dict[str, str]:
    return {OFFSETS: json.dumps({"0": number})}


def test_the_two_snapshots_of_a_restarted_kafka_connect_task_are_found(iceberg: Iceberg) -> None:
    """As reported for Kafka Connect 1.11: 19 of 24 files were in the commit before; offsets grow."""
    first = iceberg.add(range(38), **offsets(38584300))
    second = iceberg.add([*range(19, 38), *range(38, 43)], **offsets(38584378))
    assert iceberg.count() == (38 + 24) * 3
    [found] = asked(iceberg.url, 1)
    assert found["kind"] == "file"
    assert found["commits"] == [first, second]
    assert sorted(found["files"]) == sorted(iceberg.file(number) for number in range(19, 38))
    assert (found["rows"], found["live"]) == (19 * 3, 19)
    told = abs_("audit", "duplicates", iceberg.url).output
    assert "19 files are registered more than once, 57 rows" in told
    assert first in told
    assert second in told


def test_the_repair_that_is_named_leaves_every_row_once(iceberg: Iceberg) -> None:
    iceberg.add([1, 2])
    iceberg.add([2, 3])
    table = iceberg.table
    twice = {task.file for task in table.scan().plan_files() if "/2.parquet" in task.file.file_path}
    with table.transaction() as t, t.update_snapshot().overwrite() as o:
        for file in twice:
            o.delete_data_file(file)
            o.append_data_file(file)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [10, 11, 12, 20, 21, 22, 30, 31, 32]
    [found] = asked(iceberg.url, 1)
    assert found["live"] == 0, "told as history"


def test_files_stay_found_when_their_snapshots_are_expired(iceberg: Iceberg) -> None:
    first = iceberg.add([1])
    second = iceberg.add([1])
    iceberg.add([2])
    expiry = iceberg.table.maintenance.expire_snapshots()
    expiry.by_ids([int(first), int(second)]).commit()
    [found] = asked(iceberg.url, 1)
    assert set(found["commits"]) == {first, second}
    assert found["live"] == 1


def test_files_with_equal_rows_in_two_snapshots_are_found(iceberg: Iceberg) -> None:
    for _ in range(2):
        iceberg.table.append(rows(0))
    iceberg.table.append(rows(1))
    [found] = asked(iceberg.url, 1)
    assert (found["kind"], found["rows"], len(found["commits"])) == ("content", 3, 2)


@pytest.mark.parametrize(
    ("told", "writer"),
    [
        ([offsets(7), offsets(7)], "Kafka Connect (control-iceberg.cg-control-sink-coord)"),
        ([offsets(7), offsets(9), offsets(8)], "0 8 comes after 0 9"),
        (
            [{"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": n}
             for n in "1243"],
            "Flink job j, operator o: checkpoint 3 comes after checkpoint 4",
        ),
        (
            [{"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": n} for n in "011"],
            "Spark query q: epoch 1",
        ),
    ],
)  # fmt: skip
def test_an_epoch_of_a_known_writer_that_occurs_twice_is_found(
    told: list[dict[str, str]], writer: str, iceberg: Iceberg
) -> None:
    for number, properties in enumerate(told):
        iceberg.add([number], **properties)
    [found] = asked(iceberg.url, 1)
    assert found["kind"] == "epoch"
    assert writer in found["what"]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([offsets(98), offsets(99), offsets(0), offsets(1)], "or its cluster, was made again"),
        (
            [{"flink.job-id": "j", "flink.max-committed-checkpoint-id": n} for n in "122"],
            "several snapshots in one checkpoint",
        ),
    ],
)
def test_what_a_right_writer_may_show_is_told_with_its_reason_and_is_no_finding(
    told: list[dict[str, str]], reason: str, iceberg: Iceberg
) -> None:
    for number, properties in enumerate(told):
        iceberg.add([number], **properties)
    [perhaps] = asked(iceberg.url, 0)
    assert not perhaps["certain"]
    assert reason in perhaps["what"]
    said = abs_("audit", "duplicates", iceberg.url).output
    assert "- perhaps: " in said
    assert "CLEAN" in said


@pytest.mark.parametrize(
    "told",
    [
        {OFFSETS: "[7]"},
        {OFFSETS: "no JSON"},
        {OFFSETS: '{"0": null}'},
        {"flink.max-committed-checkpoint-id": "last"},
        {"spark.sql.streaming.epochId": ""},
    ],
)
def test_what_a_known_writer_says_and_nobody_can_read_is_told(
    told: dict[str, str], iceberg: Iceberg
) -> None:
    snapshot = iceberg.add([0], **told)
    done = abs_("audit", "duplicates", iceberg.url, "--json")
    assert json.loads(done.output)["unread"] == [{"commit": snapshot, "properties": [*told]}]
    said = abs_("audit", "duplicates", iceberg.url).output
    assert f"not compared, as it cannot be read: {next(iter(told))} of {snapshot}" in said
    assert "CLEAN" in said


def test_what_a_table_lives_through_is_no_finding(iceberg: Iceberg) -> None:
    """Appends, other jobs with the same numbers, a removal, an overwrite, a rollback."""
    for job in ("a", "b"):
        for checkpoint in ("1", "2"):
            told = {"flink.job-id": job, "flink.max-committed-checkpoint-id": checkpoint}
            iceberg.add([ord(job) * 10 + int(checkpoint)], **told)
    for number in range(3):
        iceberg.add([number], **offsets(number + 1))
    kept = iceberg.add([100])
    iceberg.add([101], **offsets(9))
    manage = iceberg.table.manage_snapshots()
    manage.rollback_to_snapshot(int(kept)).commit()
    iceberg.add([101], **offsets(9))
    iceberg.table.delete("id = 0")
    iceberg.table.overwrite(rows(5), "id = 1")
    assert asked(iceberg.url, 0) == []


class Delta:
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "t")
        self.url = f"delta:{self.path}"
        write_deltalake(self.path, rows(0))

    def txn(self, version: int, first: int) -> None:
        properties = CommitProperties(app_transactions=[Transaction("query", version)])
        write_deltalake(self.path, rows(first), mode="append", commit_properties=properties)


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return Delta(tmp_path)


def test_a_file_of_delta_that_comes_back_after_a_compaction_is_found(delta: Delta) -> None:
    write_deltalake(delta.path, rows(10), mode="append")
    [path] = DeltaTable(delta.path, version=0).get_add_actions()["path"].to_pylist()
    DeltaTable(delta.path).optimize.compact()
    table = DeltaTable(delta.path)
    size = Path(delta.path, path).stat().st_size
    stats = '{"numRecords":3,"minValues":{},"maxValues":{},"nullCount":{}}'
    action = AddAction(path, size, {}, 1, True, stats)
    table.create_write_transaction([action], "append", table.schema())
    assert DeltaTable(delta.path).to_pyarrow_table().num_rows == 9
    [found] = asked(delta.url, 1)
    assert (found["kind"], found["commits"], found["rows"]) == ("file", ["0", "3"], 3)


def test_a_batch_that_was_retried_into_delta_is_found(delta: Delta) -> None:
    for _ in range(2):
        write_deltalake(delta.path, rows(50), mode="append")
    [found] = asked(delta.url, 1)
    assert (found["kind"], found["commits"], found["rows"]) == ("content", ["1", "2"], 3)


def test_an_application_transaction_that_occurs_twice_is_found(delta: Delta) -> None:
    for version, first in ((1, 10), (2, 20), (2, 30)):
        delta.txn(version, first)
    [found] = asked(delta.url, 1)
    assert (found["kind"], found["commits"], found["rows"]) == ("epoch", ["2", "3"], 3)
    assert found["what"] == "application query: version 2 comes after version 2"


def test_what_a_delta_table_lives_through_is_no_finding(delta: Delta) -> None:
    """Transactions, deletes, merges, a compaction, a restore, a checkpoint with a cleaned log."""
    for number in range(1, 4):
        delta.txn(number, number * 10)
    DeltaTable(delta.path).delete("id = 11")
    DeltaTable(delta.path).update(updates={"word": "'x'"}, predicate="id = 21")
    DeltaTable(delta.path).optimize.compact()
    DeltaTable(delta.path).restore(2)
    delta.txn(9, 90)
    assert asked(delta.url, 0) == []
    table = DeltaTable(delta.path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table = DeltaTable(delta.path)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not Path(delta.path, "_delta_log", "00000000000000000000.json").exists()
    delta.txn(10, 100)
    assert asked(delta.url, 0) == []


def test_a_target_without_a_log_is_refused_by_name() -> None:
    done = abs_("audit", "duplicates", "s3://bucket/prefix")
    assert done.exception is not None
    assert "has no log of commits" in str(done.exception)


@pytest.mark.parametrize("altered", [None, ("a",)])
def test_equal_files_are_no_finding_where_rows_of_the_first_may_be_deleted(
    altered: tuple[str, ...] | None,
) -> None:
    """A row-level delete leaves its file: an insert of the same rows makes an equal one."""
    appended = LoggedCommit("1", None, (LoggedFile("a", 3, "content"),))
    deleted = LoggedCommit("2", None, (), altered=altered)
    again = LoggedCommit("3", None, (LoggedFile("b", 3, "content"),))
    live = {"a": 1, "b": 1}
    [perhaps] = duplicates(TableHistory((appended, deleted, again), live, "", ""))
    assert not perhaps.certain
    [finding] = duplicates(TableHistory((appended, again), live, "", ""))
    assert finding.certain
