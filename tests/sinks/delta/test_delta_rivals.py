"""What other writers and clean-ups do beside a job: nothing is lost, doubled or half there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from abs_clients.delta import log
from abs_clients.delta.log import DeltaLog, DeltaSnapshot
from abs_core.errors import HandleLostError, IdentityError, SchemaError
from abs_core.model import Committable, Outcome
from abs_services import S3Service
from abs_testing import SCHEMA, Row
from abs_testing.case import JOB, Case
from abs_testing.cuts import Cut
from tests.planted import planted
from tests.sinks.delta.harness import TableHarness, open_table
from tests.sinks.lake.between import between, dies, unheard

LEFT: list[Row] = [(1, "a"), (2, "b")]
RIGHT: list[Row] = [(3, "c")]
OTHERS = pa.table({"id": pa.array([100], pa.int64()), "value": ["foreign"]})


def decided(case: Case) -> Sequence[Committable]:
    """The handles of a decided epoch that is not committed."""
    return case.halted(Cut("commit"), LEFT, RIGHT).state().open[0].committables


def rival_commits_first(case: Case, harness: TableHarness) -> None:
    """Whose files are compacted at once: the same path added again would bring its rows back."""
    given = decided(case)

    def rival() -> None:
        case.sink().committer().commit(given)
        DeltaTable(harness.options.path).optimize.compact()

    outcomes = between(case, rival).commit(given)
    assert set(outcomes.values()) == {Outcome.COMMITTED}


def test_of_two_coordinators_that_both_looked_one_adds_the_files(
    case: Case, harness: TableHarness
) -> None:
    rival_commits_first(case, harness)
    case.holds(LEFT, RIGHT, when="after two commits at once")


def test_a_commit_from_another_snapshot_than_the_one_looked_at_is_found(
    case: Case, harness: TableHarness
) -> None:
    """The planted defect: a fresh snapshot accepts the same transaction a second time."""
    add = DeltaSnapshot.add

    def from_a_fresh_one(self: DeltaSnapshot, *adding: Any) -> bool:
        self._table.update_incremental()
        return add(self, *adding)

    bug = DeltaSnapshot, "add", from_a_fresh_one
    with planted(bug, match="3 are there that must not be"):
        rival_commits_first(case, harness)
        case.holds(LEFT, RIGHT, when="after two commits at once")


@pytest.mark.parametrize("heard", ["conflict", "silence"])
def test_a_commit_whose_reply_is_lost_is_looked_up(
    heard: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = decided(case)
    conflict = CommitFailedError("somebody else wrote this version (on purpose)")
    left = unheard(monkeypatch, conflict if heard == "conflict" else None)
    case.run().epoch(0, LEFT, RIGHT)
    assert not left
    assert set(case.sink().committer().commit(given).values()) == {Outcome.COMMITTED}
    case.finished(LEFT, RIGHT, when="after a commit whose reply was lost")


def test_foreign_appends_and_a_compaction_beside_a_commit_are_waited_out(
    case: Case, harness: TableHarness
) -> None:
    given = decided(case)

    def others() -> None:
        write_deltalake(harness.options.path, OTHERS, mode="append")
        write_deltalake(harness.options.path, OTHERS, mode="append")
        DeltaTable(harness.options.path).optimize.compact()

    assert set(between(case, others).commit(given).values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, [(100, "foreign")] * 2, when="after foreign commits")


def test_an_epoch_whose_files_were_compacted_and_removed_stays_committed(
    case: Case, harness: TableHarness
) -> None:
    given = decided(case)
    committer = case.sink().committer()
    committer.commit(given)
    table = DeltaTable(harness.options.path)
    table.optimize.compact()
    table.vacuum(0, False, False, full=True)
    assert not list(Path(harness.options.path).glob("part.job-*"))
    assert set(committer.commit(given).values()) == {Outcome.COMMITTED}
    case.replayed(LEFT, RIGHT, when="after a compaction and a clean-up")


def test_a_clean_up_removes_nothing_of_an_epoch_that_is_not_committed(
    case: Case, harness: TableHarness
) -> None:
    """Before the decision and after it; the register is kept as well."""
    decided(case)
    DeltaTable(harness.options.path).vacuum(0, False, False, full=True)
    case.replayed(LEFT, RIGHT, when="after a clean-up")


@pytest.mark.services
def test_a_clean_up_of_a_bucket_removes_no_upload(store: S3Service, prefix: str) -> None:
    given = {"endpoint": store.endpoint, "region": store.region}
    with open_table(f"s3://{store.bucket}/{prefix}", given) as harness:
        case = Case(harness)
        decided(case)
        begun = harness.leftovers(JOB)
        assert begun
        address = harness.options.address
        DeltaTable(address.url, storage_options=address._storage()).vacuum(
            0, False, False, full=True
        )
        assert harness.leftovers(JOB) == begun
        case.replayed(LEFT, RIGHT, when="after a clean-up")


def test_a_completed_file_that_a_clean_up_removed_is_lost_before_the_log_names_it(
    case: Case, harness: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = decided(case)
    with monkeypatch.context() as patch:
        dies(patch)
        with pytest.raises(KeyboardInterrupt):
            case.sink().committer().commit(given)
    DeltaTable(harness.options.path).vacuum(0, False, False, full=True)
    version = DeltaTable(harness.options.path).version()
    with pytest.raises(HandleLostError):
        case.run().epoch(0, LEFT, RIGHT)
    assert DeltaTable(harness.options.path).version() == version
    case.holds(when="after files were lost")


def test_a_table_that_was_created_again_takes_no_epoch_of_the_old_one(
    case: Case, harness: TableHarness, tmp_path: Path
) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    log = Path(harness.options.path, "_delta_log")
    log.rename(tmp_path / "away")
    with pytest.raises(IdentityError):
        case.run().epoch(1, RIGHT)
    case.holds(when="in the new table")


def test_a_table_that_no_longer_fits_takes_nothing_until_it_fits_again(
    case: Case, harness: TableHarness
) -> None:
    given = decided(case)
    other = pa.table({"id": ["text"]})
    path = harness.options.path
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaError, match="value is not in the table"):
        case.sink().committer().commit(given)
    write_deltalake(path, OTHERS, mode="overwrite", schema_mode="overwrite")
    assert set(case.sink().committer().commit(given).values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, [(100, "foreign")], when="after the table was mended")


def test_a_column_that_somebody_adds_is_null_in_our_rows(case: Case, harness: TableHarness) -> None:
    given = decided(case)
    more = OTHERS.append_column("more", pa.array([1], pa.int64()))
    write_deltalake(harness.options.path, more, mode="append", schema_mode="merge")
    case.sink().committer().commit(given)
    rows = DeltaTable(harness.options.path).to_pyarrow_table().sort_by("id")
    assert rows["more"].to_pylist() == [None, None, None, 1]


def test_a_loss_that_was_accepted_is_final_for_a_coordinator_that_still_tries(
    case: Case, harness: TableHarness
) -> None:
    """The files come back from a slow server after the consent: nobody adds them."""
    given = decided(case)
    committer = case.sink().committer()
    staged = Path(harness.options.path, "_abs", "staged")
    content = {path.name: path.read_bytes() for path in staged.iterdir()}
    committer.forsake(given)
    for name, bytes_ in content.items():
        (staged / name).write_bytes(bytes_)
    committer.commit(given)
    case.holds(when="after the loss was accepted")
    committer.forsake(given)
    committer.abort([c.handle for c in given])
    case.run().epoch(1, RIGHT)
    case.holds(RIGHT, when="after the next epoch")


def test_a_decision_that_the_table_never_takes_can_be_given_up_as_a_whole(
    case: Case, harness: TableHarness
) -> None:
    run = case.run(run=case.halted(Cut("commit"), LEFT, RIGHT).who.run)
    decision = run.state().open[0]
    other = pa.table({"id": ["text"]})
    write_deltalake(harness.options.path, other, mode="overwrite", schema_mode="overwrite")
    lost = [loss.committable for loss in run.coordinator.lost(0)]
    assert {committable.handle for committable in lost} == decision.handles
    run.coordinator.accept_loss(0, lost)
    write_deltalake(harness.options.path, OTHERS, mode="overwrite", schema_mode="overwrite")
    case.sink().committer().commit(decision.committables)
    case.run().epoch(1, RIGHT)
    case.holds(RIGHT, [(100, "foreign")], when="after the decision was given up")


def made_at_once(folder: Path) -> None:
    """Four processes make one table, several times over: each sees the same one afterwards."""
    for number in range(12):
        meeting = Barrier(4)

        def make(number: int = number, meeting: Barrier = meeting) -> str:
            table = DeltaLog(str(folder / str(number)), None)
            meeting.wait()
            table.create(SCHEMA, [])
            snapshot = table.load()
            assert snapshot is not None
            return snapshot.id

        with ThreadPoolExecutor(4) as pool:
            seen = {each.result() for each in [pool.submit(make) for _ in range(4)]}
        versions = list((folder / str(number) / "_delta_log").glob("*.json"))
        assert len(seen) == len(versions) == 1, f"a table made at once has {len(versions)} versions"


def test_a_table_that_several_make_at_once_is_made_once(tmp_path: Path) -> None:
    """The second one's metadata would be another table's: no job that knows the first could go on."""
    made_at_once(tmp_path)


def test_a_library_that_makes_a_table_anew_after_a_conflict_is_found(tmp_path: Path) -> None:
    with planted((log, "CommitProperties", lambda **_: None), match="versions"):
        made_at_once(tmp_path)
