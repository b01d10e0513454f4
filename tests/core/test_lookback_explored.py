"""A target that goes back, explored: each short life of a job, its crashes, a backup and its restore.

A start refuses if, and only if, rows of a finished epoch are not in the target. (Nothing else of the
target is asked: neither the oracle knows marks, nor the rules rows.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product

import pytest

from abs_core.errors import TargetWentBackError
from abs_core.model import Committable, Shown
from abs_testing.case import Case, consent_in, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.fakes.sink import HandleCommitter
from abs_testing.harness import Row
from tests import sample
from tests.kit.fake_harness import FakeHarness

LENGTH = 4
FIRST, SECOND, THIRD = rows(0, 3), rows(10, 2), rows(20, 4)
ACTIONS = ("epoch", "dies undecided", "dies decided", "dies committed", "backup", "restore")
CUTS = {
    "dies undecided": Cut("inspect"),
    "dies decided": Cut("commit"),
    "dies committed": Cut("compare_and_set", where=lambda state: not state.open),
}
LIVES = [life for life in product(ACTIONS, repeat=LENGTH) if "restore" in life]


class Life:
    """One job on one target, and what its finished epochs have written."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._written: dict[int, list[Row]] = {}
        self._consent: str | None = None
        self._backup: Callable[[], None] | None = None
        self._next = 0

    def does(self, action: str) -> None:
        harness = self._case.harness
        assert isinstance(harness, FakeHarness)
        if action == "backup":
            self._backup = harness.backup()
        elif action == "restore":
            if self._backup is not None:
                self._backup()
        else:
            self._starts()
            self._epoch(action)

    def ends(self) -> None:
        """The next start, whose answer is known by the rows alone."""
        self._starts()
        self._consent = None

    def _starts(self) -> None:
        gone = self._gone()
        if not gone:
            self._case.run().begin(self._next)
            return
        error = raises(TargetWentBackError, lambda: self._case.run().begin(self._next))
        self._tells(error, gone)
        self._consent = consent_in(error)
        for epoch in gone:
            del self._written[epoch]

    def _gone(self) -> list[int]:
        """Finished epochs that lack rows. What is decided is rolled forward only after the start."""
        there = set(self._case.harness.read())
        stored = self._case.run().store.load("job")
        frontier = -1 if stored is None or stored.state.frontier is None else stored.state.frontier
        return [e for e, some in self._written.items() if e <= frontier and set(some) - there]

    def _tells(self, error: TargetWentBackError, gone: Sequence[int]) -> None:
        told = sum(len(self._written[epoch]) for epoch in gone)
        assert f"the {told} rows" in error.what, f"{gone} are gone, but: {error.what}"

    def _epoch(self, action: str) -> None:
        epoch, adopt = self._next, self._consent
        some = rows(100 * epoch, 2 + epoch)
        run = self._case.run(adopt=adopt, cut=CUTS.get(action))
        self._consent = None
        if action == "epoch":
            try:
                run.epoch(epoch, some)
            except TargetWentBackError as error:
                # An epoch that this run has rolled forward was committed before the restore.
                self._tells(error, self._gone())
                return
        else:
            raises(Halted, lambda: run.epoch(epoch, some))
        if run.state().last_decided == epoch:  # else it died in what the run before had decided
            self._written[epoch] = some
            self._next += 1


def lived(life: Sequence[str]) -> None:
    with (
        closing(FakeHarness("2pc", "append", own_register=False)) as harness,
        Case(harness) as case,
    ):
        of = Life(case)
        for action in ("epoch", *life):
            of.does(action)
        of.ends()


@sample.cases(24)
@pytest.mark.parametrize("life", LIVES, ids=", ".join)
def test_a_start_refuses_exactly_a_target_without_finished_rows(life: Sequence[str]) -> None:
    lived(life)


def test_without_a_look_before_its_decisions_a_run_hides_what_is_gone_for_good() -> None:
    with (
        closing(FakeHarness("2pc", "append", own_register=False)) as harness,
        Case(harness) as case,
    ):
        run = case.run()
        run.coordinator._decider._look_back = lambda epoch, own: None
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        back()
        run.epoch(2, THIRD)
        case.run().begin(3)  # the newest mark is there: nothing is told
        case.holds(FIRST, THIRD, when="after a run that did not look")


def test_a_record_of_what_a_target_shows_at_that_moment_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the commit and the record a target may have gone back: the mark must be the epoch's."""
    right = HandleCommitter.shown

    def shown(self: HandleCommitter, committables: Sequence[Committable]) -> Sequence[Shown]:
        with self._target.transaction() as db:
            query = "SELECT generation, epoch, sink FROM applied ORDER BY 1, 2"
            rows = db.execute(query).fetchall()
        return [
            replace(each, mark=json.dumps([[*rows[-1], 1]])) for each in right(self, committables)
        ]

    monkeypatch.setattr(HandleCommitter, "shown", shown)
    with pytest.raises(AssertionError, match="TargetWentBackError was not raised"):
        lived(("backup", "dies committed", "restore", "epoch"))
