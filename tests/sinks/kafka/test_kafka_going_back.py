"""The kit's rules for a target that goes back, on a broker whose topic lost its last records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.errors import NotPreparedError, TargetWentBackError
from abs_core.model import JobState
from abs_core.routing import ByProtocol
from abs_services import Provider, services
from abs_sinks.kafka import lookback, mark
from abs_sinks.kafka.ledger import to_text
from abs_sinks.kafka.wal import WalCommitter, ledger_key, store_of
from abs_testing import GoingBack
from abs_testing.case import Case, consent_in, raises, rows
from abs_testing.check_sink import run_check
from abs_testing.checks import CHECKS
from abs_testing.rules import Check, going_back, going_back_on_the_way
from tests.kit.kafka import KEYED, KeyedSink, TopicHarness
from tests.kit.kafka_restored import open_restored
from tests.planted import planted

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(600)]

RULES = [check for check in CHECKS if check.applies in (going_back, going_back_on_the_way)]
WAYS = ["2pc", "2pc-librdkafka", "2pc-foreign-register", "wal-foreign-register"]
FIRST, SECOND, LAST = rows(0, 3), rows(10, 2), rows(30, 1)


@pytest.fixture(autouse=True)
def _own_broker() -> None:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's log is not ours")


def test_there_are_six_rules() -> None:
    assert len(RULES) == 6


CASES = [pytest.param(check, way, id=f"{way}-{check.rule}") for way in WAYS for check in RULES]


@pytest.mark.parametrize(("rule", "way"), CASES)
def test_a_topic_that_went_back_keeps_the_rule(rule: Check, way: str) -> None:
    assert run_check(partial(open_restored, way), rule), "the rule does not apply"


SHORT = 300
"""Too short for 130 ends, also where each has one digit; not for the sums."""

MANY = [
    (130, "2pc", RULES),
    (130, "wal-foreign-register", RULES),
    (lookback.MAX_ENDS, "2pc", RULES[:1]),
]


@pytest.mark.parametrize(
    ("rule", "way", "partitions"),
    [
        pytest.param(rule, way, partitions, id=f"{partitions}-{way}-{rule.rule}")
        for partitions, way, rules in MANY
        for rule in rules
    ],
)
def test_a_topic_of_many_partitions_that_went_back_keeps_the_rule(
    rule: Check, way: str, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "MAX_MARK", SHORT)
    assert run_check(partial(open_restored, way, partitions), rule), "the rule does not apply"


@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
def test_lost_records_are_told_though_others_wrote_as_many_to_partitions_of_the_same_sum(
    monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Planted: the newest epoch has sums alone, as older ones do."""
    monkeypatch.setattr(mark, "MAX_MARK", SHORT)
    if planted:
        monkeypatch.setattr(mark, "MAX_FULL_MARK", 0)
    with open_restored("2pc", 130) as harness, Case(harness) as case:
        back = _last_epoch(harness, case)
        before = harness.ends()
        back()
        lost = {n: before[n] - end for n, end in harness.ends().items() if end < before[n]}
        assert lost, "nothing is lost"
        for n, records in lost.items():
            other = n + mark.SUMS if n + mark.SUMS < harness.partitions else n - mark.SUMS
            harness.add(other, records)
        if planted:
            case.run().begin(2)  # unnoticed
            return
        error = raises(TargetWentBackError, lambda: case.run().begin(2))
        assert "the 2 rows of the finished epoch(s) 1." in error.what
        assert "only sums" in error.what


class Forgetful(WalCommitter):
    """Forgets all that is committed, as releases before did."""

    def forget(self, state: JobState) -> None:
        version, _ = self._ledger(state.job)
        self._register.swap_text(ledger_key(state.job), version, to_text(set()))


class ForgetfulSink(KeyedSink):
    def committer(self) -> ByProtocol:
        return ByProtocol({"wal": Forgetful(self._options, store_of(self._options))}, "wal")


@contextmanager
def open_forgetful() -> Iterator[TopicHarness]:
    with open_restored("wal-foreign-register") as harness:
        harness.new_sink = partial(ForgetfulSink, harness.options, KEYED, co_commit=False)
        yield harness


def test_a_ledger_that_keeps_nothing_of_the_last_epoch_is_found() -> None:
    [rule] = [check for check in RULES if check.rule.startswith("a_register_that_went_back")]
    with pytest.raises(AssertionError, match="RegisterLostError"):
        run_check(open_forgetful, rule)


def test_a_lost_end_of_the_last_epoch_alone_is_told_by_wal_with_its_own_register() -> None:
    """Its mark is of before its transaction."""
    with open_restored("wal") as harness, Case(harness) as case:
        back = _last_epoch(harness, case)
        case.run().begin(2)  # nothing is told before
        back()
        error = raises(TargetWentBackError, lambda: case.run().begin(2))
        assert "the 2 rows of the finished epoch(s) 1." in error.what
        assert "a part may" not in error.what
        case.run(adopt=consent_in(error)).epoch(2, LAST)
        case.run().begin(3)
        case.holds(FIRST, LAST, when="after a lost end of the last epoch, by consent")


@pytest.mark.parametrize("planted_bug", [False, True], ids=["sound", "planted"])
def test_records_of_an_open_transaction_that_a_broker_lost_are_not_decided(
    planted_bug: bool,
) -> None:
    """As by an unclean election. Planted: nobody asks where they end."""
    with open_restored("2pc") as harness, Case(harness) as case:
        assert isinstance(harness, GoingBack)
        run = case.run()
        run.epoch(0, FIRST)
        back = harness.backup()
        shares = run.tasks(1, SECOND)
        back()
        if planted_bug:
            with planted((lookback, "unprepared", lambda own, now: "")):
                raises(NotPreparedError, lambda: run.commit(1, shares))
            return
        error = raises(NotPreparedError, lambda: run.commit(1, shares))
        assert "ends before the last of them" in error.what
        case.run().epoch(1, SECOND)
        case.holds(FIRST, SECOND, when="after a broker lost what was prepared")


def _last_epoch(harness: TopicHarness, case: Case) -> Callable[[], None]:
    assert isinstance(harness, GoingBack)
    run = case.run()
    run.epoch(0, FIRST)
    back = harness.backup()
    run.epoch(1, SECOND)
    return back


def test_a_mark_that_does_not_say_that_records_follow_is_found() -> None:
    sound = lookback.shown
    bug = lookback, "shown", lambda options, given, **_: sound(options, given)
    with (
        planted(bug, match="TargetWentBackError"),
        open_restored("wal") as harness,
        Case(harness) as case,
    ):
        _last_epoch(harness, case)()
        raises(TargetWentBackError, lambda: case.run().begin(2))
