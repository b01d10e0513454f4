"""Protocol 2pc keeps the contract, whoever dies, on a real broker."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_testing import Opener, run_check
from abs_testing.checks import refusals
from abs_testing.rules import checks_in
from tests.kit.crash_points import CO_COMMIT, WORST
from tests.kit.kafka import Variant, open_topic
from tests.sinks.kafka.rules import keeps_every_rule, keeps_sampled_rules, survives, survives_pairs

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

OWN, FOREIGN = Variant("2pc"), Variant("2pc", own_register=False)
ONE_BY_ONE = Variant("2pc", own_register=False, producer="librdkafka")
BOTH = [pytest.param(each, id=each.name) for each in (OWN, FOREIGN)]
ALL = [*BOTH, pytest.param(ONE_BY_ONE, id=ONE_BY_ONE.name)]


@pytest.fixture
def opener(kafka: KafkaService, variant: Variant) -> Opener:
    kafka.start()
    return partial(open_topic, kafka.bootstrap, variant)


@pytest.mark.parametrize("variant", ALL)
def test_the_sink_keeps_the_rules_of_the_day(opener: Opener, variant: Variant) -> None:
    assert keeps_sampled_rules(opener, variant.name)


@pytest.mark.parametrize("variant", ALL)
def test_the_sink_keeps_the_rules_of_a_target_that_refuses(opener: Opener) -> None:
    """Each of them in each way, each day: a decision that cannot be kept is never dealt away."""
    for check in checks_in(refusals):
        run_check(opener, check)


@pytest.mark.campaign
@pytest.mark.parametrize("variant", ALL)
def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    assert keeps_every_rule(opener) > 30


@pytest.mark.parametrize("variant", BOTH[:1])
def test_a_crash_between_two_effects_loses_and_doubles_nothing(opener: Opener) -> None:
    # Pairs of a crash and one while recovering from it; all of them are in the campaign.
    pairs = [
        (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.BETWEEN_ABORTS),
        (CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS),
    ]
    assert survives_pairs(opener, pairs).points.total() == 4


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", ALL)
def test_a_crash_at_any_point_loses_and_doubles_nothing(opener: Opener) -> None:
    assert set(survives(opener, CrashPoint).points) == set(CrashPoint) - CO_COMMIT


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", BOTH)
def test_a_crash_while_recovering_loses_and_doubles_nothing(opener: Opener) -> None:
    points = sorted(WORST - CO_COMMIT)
    survives_pairs(opener, product(points, points))
