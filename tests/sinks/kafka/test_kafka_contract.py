"""The sink keeps the contract, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest

from abs_core.crash import CrashPoint
from abs_core.testing import check_sink
from abs_core.testing.check_crashes import Killed, Nursery, check_crash_pairs, check_crashes
from abs_services import KafkaService
from abs_sinks.kafka.testing import Variant, open_topic

pytestmark = pytest.mark.services

CO_COMMIT = {CrashPoint.INSIDE_CO_COMMIT, CrashPoint.AFTER_CO_COMMIT}
WORST = (
    CrashPoint.AFTER_PRE_COMMIT,
    CrashPoint.AFTER_DECIDE,
    CrashPoint.BETWEEN_COMMITS,
    CrashPoint.AFTER_COMMIT,
    CrashPoint.AFTER_ABANDON,
    CrashPoint.BETWEEN_ABORTS,
)
"""Where a process dies between two effects in the target."""

OWN, FOREIGN = Variant("2pc"), Variant("2pc", own_register=False)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(FOREIGN, id=FOREIGN.name),
        pytest.param(OWN, id=OWN.name, marks=pytest.mark.campaign),
    ],
)
def test_the_sink_keeps_every_rule(kafka: KafkaService, variant: Variant) -> None:
    kafka.start()
    assert len(check_sink(partial(open_topic, kafka.bootstrap, variant))) > 30


@pytest.mark.timeout(600)
def test_a_crash_between_two_effects_loses_and_doubles_nothing(
    kafka: KafkaService, nursery: Nursery
) -> None:
    kafka.start()
    # Pairs of a crash and one while recovering from it; all of them are in the campaign.
    pairs = [
        (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.BETWEEN_ABORTS),
        (CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS),
        (CrashPoint.AFTER_COMMIT, CrashPoint.AFTER_ABANDON),
    ]
    killed = check_crash_pairs(partial(open_topic, kafka.bootstrap, OWN), nursery, pairs)
    _report(killed)
    assert set(WORST) == set(killed.points)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    kafka: KafkaService, nursery: Nursery
) -> None:
    kafka.start()
    killed = check_crashes(partial(open_topic, kafka.bootstrap, OWN), nursery)
    _report(killed)
    assert set(killed.points) == set(CrashPoint) - CO_COMMIT


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_crash_while_recovering_loses_and_doubles_nothing(
    kafka: KafkaService, nursery: Nursery
) -> None:
    kafka.start()
    opener = partial(open_topic, kafka.bootstrap, FOREIGN)
    _report(check_crash_pairs(opener, nursery, product(WORST, WORST)))


def _report(killed: Killed) -> None:
    print(f"{killed.histories} jobs, {killed.points.total()} kills, {len(killed.points)} points")
