"""`abs in-doubt`, `register`, `doctor` and `audit` on a Delta table: they know it by its door alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from abs_core.errors import TargetError
from abs_sinks.door import recognised
from abs_sinks.lake.folder import FolderStore
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from tests.kit.command import abs_
from tests.sinks.delta.harness import TableHarness

ROWS = rows(0, 3)
MORE = rows(10, 3)


@pytest.fixture
def harness(tmp_path: Path) -> TableHarness:
    return TableHarness(str(tmp_path), {})


@pytest.fixture
def case(harness: TableHarness) -> Iterator[Case]:
    found = Case(harness)
    yield found
    found.close()


def done(*arguments: str, code: int = 0) -> str:
    result = abs_(*arguments)
    assert result.exit_code == code, result.output
    return result.output


def url(harness: TableHarness) -> str:
    return f"delta:{harness.options.path}"


def test_handles_in_doubt_are_listed_and_swept(case: Case, harness: TableHarness) -> None:
    case.run().tasks(0, ROWS)
    (listed,) = json.loads(done("in-doubt", "list", "--url", url(harness), "--json", code=1))
    assert (listed["job"], listed["epoch"]) == (JOB, 0)
    assert listed["size"] > 100
    raises(Halted, lambda: case.run(cut=Cut("abort")).coordinator.begin(0))
    done("in-doubt", "abort", JOB, "--url", url(harness))
    assert json.loads(done("in-doubt", "list", "--url", url(harness), "--json")) == []


def test_a_decision_is_committed_as_a_whole(case: Case, harness: TableHarness) -> None:
    case.halted(Cut("commit"), ROWS, MORE)
    told = json.loads(done("register", "show", JOB, "--url", url(harness), "--json"))
    assert JOB in json.dumps(told)
    done("in-doubt", "abort", JOB, "--url", url(harness))
    assert "committed" in done("in-doubt", "commit", JOB, "--url", url(harness))
    case.finished(ROWS, MORE, when="after `abs in-doubt commit`")


@pytest.mark.parametrize("way", ["commit", "accept-loss"])
def test_a_decision_at_which_the_log_fails_is_listed_and_has_both_ways_out(
    way: str, case: Case, harness: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are completed: the target has nothing in doubt."""

    def defect(*given: object, **more: object) -> None:
        raise OverflowError("a defect (on purpose)")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", defect)
        raises(TargetError, lambda: case.run().epoch(0, ROWS, MORE))
        listed = json.loads(abs_("in-doubt", "list", "--url", url(harness), "--json").stdout)
        assert {each["fate"] for each in listed} == {"decided: will be committed"}
        assert sum(int(each["detail"].split()[0]) for each in listed) == len(ROWS) + len(MORE)
        told = done("in-doubt", "accept-loss", JOB, "0", "--url", url(harness), code=1)
        assert "refused 3 rows" in told
        assert "a defect (on purpose)" in told
    if way == "commit":
        done("in-doubt", "commit", JOB, "--url", url(harness))
        case.finished(ROWS, MORE, when="after `abs in-doubt commit`")
        return
    with monkeypatch.context() as patch:
        proper = DeltaTable.create_write_transaction
        patch.setattr(DeltaTable, "create_write_transaction", refusing_files(proper))
        done("in-doubt", "accept-loss", JOB, "0", "--url", url(harness), "--yes")
    case.holds(when="after the loss was accepted")
    case.run().epoch(1, rows(20, 2))
    case.holds(rows(20, 2), when="after the next epoch")


def refusing_files(proper: Any) -> Any:
    def create(self: DeltaTable, actions: list[Any], *given: Any, **more: Any) -> None:
        if actions:
            raise OverflowError("a defect (on purpose)")
        proper(self, actions, *given, **more)

    return create


