"""What other writers and the expiry of snapshots do beside a job: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table

from abs_clients.iceberg import table as iceberg_table
from abs_clients.iceberg.table import IcebergSnapshot, _Keeping
from abs_core.errors import IdentityError, SchemaError
from abs_core.model import Committable, Outcome
from abs_sinks.lake.table import Mark
from abs_testing import SCHEMA, Row
from abs_testing.case import JOB, Case
from abs_testing.cuts import Cut
from tests.kit.command import abs_
from tests.planted import Bug, Plant, planted
from tests.sinks.iceberg.harness import TableHarness
from tests.sinks.lake.between import between, unheard

LEFT: list[Row] = [(1, "a"), (2, "b")]
RIGHT: list[Row] = [(3, "c")]
OTHERS = pa.table({"id": pa.array([100], pa.int64()), "value": ["foreign"]}, schema=SCHEMA)


def decided(case: Case) -> Sequence[Committable]:
    """The handles of a decided epoch that is not committed."""
    return case.halted(Cut("commit"), LEFT, RIGHT).state().open[0].committables


def table_of(harness: TableHarness) -> Table:
    return harness.foreign.load_table(harness.name)


def rival_commits_first(case: Case) -> None:
    given = decided(case)
    committer = between(case, lambda: case.sink().committer().commit(given))
    assert set(committer.commit(given).values()) == {Outcome.COMMITTED}


def test_of_two_coordinators_that_both_looked_one_adds_the_files(case: Case) -> None:
    rival_commits_first(case)
    case.holds(LEFT, RIGHT, when="after two commits at once")


def leaves_the_librarys_retry_on(plant: Plant) -> None:
    def conflict(self: _Keeping, *commit: Any) -> Any:
        return self._catalog.commit_table(*commit)

    plant(_Keeping, "commit_table", conflict)
    plant(iceberg_table, "ConflictError", CommitFailedException)


def looks_at_another_state(plant: Plant) -> None:
    add = IcebergSnapshot.add

    def from_a_fresh_one(self: IcebergSnapshot, *adding: Any) -> bool:
        self._table.refresh()
        return add(self, *adding)

    plant(IcebergSnapshot, "add", from_a_fresh_one)


@pytest.mark.parametrize("bug", [leaves_the_librarys_retry_on, looks_at_another_state])
def test_a_planted_commit_without_a_look_is_found(bug: Bug, case: Case) -> None:
    with planted(bug, match="3 are there that must not be"):
        rival_commits_first(case)
        case.holds(LEFT, RIGHT, when="after two commits at once")


def test_a_mark_in_the_snapshots_summary_alone_would_be_lost_by_expiry(
    case: Case, harness: TableHarness
) -> None:
    """The planted defect; a mark in the properties is still there."""
    given = decided(case)
    committer = case.sink().committer()
    committer.commit(given)
    first = table_of(harness).current_snapshot()
    assert first is not None
    table_of(harness).append(OTHERS)
    table_of(harness).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert set(committer.commit(given).values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, [(100, "foreign")], when="after the expiry")

    def of_summaries(self: IcebergSnapshot, application: str) -> int | None:
        told = [each.summary for each in self._table.snapshots() if each.summary]
        epochs = [int(each["abs.epoch"]) for each in told if each["abs.epoch"]]
        return (1 << 32) + max(epochs) if epochs else None

    bug = IcebergSnapshot, "version_of", of_summaries
    with planted(bug, match="3 are there that must not be"):
        committer.commit(given)
        case.holds(LEFT, RIGHT, [(100, "foreign")], when="after the expiry")


def test_foreign_appends_and_a_new_column_beside_a_commit_are_waited_out(
    case: Case, harness: TableHarness
) -> None:
    given = decided(case)

    def others() -> None:
        table_of(harness).append(OTHERS)
        with table_of(harness).update_schema() as schema:
            schema.union_by_name(SCHEMA.append(pa.field("more", pa.int64())))
        table_of(harness).overwrite(pa.concat_tables([OTHERS, OTHERS]))

    assert set(between(case, others).commit(given).values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, [(100, "foreign")] * 2, when="after foreign commits")


def test_a_commit_whose_reply_is_lost_is_looked_up(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, left = decided(case), unheard(monkeypatch)
    case.run().epoch(0, LEFT, RIGHT)
    assert not left
    assert set(case.sink().committer().commit(given).values()) == {Outcome.COMMITTED}
    case.finished(LEFT, RIGHT, when="after a commit whose reply was lost")


def conflict_with_itself(patch: pytest.MonkeyPatch) -> None:
    """As where boto or a proxy sends a commit again after a lost reply: the second is in conflict."""
    lost = [1]

    def twice(commit: Callable[..., CommitTableResponse]) -> Callable[..., CommitTableResponse]:
        def committed(*given: Any) -> CommitTableResponse:
            done = commit(*given)
            if lost:
                lost.pop()
                raise CommitFailedException("the table was changed: by this very commit")
            return done

        return committed

    patch.setattr(SqlCatalog, "commit_table", twice(SqlCatalog.commit_table))
    patch.setattr(RestCatalog, "commit_table", twice(RestCatalog.commit_table))


def test_a_commit_that_is_in_conflict_with_itself_leaves_a_table_that_can_be_read(
    case: Case, harness: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = decided(case)
    conflict_with_itself(monkeypatch)
    assert set(case.sink().committer().commit(given).values()) == {Outcome.COMMITTED}
    assert table_of(harness).scan().to_arrow().num_rows == 3
    case.finished(LEFT, RIGHT, when="after a commit that was sent twice")


def test_a_library_that_deletes_the_manifests_of_such_a_commit_is_found(
    case: Case, harness: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect is pyiceberg's own way after its last try."""
    given = decided(case)
    with table_of(harness).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    conflict_with_itself(monkeypatch)
    with planted(leaves_the_librarys_retry_on, by=FileNotFoundError):
        case.sink().committer().commit(given)
        table_of(harness).scan().to_arrow()


def test_a_table_that_was_created_again_takes_no_epoch_of_the_old_one(
    case: Case, harness: TableHarness
) -> None:
    case.run().epoch(0, LEFT)
    harness.foreign.drop_table(harness.name)
    with pytest.raises(IdentityError):
        case.run().epoch(1, RIGHT)
    case.holds(when="in the new table")


def test_a_dropped_column_stops_the_epoch_until_it_is_back_or_given_up(
    case: Case, harness: TableHarness
) -> None:
    given = decided(case)
    with table_of(harness).update_schema() as schema:
        schema.delete_column("value")
    with pytest.raises(SchemaError, match="value is not in the table"):
        case.sink().committer().commit(given)


def test_a_loss_that_was_accepted_is_final(case: Case, harness: TableHarness) -> None:
    given = decided(case)
    late = harness.options.address.load()
    assert late is not None
    case.sink().committer().forsake(given)
    assert not late.add([], Mark("abs-late-0", 1, {}))
    case.run().epoch(1, RIGHT)
    case.holds(RIGHT, when="after the next epoch")


def test_the_commands_know_a_table_by_its_door(case: Case, harness: TableHarness) -> None:
    decided(case)
    query = "&".join(f"catalog.{name}={value}" for name, value in harness.catalog.items())
    url = f"iceberg:{harness.name}?{query}"
    done = abs_("in-doubt", "commit", JOB, "--url", url)
    assert done.exit_code == 0, done.output
    case.finished(LEFT, RIGHT, when="after `abs in-doubt commit`")
