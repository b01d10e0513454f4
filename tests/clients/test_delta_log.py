"""The behaviours of deltalake that the sink leans on; a new version that changes one fails here."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from abs_clients.delta.entries import stats_of
from abs_clients.delta.log import DeltaLog, DeltaSnapshot
from abs_core.errors import SchemaError
from abs_sinks.lake.table import AddedFile, Mark
from tests.planted import planted

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = DeltaLog(str(tmp_path / "table"))
    log.create(SCHEMA, ["day"])
    return log


def snapshot(log: DeltaLog) -> DeltaSnapshot:
    found = log.load()
    assert found is not None
    return found


def file_of(log: DeltaLog, folder: str, name: str, day: str | None, *ids: int) -> AddedFile:
    """A file with these ids in a folder of the table."""
    path = Path(log.url, folder, name)
    path.parent.mkdir(exist_ok=True)
    footers: list[pq.FileMetaData] = []
    table = pa.table({"id": pa.array(ids, pa.int64())})
    with pq.ParquetWriter(path, table.schema, metadata_collector=footers) as writer:
        writer.write_table(table)
    rows, stats = len(ids), stats_of(footers[0])
    return AddedFile(f"{folder}/{name}", path.stat().st_size, rows, {"day": day}, stats)


def ids(log: DeltaLog) -> list[int]:
    return sorted(log.read().read_all()["id"].to_pylist())


def mark(version: int, application: str = "abs-a-0") -> Mark:
    return Mark(application, version, {"abs.epoch": str(version)})


def test_of_two_commits_from_one_snapshot_the_second_does_nothing(log: DeltaLog) -> None:
    first, second, third = snapshot(log), snapshot(log), snapshot(log)
    assert first.add([file_of(log, "day=a", "1", "a", 1)], mark(1))
    assert not second.add([file_of(log, "day=a", "1", "a", 1)], mark(1)), "the same transaction"
    assert not third.add([file_of(log, "day=a", "2", "a", 2)], mark(1, "abs-b-0")), "another one"
    assert ids(log) == [1]


def test_of_two_sinks_in_one_table_another_process_finds_the_commit_of_each(log: DeltaLog) -> None:
    """A restore between them takes the rows of one sink only."""
    told = {"abs.job": "job", "abs.epoch": "7"}
    marks = [Mark("abs-a-0", 7, told), Mark("abs-a-256", 7, told)]

    def check() -> None:
        later = snapshot(log)
        assert [later.place_of(each) for each in marks] == ["1", "2"]

    for number, each in enumerate(marks):
        assert snapshot(log).add([file_of(log, "day=a", f"{number}", "a", number)], each)
    check()

    def by_job_and_epoch(self: DeltaSnapshot, mark: Mark) -> str | None:
        commits = self._commits(16)
        return next((str(c["version"]) for c in commits if mark.told.items() <= c.items()), None)

    with planted((DeltaSnapshot, "place_of", by_job_and_epoch)):
        check()


def test_a_commit_of_an_older_release_is_found_where_job_and_epoch_are_of_one_alone(
    log: DeltaLog,
) -> None:
    def older(epoch: int, name: str) -> None:
        file = file_of(log, "day=a", name, "a", int(name))
        snapshot(log)._table.create_write_transaction(
            [AddAction(file.path, file.size, {"day": "a"}, 1, True, file.stats)],
            "append",
            DeltaTable(log.url).schema(),
            ["day"],
            commit_properties=CommitProperties(
                custom_metadata=dict(mark(epoch).told),
                app_transactions=[Transaction(f"abs-a-{name}", epoch)],
            ),
        )

    older(1, "1")
    older(2, "2")
    older(2, "3")
    assert snapshot(log).place_of(mark(1)) == "1"
    assert snapshot(log).place_of(mark(2)) is None, "it is that of one sink or of another"
    assert snapshot(log).add([file_of(log, "day=a", "4", "a", 4)], mark(1, "abs-a-9"))
    assert snapshot(log).place_of(mark(1)) == "1", "the new one is another sink's"


def test_the_library_alone_repeats_a_stale_commit_and_a_known_transaction(log: DeltaLog) -> None:
    """Why every commit is tried once, from the snapshot that was looked at."""

    def commit(table: DeltaTable, name: str, retries: int | None) -> None:
        file = file_of(log, "day=a", name, "a", int(name))
        action = AddAction(file.path, file.size, {"day": "a"}, 1, True, file.stats)
        table.create_write_transaction(
            [action],
            "append",
            table.schema(),
            ["day"],
            commit_properties=CommitProperties(
                max_commit_retries=retries, app_transactions=[Transaction(f"app-{name}", 1)]
            ),
        )

    stale = DeltaTable(log.url)
    commit(DeltaTable(log.url), "1", 0)
    commit(stale, "2", None)  # its own retry: nobody looked in between
    commit(DeltaTable(log.url), "2", 0)  # from a fresh snapshot a known transaction is no hindrance
    assert DeltaTable(log.url).version() == 3


def test_the_mark_is_that_of_the_loaded_snapshot_and_outlives_checkpoint_and_clean_up(
    log: DeltaLog,
) -> None:
    before = snapshot(log)
    assert before.version_of("abs-a-0") is None
    assert before.add([file_of(log, "day=a", "1", "a", 1)], mark((1 << 32) + 7))
    for number in range(2, 5):
        assert snapshot(log).add([file_of(log, "day=a", str(number), "a", number)], mark(1, "b"))
    table = DeltaTable(log.url)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table = DeltaTable(log.url)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not Path(log.url, "_delta_log", "00000000000000000001.json").exists()
    assert snapshot(log).version_of("abs-a-0") == (1 << 32) + 7
    assert ids(log) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("folder", "day"),
    [
        ("day=a%3Db%2Fc%25 é~@!x", "a=b/c% é~@!x"),
        ("day=__HIVE_DEFAULT_PARTITION__", None),
        ("day=plain", "plain"),
    ],
)
def test_a_path_is_taken_as_it_is_on_disk(log: DeltaLog, folder: str, day: str | None) -> None:
    assert snapshot(log).add([file_of(log, folder, "part.j@t!-1.parquet", day, 1, 2)], mark(1))
    assert log.read().read_all().to_pydict() == {"id": [1, 2], "day": [day, day]}


def test_a_table_that_is_created_again_has_another_id(log: DeltaLog, tmp_path: Path) -> None:
    old = snapshot(log).id
    log.create(SCHEMA, [])  # somebody else was first: nothing happens
    assert snapshot(log).id == old
    Path(log.url).rename(tmp_path / "away")
    assert log.load() is None
    log.create(SCHEMA, [])
    assert snapshot(log).id != old


def test_statistics_tell_only_what_is_exact(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([3, None, -7], pa.int32()),
            "t": ["b", "a", None],
            "long": ["x" * 65, "y", "z"],
            "f": [1.0, float("nan"), 2.0],
            "d": [dt.date(2026, 1, 2), dt.date(2025, 1, 2), None],
            "m": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "s": [{"a": 1}, {"a": 2}, None],
            "none": pa.nulls(3, pa.int64()),
        }
    )
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(tmp_path / "f", table.schema, metadata_collector=footers) as writer:
        writer.write_table(table, row_group_size=2)
    assert stats_of(footers[0]) == (
        '{"numRecords":3,"minValues":{"i":-7,"t":"a","d":"2025-01-02"},'
        '"maxValues":{"i":3,"t":"b","d":"2026-01-02"},'
        '"nullCount":{"i":1,"t":1,"long":0,"f":0,"d":1,"m":0,"none":3}}'
    )


def test_a_reader_that_skips_files_by_our_statistics_finds_every_row(log: DeltaLog) -> None:
    files = [file_of(log, "day=a", str(n), "a", *range(n * 10, n * 10 + 10)) for n in range(3)]
    assert snapshot(log).add(files, mark(1))
    found = DeltaTable(log.url).to_pyarrow_table(filters=[("id", ">=", 15), ("id", "<", 22)])
    assert sorted(found["id"].to_pylist()) == list(range(15, 22))
    by_stats = pa.table(DeltaTable(log.url).get_add_actions(flatten=True))
    assert sorted(by_stats["min.id"].to_pylist()) == [0, 10, 20]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "forgets the transactions"),
        ({"delta.constraints.positive": "id > 0"}, "the constraint positive"),
    ],
)
def test_a_table_that_asks_what_is_not_kept_is_refused_by_name(
    log: DeltaLog, settings: dict[str, str], told: str
) -> None:
    assert not snapshot(log).problems()
    table = DeltaTable(log.url)
    for name, value in settings.items():
        if name.startswith("delta.constraints."):
            table.alter.add_constraint({name.removeprefix("delta.constraints."): value})
        else:
            table.alter.set_table_properties({name: value})
    (problem,) = snapshot(log).problems()
    assert told in problem[0]
    assert problem[1]


def test_a_load_reads_ten_versions_at_most_after_a_checkpoint(log: DeltaLog) -> None:
    for number in range(1, 22):
        assert snapshot(log).add([file_of(log, "day=a", str(number), "a", number)], mark(number))
    found = sorted(path.name[:20] for path in Path(log.url, "_delta_log").glob("*.parquet"))
    assert [int(name) for name in found] == [10, 20]
    assert ids(log) == list(range(1, 22))
    assert snapshot(log).version_of("abs-a-0") == 21


def test_a_table_that_says_when_it_wants_checkpoints_gets_no_others(log: DeltaLog) -> None:
    DeltaTable(log.url).alter.set_table_properties({"delta.checkpointInterval": "15"})
    for number in range(1, 13):
        assert snapshot(log).add([], mark(number))
    assert list(Path(log.url, "_delta_log").glob("*.parquet")) == []


def test_a_type_that_delta_does_not_have_is_refused(tmp_path: Path) -> None:
    log = DeltaLog(str(tmp_path / "other"))
    with pytest.raises(SchemaError, match="Delta has no type"):
        log.create(pa.schema([("d", pa.duration("us"))]), [])
    assert log.load() is None
