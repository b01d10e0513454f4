"""A table that goes back is told at a start, also where its marks outlive that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from abs_core.errors import RegisterLostError, TargetWentBackError
from abs_core.events import Event, NotCompared
from abs_testing.case import JOB, Case, consent_in, raises, rows
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness
from tests.sinks.lake.conftest import TableOpener

FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


def compact(harness: DeltaHarness | IcebergHarness) -> None:
    """Another writer's commit, which keeps all rows."""
    if isinstance(harness, DeltaHarness):
        harness.table().optimize.compact()
    else:
        table = harness.foreign.load_table(harness.name)
        table.overwrite(table.scan().to_arrow())


def test_a_restore_under_a_later_commit_is_told_at_the_next_start(opener: TableOpener) -> None:
    with opener() as harness, Case(harness) as case:
        assert isinstance(harness, DeltaHarness | IcebergHarness)
        run = case.run()
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        back()
        raises(TargetWentBackError, lambda: run.epoch(2, THIRD))
        run = case.run(adopt=consent_in(raises(TargetWentBackError, lambda: case.run().begin(2))))
        run.epoch(2, THIRD)
        case.holds(FIRST, THIRD, when="after a restore in a job that ran")
    with opener() as harness, Case(harness) as case:
        assert isinstance(harness, DeltaHarness | IcebergHarness)
        run = case.run()
        # As if the table was restored between a decision and its commit.
        run.coordinator._decider._look_back = lambda epoch, own: None
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        back()
        run.epoch(2, THIRD)  # on top of the restored table
        error = raises(TargetWentBackError, lambda: case.run().begin(3))
        assert "the 2 rows of the finished epoch(s) 1." in error.what
        case.run(adopt=consent_in(error)).epoch(3, LAST)
        case.run().begin(4)
        case.holds(FIRST, THIRD, LAST, when="after a restore in a job that ran")


def test_commits_of_others_are_no_going_back(opener: TableOpener) -> None:
    with opener() as harness, Case(harness) as case:
        assert isinstance(harness, DeltaHarness | IcebergHarness)
        case.run().epoch(0, FIRST)
        for epoch, more in enumerate((SECOND, THIRD), 1):
            compact(harness)
            case.run().epoch(epoch, more)
        compact(harness)
        case.run().begin(3)
        case.holds(FIRST, SECOND, THIRD, when="after compactions between epochs")


def test_deleted_versions_of_a_log_are_told(tmp_path: Path) -> None:
    with_log = DeltaHarness(str(tmp_path), {})
    with Case(with_log) as case:
        run = case.run()
        for epoch, some in enumerate((FIRST, SECOND, THIRD)):
            run.epoch(epoch, some)
        log = Path(with_log.options.path, "_delta_log")
        for name in sorted(path.name for path in log.glob("*.json"))[-2:]:
            (log / name).unlink()
        error = raises(TargetWentBackError, lambda: case.run().begin(3))
        assert "the 6 rows of the finished epoch(s) 1 to 2." in error.what
        # Others write as many versions as there were: the numbers alone tell nothing.
        for _ in range(3):
            with_log.table().alter.set_table_properties({"delta.appendOnly": "false"})
        raises(TargetWentBackError, lambda: case.run().begin(3))


def told(case: Case) -> list[str]:
    """What a start says that it cannot tell."""
    events: list[Event] = []
    run = case.run()
    run._tasks._lookout._observe = events.append
    run.begin(run.state().frontier or 0)
    return [event.why for event in events if isinstance(event, NotCompared)]


def expire(harness: IcebergHarness) -> None:
    """All snapshots but the newest and those that a tag is at."""
    table = harness.foreign.load_table(harness.name)
    later = datetime.now(UTC) + timedelta(hours=1)
    table.maintenance.expire_snapshots().older_than(later).commit()


def test_what_an_expired_snapshot_would_tell_is_said_to_be_unknown(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path, None, {})
    with Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND)
        assert told(case) == []
        compact(harness)
        expire(harness)
        [why] = told(case)
        assert "snapshots expired" in why
        case.run().epoch(2, THIRD)
        assert told(case) == []
        case.holds(FIRST, SECOND, THIRD, when="after snapshots expired")


def test_an_epochs_snapshot_that_a_tag_keeps_is_no_going_back(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path, None, {})
    with Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND)
        tagged = harness.foreign.load_table(harness.name)
        tagged.manage_snapshots().create_tag(
            tagged.metadata.snapshots[-1].snapshot_id, "eod"
        ).commit()
        compact(harness)
        compact(harness)
        expire(harness)
        [why] = told(case)
        assert "snapshots expired" in why
        case.run().epoch(2, THIRD)
        case.holds(FIRST, SECOND, THIRD, when="after what followed a tag has expired")


def test_what_a_cleaned_log_would_tell_is_said_to_be_unknown(tmp_path: Path) -> None:
    harness = DeltaHarness(str(tmp_path), {})
    with Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND)
        compact(harness)
        harness.table().create_checkpoint()
        log = Path(harness.options.path, "_delta_log")
        for path in sorted(log.glob("*.json"))[:-1]:
            path.unlink()
        [why] = told(case)
        assert "cleaned" in why
        case.holds(FIRST, SECOND, when="after a log was cleaned")


def test_a_register_that_was_restored_with_its_checkpoint_uses_no_mark_again(
    opener: TableOpener, tmp_path: Path
) -> None:
    """The situation, and the remedy as it is printed: restore the target, too, and consent."""
    with opener() as harness, Case(harness) as case:
        assert isinstance(harness, DeltaHarness | IcebergHarness)
        case.run().epoch(0, FIRST)
        target, older = harness.backup(), case.run().state()
        later = case.run()
        later.epoch(1, SECOND)
        later.epoch(2, THIRD)
        later.store.compare_and_set(JOB, later.stored().version, older)
        target()
        error = raises(RegisterLostError, lambda: case.run().begin(1))
        case.run(adopt=consent_in(error)).epoch(1, LAST)
        case.run().epoch(2, THIRD)
        case.holds(FIRST, LAST, THIRD, when="after register, checkpoint and table were restored")
