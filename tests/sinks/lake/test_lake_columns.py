"""A column of the input that the table lacks: `schemachange` refuses, ignores or adds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import StringType

from abs_clients.iceberg.table import IcebergTable
from abs_core.errors import OptionError, SchemaError
from abs_core.model import Outcome
from abs_services import S3Service
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.delta.door import FORMAT
from abs_sinks.iceberg import IcebergSink
from abs_sinks.lake.committer import COLUMNS, LakeCommitter
from abs_testing import SCHEMA, Row
from abs_testing.case import Case
from abs_testing.cuts import Cut
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness

LEFT: list[Row] = [(1, "a"), (2, "b")]
RIGHT: list[Row] = [(3, "c")]
NARROW = pa.schema([("id", pa.int64())])


class Narrow:
    """A table that lacks the column ``value`` of the sink's input."""

    def __init__(self, kind: str, folder: Path, given: dict[str, str]) -> None:
        self.kind = kind
        self.given = given
        if kind == "delta":
            self.harness: Any = DeltaHarness(given.pop("url", str(folder)), given)
            self.sink: Any = DeltaSink
        else:
            self.harness = IcebergHarness(folder, given.pop("url", None), given)
            self.sink = IcebergSink
        self.harness.options.address.create(NARROW, [])

    def case(self, change: str) -> Case:
        options = replace(self.harness.options, schemachange=change)
        self.harness.new_sink = partial(self.sink, options, SCHEMA)
        return Case(self.harness)

    def rows(self) -> list[dict[str, Any]]:
        found = self.harness.options.address.read().read_all()
        return list(found.sort_by("id").to_pylist())

    def versions(self) -> int:
        """Commits that changed the table's rows or columns."""
        if self.kind == "delta":
            log = self.harness.options.address
            return sum(1 for _ in log._versions())
        return len(self.harness.foreign.load_table("db.t").metadata.metadata_log)

    def add_value(self) -> None:
        """A foreigner adds the column."""
        if self.kind == "delta":
            wide = pa.table({"id": [9], "value": ["foreign"]}, schema=SCHEMA)
            path = self.harness.options.path
            write_deltalake(path, wide, mode="append", schema_mode="merge")
        else:
            with self.harness.foreign.load_table("db.t").update_schema() as schema:
                schema.add_column("value", StringType())


@pytest.fixture(params=["delta", "iceberg"])
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Narrow:
    return Narrow(request.param, tmp_path, {})


def test_a_column_that_the_table_lacks_is_refused_by_default(narrow: Narrow) -> None:
    with pytest.raises(SchemaError, match=r"value is not in the table.*schemachange=add"):
        narrow.case("fail").run().epoch(0, LEFT)
    assert narrow.rows() == []


def test_a_column_that_the_table_lacks_is_left_out(narrow: Narrow) -> None:
    case = narrow.case("ignore")
    case.run().epoch(0, LEFT, RIGHT)
    [finding] = case.sink().preflight("job")
    assert "lacks value, which are not written" in finding.what
    assert narrow.rows() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_the_epoch_adds_the_column_once(narrow: Narrow) -> None:
    """By the commit of its rows; a table that finds columns by ids has it before files are written."""
    narrow.harness.options.address.load()
    case, before = narrow.case("add"), narrow.versions()
    case.run().epoch(0, LEFT, RIGHT)
    assert narrow.versions() == before + (1 if narrow.kind == "delta" else 2)
    case.run().epoch(1, [(4, "d")])
    case.finished(LEFT, RIGHT, [(4, "d")], when="after the column was added")


@pytest.mark.services
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_commit_of_the_rows_adds_the_column_in_a_bucket(
    kind: str, tmp_path: Path, store: S3Service, prefix: str
) -> None:
    given = {"endpoint": store.endpoint, "region": store.region}
    url = f"s3://{store.bucket}/{prefix}"
    narrow = Narrow(kind, tmp_path, {**given, "url": url})
    narrow.case("add").run().epoch(0, LEFT, RIGHT)
    assert [row["value"] for row in narrow.rows()] == ["a", "b", "c"]


