"""The kit's rules for a target that goes back, on a broker whose topic lost its last records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from abs_core.errors import TargetWentBackError
from abs_services import Provider, services
from abs_sinks.kafka import lookback
from abs_testing import GoingBack
from abs_testing.case import Case, consent_in, raises, rows
from abs_testing.check_sink import run_check
from abs_testing.checks import CHECKS
from abs_testing.rules import Check, going_back
from tests.kit.kafka import TopicHarness
from tests.kit.kafka_restored import open_restored

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(600)]

RULES = [check for check in CHECKS if check.applies is going_back]
WAYS = ["2pc", "2pc-librdkafka", "2pc-foreign-register", "wal-foreign-register"]
FIRST, SECOND, LAST = rows(0, 3), rows(10, 2), rows(30, 1)


@pytest.fixture(autouse=True)
def _own_broker() -> None:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's log is not ours")


def test_there_are_four_rules() -> None:
    assert len(RULES) == 4


UNTOLD = (
    "wal-foreign-register",
    "a_register_that_went_back_with_its_checkpoint_is_told_by_the_target",
)
"""A ledger forgets what is finished, and no transactional id of it tells a generation."""

CASES = [
    pytest.param(
        check,
        way,
        id=f"{way}-{check.rule}",
        marks=pytest.mark.xfail(strict=True) if (way, check.rule) == UNTOLD else (),
    )
    for way in WAYS
    for check in RULES
]


@pytest.mark.parametrize(("rule", "way"), CASES)
def test_a_topic_that_went_back_keeps_the_rule(rule: Check, way: str) -> None:
    assert run_check(partial(open_restored, way), rule), "the rule does not apply"


@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
def test_a_lost_end_of_the_last_epoch_alone_is_told_by_wal_with_its_own_register(
    monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Its mark is of before its transaction. Planted: that records follow is not noted."""
    if planted:
        sound = lookback.shown
        monkeypatch.setattr(lookback, "shown", lambda options, given, **_: sound(options, given))
    with open_restored("wal") as harness, Case(harness) as case:
        back = _last_epoch(harness, case)
        case.run().begin(2)  # nothing is told before
        back()
        if planted:
            case.run().begin(2)  # unnoticed
            return
        error = raises(TargetWentBackError, lambda: case.run().begin(2))
        assert "the 2 rows of the finished epoch(s) 1." in error.what
        case.run(adopt=consent_in(error)).epoch(2, LAST)
        case.run().begin(3)
        case.holds(FIRST, LAST, when="after a lost end of the last epoch, by consent")


def _last_epoch(harness: TopicHarness, case: Case) -> Callable[[], None]:
    assert isinstance(harness, GoingBack)
    run = case.run()
    run.epoch(0, FIRST)
    back = harness.backup()
    run.epoch(1, SECOND)
    return back