def test_a_loss_is_accepted_for_all_handles_of_the_epoch_or_for_none(
    case: Case, harness: TableHarness
) -> None:
    run = case.halted(Cut("commit"), ROWS, MORE)
    first, second = run.state().open[0].handles
    run.committer.abort([first])
    told = done("in-doubt", "accept-loss", JOB, "0", "--url", url(harness), code=1)
    assert str(first) in told
    assert str(second) in told, "where one is lost, none is added"
    done("in-doubt", "accept-loss", JOB, "0", "--url", url(harness), "--yes")
    case.holds(when="after the loss was accepted")
    case.run().epoch(1, rows(20, 2))
    case.holds(rows(20, 2), when="after the next epoch")


def test_the_audit_reads_the_table_and_tells_a_doubled_row(
    case: Case, harness: TableHarness, tmp_path: Path
) -> None:
    case.run().epoch(0, ROWS, MORE)
    ids, values = zip(*ROWS, *MORE, strict=True)
    went_in = pa.table({"id": pa.array(ids, pa.int64()), "value": list(values)})
    pq.write_table(went_in, tmp_path / "in.parquet")
    asked = ["audit", "--expected", str(tmp_path / "in.parquet"), "--actual", url(harness)]
    done(*asked, "--key", "id")
    case.run(job="another").epoch(0, ROWS[:1])
    assert DeltaTable(harness.options.path).to_pyarrow_table().num_rows == 7
    done(*asked, "--key", "id", code=1)


def test_a_column_that_partitions_the_table_and_was_not_in_the_input_is_not_compared(
    tmp_path: Path,
) -> None:
    went_in = pa.table({"id": [1, 2], "value": ["a", "b"]})
    pq.write_table(went_in, tmp_path / "in.parquet")
    table = str(tmp_path / "t")
    derived = went_in.append_column("day", pa.array(["d1", "d2"]))
    write_deltalake(table, derived, partition_by=["day"])
    asked = ["audit", "--expected", str(tmp_path / "in.parquet"), "--actual", f"delta:{table}"]
    assert "not compared: day, by which the target is partitioned" in done(*asked)
    write_deltalake(
        table, derived, mode="overwrite", partition_by=["value"], schema_mode="overwrite"
    )
    told = done(*asked, code=2)
    assert "not expected: day" in told, "any other column is no part of the layout"


def test_doctor_tells_what_would_stop_the_job(case: Case, harness: TableHarness) -> None:
    path = harness.options.path
    told = ["doctor", "--format", "abs-delta", "--option", f"path={path}"]
    assert "no such table" in done(*told, code=1)
    assert not Path(path).exists(), "a preflight makes nothing"
    done(*told, "--option", "createtable=true")
    case.run().epoch(0, ROWS)
    done(*told)
    DeltaTable(path).alter.add_constraint({"positive": "id >= 0"})
    assert "constraint positive" in done(*told, code=1)


def test_staged_files_of_nobody_are_left_alone(harness: TableHarness) -> None:
    staged = Path(harness.options.path, "_abs", "staged")
    staged.mkdir(parents=True)
    (staged / "other").write_text("kept")
    assert [found.key for found in FolderStore(Path(harness.options.path)).list("")] == ["other"]
    assert json.loads(done("in-doubt", "list", "--url", url(harness), "--json")) == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"path": "/folder"}, "abs-delta"),
        ({"Path": "file:///folder"}, "abs-delta"),
        ({"path": "s3://bucket/path"}, "abs-s3"),
        ({"table": "db.t", "catalog.type": "sql"}, "abs-iceberg"),
        ({"table": "db.t", "catalog": "prod"}, "abs-iceberg"),
        ({"kafka.bootstrap.servers": "h:9092"}, "abs-kafka"),
        ({"dbtable": "t"}, "abs-postgres"),
        ({"table": "db.t"}, None),
    ],
)
def test_a_format_is_recognised_by_its_own_options_and_their_values(
    given: dict[str, str], name: str | None
) -> None:
    assert recognised(given) == name


def test_doctor_takes_a_folder_for_a_tables(tmp_path: Path) -> None:
    told = done("doctor", "-o", f"path={tmp_path}/t", "-o", "createtable=true")
    assert "no problems found" in told
