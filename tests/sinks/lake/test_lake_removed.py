"""A process that stood still while its job was removed wakes up: no row is skipped or doubled.

It stands still before each of its calls to register and committer, and before the table's own commit.
Meanwhile `abs job remove` ends the job; then perhaps a new job of that name begins, with a checkpoint
of its own. Marks in the table's log outlive both.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from abs_core.certificate import MemoryCertificates
from abs_core.errors import AbsError
from abs_testing.case import JOB, Case, rows
from abs_testing.fault_injection import Fault, Wire
from abs_testing.harness import Harness
from tests.kit.command import abs_
from tests.sinks.delta.harness import TableHarness as OnDelta
from tests.sinks.iceberg.harness import TableHarness as OnIceberg
from tests.sinks.lake.conftest import KINDS, in_folder

FIRST, OPEN, AGAIN, LATER = rows(0, 3), rows(10, 3), rows(20, 2), rows(30, 2)
CALLS = 16
"""More than a run of one epoch makes; a number that is not reached is a life without a stop."""
LOG = -1
"""Before the commit of the table itself, which comes after the look at its log."""
LIVES = [*product(KINDS, [LOG, *range(CALLS)], [False, True])]
SAMPLE = [(kind, number, True) for kind in KINDS for number in (LOG,)] + [("delta", 5, True)]


@dataclass
class Life:
    """A job that is removed while one of its processes stands still.

    Args:
        begun_again: whether a new job of that name has begun when the process wakes up.
        beside: what else happens to the table meanwhile.
    """

    harness: Harness
    begun_again: bool
    beside: Callable[[Harness], None] = lambda harness: None
    stood_still: bool = False
    error: AbsError | None = None
    certificates: MemoryCertificates = field(default_factory=MemoryCertificates)
    of_new: MemoryCertificates = field(default_factory=MemoryCertificates)

    def live(self, number: int, patch: pytest.MonkeyPatch) -> None:
        """Stand still before this call of epoch 1, and wake up."""
        with Case(self.harness) as case:
            case.run(certificates=self.certificates).epoch(0, FIRST)
            wire = Wire(lambda: self._removed(case))
            wire.planned = deque([*[Fault.NONE] * number, Fault.OVERTAKEN] if number != LOG else [])
            run = case.run(wire=wire, certificates=self.certificates)
            with patch.context() as inner:
                if number == LOG:
                    self._before_the_tables_commit(case, inner)
                try:
                    run.epoch(1, OPEN)
                except AbsError as error:
                    self.error = error
                    with suppress(AbsError):  # an engine logs it
                        run.abort(1)
            if self.begun_again and self.stood_still:
                case.run(lineage="new", certificates=self.of_new).epoch(1, LATER)

    def check(self) -> None:
        """What is in the table, each row as often as it was written."""
        seen = Counter((int(key), str(value)) for key, value in self.harness.read())
        wanted = Counter(FIRST)
        if self.begun_again and self.stood_still:
            wanted += Counter([*AGAIN, *LATER])
        there = seen - wanted
        assert not wanted - seen, f"rows are missing: {wanted - seen}"
        assert there in (Counter(), Counter(OPEN)), f"rows are too many: {there}"
        assert there or self.error is not None, "the epoch was skipped, and nobody was told"

    def _removed(self, case: Case) -> None:
        self.stood_still = True
        done = abs_("job", "remove", JOB, "--url", address(self.harness), "--yes")
        assert done.exit_code == 0, (done.output, done.exception)
        self.beside(self.harness)
        if self.begun_again:
            case.run(lineage="new", certificates=self.of_new).epoch(0, AGAIN)

    def _before_the_tables_commit(self, case: Case, patch: pytest.MonkeyPatch) -> None:
        """Of deltalake's and of pyiceberg's: the calls that change the table."""

        def after(proper: Callable[..., Any]) -> Callable[..., Any]:
            def commit(*given: Any, **more: Any) -> Any:
                if not self.stood_still:
                    self.stood_still = True
                    self._removed(case)
                return proper(*given, **more)

            return commit

        add = DeltaTable.create_write_transaction
        patch.setattr(DeltaTable, "create_write_transaction", after(add))
        patch.setattr(SqlCatalog, "commit_table", after(SqlCatalog.commit_table))


def address(harness: Harness) -> str:
    if isinstance(harness, OnDelta):
        return f"delta:{harness.options.path}"
    assert isinstance(harness, OnIceberg)
    named = {f"catalog.{name}": value for name, value in harness.catalog.items()}
    return f"iceberg:{harness.name}?{urlencode(named)}"


@pytest.mark.parametrize(
    ("kind", "number", "begun_again"),
    [pytest.param(*life, marks=() if life in SAMPLE else pytest.mark.campaign) for life in LIVES],
)
def test_a_process_that_wakes_up_after_its_job_was_removed_skips_and_doubles_no_row(
    kind: str, number: int, begun_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_folder(kind, tmp_path)() as harness:
        life = Life(harness, begun_again)
        life.live(number, monkeypatch)
        life.check()
        assert life.stood_still or number >= 5, "the life has no such moment"


def forget_the_property(harness: Harness) -> None:
    assert isinstance(harness, OnIceberg)
    table = harness.foreign.load_table(harness.name)
    marks = [name for name in table.properties if name.startswith("abs")]
    assert marks
    with table.transaction() as transaction:
        transaction.remove_properties(*marks)


def forget_the_mark(harness: Harness) -> None:
    """The planted defect: a removal that takes the marks away with the job, those of snapshots, too."""
    forget_the_property(harness)
    assert isinstance(harness, OnIceberg)
    table = harness.foreign.load_table(harness.name)
    table.append(table.schema().as_arrow().empty_table())
    before = [one.snapshot_id for one in table.metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(before[:-1]).commit()


def test_a_removal_that_takes_the_marks_away_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_folder("iceberg", tmp_path)() as harness:
        life = Life(harness, False, forget_the_mark)
        life.live(LOG, monkeypatch)
        with pytest.raises(AssertionError, match="rows are too many"):
            life.check()


def test_a_mark_whose_property_a_person_removed_is_told_by_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_folder("iceberg", tmp_path)() as harness:
        life = Life(harness, False, forget_the_property)
        life.live(LOG, monkeypatch)
        life.check()
