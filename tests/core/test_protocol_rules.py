"""The rules of an epoch, one by one: it is planned, decided, finished, or abandoned and swept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import protocol
from abs_core.deadletters import Count, with_counts
from abs_core.errors import (
    AbandonedError,
    DeadLettersError,
    EpochGapError,
    FencedError,
    IdentityError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.model import (
    MAX_RECENT,
    MOVED,
    NO_EPOCH,
    Committable,
    Dead,
    HandleName,
    JobState,
    Recent,
)
from abs_core.protocol import RunIdentity, Skip, Unchanged, Write
from abs_core.rowdigest import RowDigest
from tests.core.protocol_values import changed, decide, decision, handle, one, refused, state


class TestPlan:
    def test_the_first_epoch_may_have_any_number(self) -> None:
        assert protocol.plan(state(), 1, 41) == Write()

    def test_what_is_decided_or_finished_is_skipped(self) -> None:
        given = state(frontier=3, open=(decision(4),))
        assert [protocol.plan(given, 1, epoch) for epoch in (2, 3, 4)] == [Skip()] * 3
        assert protocol.plan(given, 1, 5) == Write()

    def test_a_gap_is_refused_unless_it_is_allowed(self) -> None:
        given = state(frontier=3)
        assert isinstance(refused(protocol.plan(given, 1, 5)), EpochGapError)
        assert protocol.plan(given, 1, 5, gaps_allowed=True) == Write()

    def test_a_lower_generation_is_fenced(self) -> None:
        assert isinstance(refused(protocol.plan(state(generation=2), 1, 0)), FencedError)

    def test_an_abandoned_epoch_is_neither_tried_again_nor_passed_over(self) -> None:
        given = state(frontier=3, abandoned=(4,))
        for epoch in (4, 5):
            error = refused(protocol.plan(given, 1, epoch, gaps_allowed=True))
            assert isinstance(error, AbandonedError)
            assert error.epoch == 4

    def test_what_was_left_out_before_a_decision_stays_out(self) -> None:
        given = changed(decide(state(frontier=3), 5, one(5), gaps=True))
        assert protocol.plan(given, 1, 4, gaps_allowed=True) == Skip()
        error = refused(decide(given, 4, one(4), gaps=True))
        assert isinstance(error, ReplayMismatchError)


class TestDecide:
    def test_a_decision_names_exactly_the_handles(self) -> None:
        decided = changed(decide(state(), 0, one(), one(partition=1)))
        found = decided.decision(0)
        assert found is not None
        assert found.handles == {handle(), handle(partition=1)}
        assert decided.record(0) == Recent(0, "input 0", 10)

    def test_an_epoch_keeps_its_first_decision(self) -> None:
        decided = changed(decide(state(), 0, one()))
        again = protocol.decide(decided, 1, 0, [one(partition=9)], fingerprint="input 0", rows=5)
        assert again == Unchanged(decided)

    def test_an_epoch_without_handles_is_finished_at_once(self) -> None:
        finished = changed(decide(state(), 0))
        assert (finished.frontier, finished.open) == (0, ())

    def test_an_epoch_without_handles_waits_for_the_decisions_before_it(self) -> None:
        given = changed(decide(changed(decide(state(), 0, one())), 1))
        assert [d.epoch for d in given.open] == [0, 1]
        given = changed(protocol.finish(given, given.open[0]))
        assert changed(protocol.finish(given, given.open[0])).frontier == 1

    @pytest.mark.parametrize(
        "named",
        [
            [one(generation=2)],
            [replace(one(), handle=replace(handle(), register="b" * 16))],
            [one(), one()],
            [one(1)],
        ],
        ids=["another generation", "another register", "twice", "a later epoch"],
    )
    def test_a_handle_that_may_not_be_named_is_refused(self, named: list[Committable]) -> None:
        error = refused(decide(state(generation=3), 0, *named))
        assert type(error) is ProtocolError
        assert error.handle == str(named[0].handle)

    def test_a_handle_of_an_earlier_failed_checkpoint_may_join(self) -> None:
        joined = changed(decide(state(frontier=3), 5, one(4), one(5), gaps=True))
        assert joined.open[0].handles == {handle(4), handle(5)}

    def test_a_handle_of_a_decided_epoch_joins_no_other_decision(self) -> None:
        decided = changed(decide(state(), 4, one(4)))
        for loser in (one(4), one(4, partition=1)):
            assert type(refused(decide(decided, 5, one(5), loser))) is ProtocolError

    def test_only_so_many_epochs_are_on_record(self) -> None:
        given = state()
        for epoch in range(MAX_RECENT + 5):
            given = changed(decide(given, epoch))
        assert [recent.epoch for recent in given.recent] == list(range(5, MAX_RECENT + 5))

    def test_a_co_commit_is_decided_and_finished_at_once(self) -> None:
        given = protocol.co_commit(state(), 1, 0, [one()], fingerprint=None, rows=5)
        assert (changed(given).frontier, changed(given).open) == (0, ())
        again = protocol.co_commit(changed(given), 1, 0, [one()], fingerprint=None, rows=5)
        assert again == Unchanged(changed(given))


class TestSameEpoch:
    given = state(frontier=1, recent=(Recent(0, "print", 5), Recent(1, None, 5)))

    def test_the_fingerprint_decides_where_both_are_known(self) -> None:
        assert protocol.same_epoch(self.given, 0, "print", 999) is None
        error = refused(protocol.same_epoch(self.given, 0, "other", 5))
        assert isinstance(error, ReplayMismatchError)

    @pytest.mark.parametrize(("epoch", "fingerprint"), [(0, None), (1, "print"), (1, None)])
    def test_the_row_count_decides_otherwise(self, epoch: int, fingerprint: str | None) -> None:
        assert protocol.same_epoch(self.given, epoch, fingerprint, 5) is None
        error = refused(protocol.same_epoch(self.given, epoch, fingerprint, 6))
        assert "6 rows now and had 5" in error.what

    def test_digests_of_rows_are_compared_and_say_where_rows_differ(self) -> None:
        one, two = (RowDigest(n, (("a", 1), ("b", n))).to_text() for n in (1, 2))
        given = state(frontier=0, recent=(Recent(0, one, 5),))
        assert protocol.same_epoch(given, 0, one, 5) is None
        error = refused(protocol.same_epoch(given, 0, two, 5))
        assert isinstance(error, ReplayMismatchError)
        assert error.why == 'the values of column "b" differ'
        error = refused(protocol.same_epoch(given, 0, two, 6))
        assert "6 rows now and had 5" in error.what

    def test_a_digest_of_rows_and_another_fingerprint_are_not_compared(self) -> None:
        digest = RowDigest(1, (("a", 1),)).to_text()
        for known, now in ((digest, "sha256:ff"), ("sha256:ff", digest), (None, digest)):
            given = state(frontier=0, recent=(Recent(0, known, 5),))
            assert protocol.same_epoch(given, 0, now, 5) is None
            assert "6 rows now" in refused(protocol.same_epoch(given, 0, now, 6)).what

    def test_only_the_newest_epoch_keeps_its_columns(self) -> None:
        digests = [RowDigest(n, (("a", n),)) for n in range(3)]
        given = state()
        for epoch, digest in enumerate(digests):
            fingerprint = digest.to_text()
            verdict = protocol.decide(given, 1, epoch, [], fingerprint=fingerprint, rows=0)
            given = changed(verdict)
        kept = [recent.fingerprint for recent in given.recent]
        assert kept == [*(d.brief.to_text() for d in digests[:2]), digests[2].to_text()]

    def test_what_is_on_no_record_is_refused(self) -> None:
        given = state(frontier=40)
        assert isinstance(refused(protocol.same_epoch(given, 3, "print", 5)), ReplayMismatchError)


class TestFinish:
    def test_a_finished_decision_leaves_the_register(self) -> None:
        given = state(open=(decision(4),), abandoned=(4, 6))
        finished = changed(protocol.finish(given, given.open[0]))
        assert (finished.open, finished.frontier, finished.abandoned) == ((), 4, (6,))
        assert protocol.finish(finished, given.open[0]) == Unchanged(finished)

    def test_any_generation_may_say_that_a_decision_is_finished(self) -> None:
        given = state(open=(decision(4),), generation=9, run="run9")
        assert changed(protocol.finish(given, given.open[0])).frontier == 4

    def test_a_decision_of_an_earlier_lineage_does_not_move_the_frontier(self) -> None:
        given = state(open=(decision(4, lineage="old"),), frontier=0)
        assert changed(protocol.finish(given, given.open[0])).frontier == 0

    def test_a_later_decision_on_an_epoch_of_that_number_is_another_one(self) -> None:
        given = state(open=(decision(4, generation=3),), generation=3)
        assert protocol.finish(given, decision(4, generation=1)) == Unchanged(given)

    def test_decisions_are_finished_in_the_order_they_were_made(self) -> None:
        given = state(open=(decision(4), decision(5)))
        with pytest.raises(AssertionError, match="order"):
            protocol.finish(given, given.open[1])


class TestAbandonAndSweep:
    def test_a_decided_epoch_cannot_be_abandoned(self) -> None:
        given = state(open=(decision(1),), frontier=0)
        for epoch in (0, 1):
            assert protocol.abandon(given, 1, epoch) == Unchanged(given)
        assert changed(protocol.abandon(given, 1, 2)).abandoned == (2,)

    def test_a_lower_generation_cannot_abandon(self) -> None:
        assert isinstance(refused(protocol.abandon(state(generation=2), 1, 0)), FencedError)

    @pytest.mark.parametrize(
        ("name", "swept"),
        [
            (handle(9, generation=2), True),  # a lower generation's, whatever its epoch
            (handle(2, generation=3), True),  # its epoch is finished
            (handle(7, generation=3), True),  # its epoch is abandoned
            (handle(8, generation=3), False),  # it may still be decided
            (handle(3, generation=3), False),  # a loser, but its epoch is still open
            (handle(3, generation=2), False),  # named by an open decision
            (handle(2, generation=4), False),  # a higher generation's
            (replace(handle(2), register="b" * 16), False),  # another register's
        ],
    )
    def test_only_what_no_decision_can_name_is_swept(self, name: HandleName, swept: bool) -> None:
        given = state(generation=3, frontier=2, open=(decision(3, generation=2),), abandoned=(7,))
        assert protocol.sweep(given, 3, [name]) == ([name] if swept else [])
        assert protocol.sweep(given, 2, [name]) == [], "a lower generation cannot sweep"
        older = swept and name.generation < 3
        assert protocol.superseded(given, [name]) == ([name] if older else []), "by any run"

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            (handle(3, generation=2), "decided: will be committed"),
            (handle(9, generation=2), "will be aborted"),
            (
                handle(8, generation=3),
                "undecided: its epoch is under way, or its run died and the next start ends it",
            ),
            (replace(handle(8), register="b" * 16), "unknown: its register is not here"),
        ],
    )
    def test_the_fate_of_a_handle_is_what_decisions_and_sweeps_do_with_it(
        self, name: HandleName, said: str
    ) -> None:
        given = state(generation=3, frontier=2, open=(decision(3, generation=2),))
        assert protocol.fate(given, name) == said
        moved = protocol.fate(replace(given, lineage=f"{MOVED}s3://there: id"), name)
        under_way = said.startswith("undecided")
        assert moved == ("unknown: its register was moved to s3://there" if under_way else said)
        assert protocol.fate(None, name) == "unknown: its register is not here"


def test_a_name_without_an_epoch_outlasts_its_epoch_only_where_none_is_under_way() -> None:
    given = state(generation=3, frontier=2)
    mine = HandleName(given.register, given.job, 3, NO_EPOCH, 0, "ab")
    others = [
        replace(mine, register="f" * 16),
        replace(mine, generation=2),  # the sweep's
        replace(mine, generation=4),
        replace(mine, epoch=3),
    ]
    assert protocol.outlasted(given, 3, [mine, *others]) == [mine]
    assert protocol.outlasted(given, 2, [mine]) == [], "it is fenced"
    deciding = replace(given, open=(decision(3, generation=3),))
    assert protocol.outlasted(deciding, 3, [mine]) == [], "it may be decided"


def test_another_checkpoints_error_begins_with_the_question_whether_the_jobs_was_deleted() -> None:
    given = state(frontier=3)
    who = RunIdentity(given.job, "another", "run", given.target)
    error = refused(protocol.start(given, who, "new", 0))
    assert isinstance(error, IdentityError)
    assert error.what.startswith(f"Was the checkpoint of job {given.job} deleted?")
    assert "the job has committed all up to epoch 3" in error.what
    elsewhere = replace(who, lineage=given.lineage, target="another")
    assert "checkpoint" not in refused(protocol.start(given, elsewhere, "new", 0)).what


def _with_dead(given: JobState, epoch: int, rows: int, dead: int) -> protocol.Verdict:
    made = with_counts(one(epoch, generation=given.generation), [Count(0, rows, dead, 0.01)])
    return decide(given, epoch, made)


def _finished(given: JobState) -> JobState:
    return changed(protocol.finish(given, given.open[0]))


def test_an_epoch_beyond_the_limit_of_dead_letters_is_not_decided() -> None:
    """100 dead letters, and more than the share: of this epoch and those that are remembered."""
    given = state()
    assert isinstance(refused(_with_dead(given, 0, 9_999, 100)), DeadLettersError)
    assert changed(_with_dead(given, 0, 10_000, 100)).recent[-1].dead == (Dead(0, 10_000, 100),)
    assert changed(_with_dead(given, 0, 99, 99)).recent[-1].dead == (Dead(0, 99, 99),)
    before = changed(_with_dead(given, 0, 1_000, 90))
    error = refused(_with_dead(_finished(before), 1, 1_000, 10))
    assert "100 of 2000 over the last 16 epochs" in error.what


def test_dead_letters_of_epochs_that_are_forgotten_do_not_count() -> None:
    given = _finished(changed(_with_dead(state(), 0, 1_000, 99)))
    for epoch in range(1, MAX_RECENT):
        given = _finished(changed(_with_dead(given, epoch, 1, 0)))
    assert isinstance(_with_dead(given, MAX_RECENT, 1_000, 9), protocol.Changed)
