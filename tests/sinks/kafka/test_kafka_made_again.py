"""A topic that is deleted and made again at any step of an epoch: no record is lost in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest

from abs_core.model import Committable
from abs_services import KafkaService
from abs_sinks.kafka import lookback, wal
from abs_sinks.kafka.places import Places, begins_of
from abs_testing.check_sink import run_check
from abs_testing.checks import CHECKS
from abs_testing.rules import any_sink, remaking, remaking_two_step
from tests.kit.kafka_modes import open_variant
from tests.planted import Defect, planted

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

RULES = {check.rule: check for check in CHECKS if check.applies in (remaking, remaking_two_step)}
BEFORE = "rows_of_a_target_that_is_made_again_before_the_first_decision_are_not_lost"
COMMIT = "a_target_that_is_made_again_between_a_decision_and_its_commit_is_told"
END = "a_target_that_is_made_again_between_a_commit_and_its_end_is_told"
BESIDE = "rows_of_an_epoch_may_be_written_before_the_one_before_is_committed"

TWO_STEP = [
    "2pc",
    "2pc-foreign-register",
    "2pc-foreign-register-librdkafka",
    "wal-foreign-register",
]
WAYS = [*TWO_STEP, "idempotent", "wal"]


def test_there_are_three_rules() -> None:
    assert sorted(RULES) == sorted([BEFORE, COMMIT, END])


CASES = [
    pytest.param(way, rule, id=f"{way}-{rule}")
    for way in WAYS
    for rule in RULES
    if rule == BEFORE or way in TWO_STEP
]


@pytest.mark.parametrize(("way", "rule"), CASES)
def test_a_topic_that_is_made_again_keeps_the_rule(
    kafka: KafkaService, way: str, rule: str
) -> None:
    kafka.start()
    # idempotent hides no records, and tells it all the same.
    check = replace(RULES[rule], applies=any_sink if way == "idempotent" else RULES[rule].applies)
    assert run_check(partial(open_variant, kafka.bootstrap, way), check)


def _no_ids(sound: Callable[[Committable], Places]) -> classmethod[Places, ..., Places]:
    return classmethod(lambda cls, committable: replace(sound(committable), ids={}))


def _from_anywhere(handles: Sequence[Places], *, after: int) -> Mapping[tuple[str, int], int]:
    return begins_of(handles, after=-1)


UNSEEN: Defect = (lookback, "unprepared", lambda own, now: "")
NO_IDS: Defect = (Places, "of", _no_ids(Places.of))
FROM_ANYWHERE: Defect = (lookback, "begins_of", _from_anywhere)
NONE_KEPT: Defect = (wal, "with_ids", lambda committable, ids: committable)


@pytest.mark.parametrize(
    ("way", "rule", "bug"),
    [
        pytest.param("2pc", BEFORE, UNSEEN, id="what a task has written is not compared"),
        pytest.param("idempotent", BEFORE, NO_IDS, id="handles tell no ids"),
        pytest.param("2pc", END, NO_IDS, id="the mark has the id of that moment"),
        pytest.param("wal-foreign-register", END, NONE_KEPT, id="segments tell no ids"),
        pytest.param(
            "2pc", BESIDE, FROM_ANYWHERE, id="all is taken for written after the last end"
        ),
    ],
)
def test_the_rule_finds_that(kafka: KafkaService, way: str, rule: str, bug: Defect) -> None:
    kafka.start()
    [check] = [each for each in CHECKS if each.rule == rule]
    with planted(bug, match=rule):
        run_check(partial(open_variant, kafka.bootstrap, way), replace(check, applies=any_sink))