def test_an_epoch_that_is_not_decided_adds_no_column(tmp_path: Path) -> None:
    narrow = Narrow("delta", tmp_path, {})
    case = narrow.case("add")
    case.run().tasks(0, LEFT)
    assert narrow.harness.options.address.load().schema.names == ["id"]
    case.run().epoch(0, RIGHT)
    case.finished(RIGHT, when="after the epoch was written again")


def test_of_two_tasks_that_add_a_column_before_their_files_one_does(tmp_path: Path) -> None:
    narrow = Narrow("iceberg", tmp_path, {})
    case, table = narrow.case("add"), narrow.harness.options.address
    stale = table._loaded()

    class Before(IcebergTable):
        def _loaded(self) -> Any:
            return stale

    case.run().tasks(0, LEFT)
    # From what was loaded before: a lost race.
    late = Before(table.catalog, table.name, table.given, table.server)
    late.widen(pa.schema([SCHEMA.field("value")]))
    assert narrow.harness.options.address.load().schema.names == ["id", "value"]
    case.run().epoch(0, RIGHT)
    case.finished(RIGHT, when="after the epoch was written again")


def test_a_column_that_somebody_adds_first_is_not_added_again(tmp_path: Path) -> None:
    narrow = Narrow("delta", tmp_path, {})
    case = narrow.case("add")
    given = case.halted(Cut("commit"), LEFT, RIGHT).state().open[0].committables
    narrow.add_value()
    committer = case.sink().committer()
    assert set(committer.commit(given).values()) == {Outcome.COMMITTED}
    assert narrow.harness.options.address.load().schema.names == ["id", "value"]
    assert [row["value"] for row in narrow.rows() if row["id"] < 9] == ["a", "b", "c"]


def test_of_two_coordinators_that_add_the_column_one_commits(narrow: Narrow) -> None:
    case = narrow.case("add")
    given = case.halted(Cut("commit"), LEFT, RIGHT).state().open[0].committables
    committer, rival = (cast("LakeCommitter", case.sink().committer()) for _ in range(2))
    snapshot = committer._looked(given)
    assert not isinstance(snapshot, Outcome)
    rival.commit(given)
    files = [file for one in given for file in committer._files(one)]
    assert committer._added(given, snapshot, files) is Outcome.COMMITTED
    case.finished(LEFT, RIGHT, when="after two commits from one snapshot")


def test_a_decision_keeps_the_schema_once(narrow: Narrow) -> None:
    run = narrow.case("add").halted(Cut("commit"), LEFT, RIGHT)
    decided = run.state().open[0].committables
    assert sum(COLUMNS in dict(each.extra) for each in decided) == 1
    assert len(decided) == 2


def misread(schema: pa.Schema) -> Callable[[Narrow], None]:
    def check(narrow: Narrow) -> None:
        options = replace(narrow.harness.options, schemachange="add")
        assert narrow.sink(options, schema).target_id

    return check


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (pa.schema([("id", pa.int64()), ("ID", pa.string())]), "ID is id in the table"),
        (pa.schema([("id", pa.int64()), ("n", pa.null())]), "n has no type"),
        (pa.schema([("id", pa.string())]), "id is string, in the table bigint"),
    ],
)
def test_a_column_that_readers_could_not_tell_is_not_added(
    schema: pa.Schema, told: str, narrow: Narrow
) -> None:
    with pytest.raises(SchemaError, match=told):
        misread(schema)(narrow)


def test_a_table_that_was_changed_after_the_decision_is_refused_by_the_commands_too(
    tmp_path: Path,
) -> None:
    """A handle tells its columns, so who completes it needs no options of the job."""
    narrow = Narrow("delta", tmp_path, {})  # pyiceberg refuses this change by itself
    case = narrow.case("add")
    given = case.halted(Cut("commit"), LEFT).state().open[0].committables
    path = narrow.harness.options.path
    write_deltalake(path, pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite")
    options = DeltaOptions.parse({"path": path})
    with pytest.raises(SchemaError, match="id is bigint, in the table string"):
        FORMAT.administer(options)[1].commit(given)
    assert DeltaTable(path).to_pyarrow_table().to_pydict() == {"id": ["x"]}


def test_an_unknown_value_is_refused() -> None:
    with pytest.raises(OptionError, match="schemachange"):
        DeltaOptions.parse({"path": "/t", "schemachange": "widen"})
