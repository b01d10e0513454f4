"""The rules of the commit protocol, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core import protocol
from abs_core.births import consent
from abs_core.errors import (
    AbandonedError,
    EpochGapError,
    FencedError,
    IdentityError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.model import (
    RECENT_MAX,
    SUPERSEDED_MAX,
    Committable,
    Decision,
    HandleName,
    JobState,
    Recent,
)
from abs_core.protocol import Changed, Identity, Refused, Skip, Unchanged, Verdict, Write
from abs_core.rowdigest import RowDigest

REGISTER = "a" * 16
WHO = Identity("job", "lineage", "run1", "target")


def state(**fields: object) -> JobState:
    first = JobState(REGISTER, "job", "target", "lineage", 1, "run1")
    return replace(first, **fields)  # type: ignore[arg-type]


def adopting(given: JobState, who: Identity, epoch: int = 0) -> Identity:
    """The same run, with the consent that the refusal names."""
    return replace(who, adopt=consent.to_adopt(given, who, epoch))


def handle(epoch: int = 0, *, generation: int = 1, partition: int = 0) -> HandleName:
    return HandleName(REGISTER, "job", generation, epoch, partition, "0")


def one(epoch: int = 0, *, generation: int = 1, partition: int = 0) -> Committable:
    return Committable(handle(epoch, generation=generation, partition=partition), 5, "none:")


def decision(epoch: int, *, generation: int = 1, lineage: str = "lineage") -> Decision:
    return Decision(lineage, epoch, generation, (one(epoch, generation=generation),))


def decide(given: JobState, epoch: int, *named: Committable, gaps: bool = False) -> Verdict:
    return protocol.decide(
        given,
        given.generation,
        epoch,
        list(named),
        fingerprint=f"input {epoch}",
        rows=5 * len(named),
        gaps_allowed=gaps,
    )


def changed(verdict: Verdict) -> JobState:
    assert isinstance(verdict, Changed), verdict
    return verdict.state


def refused(verdict: object) -> ProtocolError:
    assert isinstance(verdict, Refused), verdict
    return verdict.error


class TestStart:
    def test_the_first_run_mints_the_register(self) -> None:
        assert protocol.start(None, WHO, REGISTER) == Changed(state())

    def test_a_run_raises_the_generation_once(self) -> None:
        second = changed(protocol.start(state(), replace(WHO, run="run2"), "b" * 16))
        assert (second.generation, second.run, second.superseded) == (2, "run2", ("run1",))
        assert second.register == REGISTER
        again = protocol.start(second, replace(WHO, run="run2"), "b" * 16)
        assert again == Unchanged(second)

    def test_a_superseded_run_is_fenced_for_as_long_as_it_is_remembered(self) -> None:
        given = state()
        for number in range(2, SUPERSEDED_MAX + 2):
            given = changed(protocol.start(given, replace(WHO, run=f"run{number}"), REGISTER))
        assert isinstance(refused(protocol.start(given, WHO, REGISTER)), FencedError)
        given = changed(protocol.start(given, replace(WHO, run="one more"), REGISTER))
        assert len(given.superseded) == SUPERSEDED_MAX
        assert "run1" not in given.superseded

    def test_a_new_run_may_try_again_what_was_abandoned(self) -> None:
        given = state(abandoned=(3,))
        assert changed(protocol.start(given, replace(WHO, run="run2"), REGISTER)).abandoned == ()

    @pytest.mark.parametrize("other", [{"lineage": "other"}, {"target": "other"}])
    def test_another_identity_is_refused_and_told_how_to_adopt(self, other: dict[str, Any]) -> None:
        stranger = replace(WHO, run="run2", **other)
        error = refused(protocol.start(state(), stranger, REGISTER))
        assert isinstance(error, IdentityError)
        token = consent.to_adopt(state(), stranger, 0)
        assert f"adopt={token}" in error.remedy
        adopted = changed(protocol.start(state(), replace(stranger, adopt=token), REGISTER))
        assert (adopted.lineage, adopted.target) == (stranger.lineage, stranger.target)

    def test_an_adopted_lineage_counts_its_epochs_anew_and_keeps_open_decisions(self) -> None:
        given = state(frontier=7, open=(decision(8),), recent=(Recent(8, None, 5),))
        who = adopting(given, replace(WHO, lineage="new", run="run2"))
        adopted = changed(protocol.start(given, who, REGISTER))
        assert (adopted.frontier, adopted.recent, adopted.open) == (None, (), given.open)
        assert adopted.last_decided is None
        assert protocol.plan(adopted, 2, 0) == Write()

    def test_a_job_that_moves_to_another_target_keeps_its_epochs(self) -> None:
        given = state(frontier=7)
        who = adopting(given, replace(WHO, target="new", run="run2"))
        assert changed(protocol.start(given, who, REGISTER)).frontier == 7

    def test_a_job_with_open_decisions_does_not_move_to_another_target(self) -> None:
        given = state(open=(decision(0),))
        who = adopting(given, replace(WHO, target="new", run="run2"))
        error = refused(protocol.start(given, who, REGISTER))
        assert isinstance(error, IdentityError)
        assert "old target" in error.remedy

    def test_a_consent_to_adopt_does_not_outlive_the_run_it_was_given_for(self) -> None:
        thief = adopting(state(), replace(WHO, lineage="new", run="run2"))
        stolen = changed(protocol.start(state(), thief, REGISTER))
        back = adopting(stolen, replace(WHO, run="run3"))
        taken_back = changed(protocol.start(stolen, back, REGISTER))
        restarted = replace(thief, run="run4")
        assert isinstance(refused(protocol.start(taken_back, restarted, REGISTER)), IdentityError)

    @pytest.mark.parametrize(
        "other",
        [{"lineage": "another"}, {"target": "another"}, {"epoch": 77}],
        ids=["lineage", "target", "epoch"],
    )
    def test_a_consent_to_adopt_holds_for_one_lineage_target_and_epoch(
        self, other: dict[str, Any]
    ) -> None:
        epoch = other.pop("epoch", 7)
        consenting = adopting(state(), replace(WHO, lineage="new", run="run2"), 7)
        stranger = replace(consenting, **other)
        verdict = protocol.start(state(), stranger, REGISTER, epoch)
        assert isinstance(refused(verdict), IdentityError)
        assert changed(protocol.start(state(), consenting, REGISTER, 7)).lineage == "new"

    def test_a_run_knows_whether_it_has_started(self) -> None:
        given = state(superseded=("run0",))
        assert protocol.has_started(given, WHO)
        assert protocol.has_started(given, replace(WHO, run="run0"))
        assert not protocol.has_started(given, replace(WHO, run="run2"))
        assert not protocol.has_started(None, WHO)


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
        for epoch in range(RECENT_MAX + 5):
            given = changed(decide(given, epoch))
        assert [recent.epoch for recent in given.recent] == list(range(5, RECENT_MAX + 5))

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


SMALL = st.integers(0, 4)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), SMALL),
        st.tuples(st.just("decide"), SMALL),
        st.tuples(st.just("finish"), SMALL),
        st.tuples(st.just("abandon"), SMALL),
    ),
    max_size=12,
)


def act(given: JobState, action: str, number: int) -> JobState:
    """The state that the rule leads to, or the same where it refuses."""
    verdict: Verdict = Unchanged(given)
    if action == "start":
        who = adopting(given, Identity("job", f"lineage{number % 2}", f"run{number}", "target"))
        verdict = protocol.start(given, who, REGISTER)
    elif action == "decide":
        named = one(number, generation=given.generation)
        verdict = decide(given, number, named, gaps=True)
    elif action == "finish" and given.open:
        verdict = protocol.finish(given, given.open[0])
    elif action == "abandon":
        verdict = protocol.abandon(given, given.generation, number)
    return given if isinstance(verdict, Refused) else verdict.state


@given(ACTIONS, ACTIONS)
def test_what_is_sweepable_stays_sweepable(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    given = state()
    for action in before:
        given = act(given, *action)
    names = [handle(e, generation=g) for e in range(5) for g in range(1, given.generation + 1)]
    swept = protocol.sweep(given, given.generation, names)
    for action in after:
        given = act(given, *action)
        assert protocol.sweep(given, given.generation, swept) == swept


@given(ACTIONS)
def test_every_rule_is_idempotent_and_keeps_the_order(actions: list[tuple[str, int]]) -> None:
    given = state()
    for action, number in actions:
        after = act(given, action, number)
        if action in ("start", "abandon"):
            assert act(after, action, number) == after
        assert after.generation >= given.generation
        ours = [d.epoch for d in after.open if d.lineage == after.lineage]
        assert ours == sorted(set(ours))
        assert after.frontier is None or all(epoch > after.frontier for epoch in ours)
        if after.lineage == given.lineage and given.frontier is not None:
            assert after.frontier is not None
            assert after.frontier >= given.frontier
        given = after
