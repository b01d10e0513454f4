"""The sink keeps the contract, in every protocol and with both producers, on a real broker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_testing import Opener
from abs_testing.checks import CHECKS
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP
from tests.kit.kafka_modes import open_variant
from tests.sinks.contract import *  # noqa: F403 - the tests
from tests.sinks.contract import Way, in_each

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

C = CrashPoint
TWO_PHASES, WHOLE_EPOCHS = frozenset(C) - CO_COMMIT, frozenset(C) - TWO_STEP
NOTHING_TO_ABORT = WHOLE_EPOCHS - {C.BETWEEN_ABORTS}
"""Points that a job passes; the tasks of ``idempotent`` leave nothing that could be aborted."""
ENDS = ((C.AFTER_PRE_COMMIT, C.BETWEEN_ABORTS), (C.AFTER_DECIDE, C.BETWEEN_COMMITS))
CO_ENDS = ((C.INSIDE_CO_COMMIT, C.AFTER_CO_COMMIT),)


@dataclass(frozen=True)
class Use:
    """How a way is tried."""

    points: frozenset[CrashPoint]
    pairs: tuple[tuple[CrashPoint, CrashPoint], ...] = ()
    sampled: bool = True


USES = {
    "2pc": Use(TWO_PHASES, ENDS),
    "2pc-foreign-register": Use(TWO_PHASES),
    "2pc-foreign-register-librdkafka": Use(TWO_PHASES),
    "wal": Use(WHOLE_EPOCHS, CO_ENDS),
    "wal-librdkafka": Use(WHOLE_EPOCHS),
    "wal-foreign-register": Use(TWO_PHASES, sampled=False),
    "idempotent": Use(NOTHING_TO_ABORT),
    "idempotent-librdkafka": Use(NOTHING_TO_ABORT),
}
SAMPLED = [name for name, use in USES.items() if use.sampled]


def way_of(name: str, use: Use) -> Way:
    rules = sample.hand(CHECKS, SAMPLED.index(name), len(SAMPLED), "kafka") if use.sampled else ()
    crashes = sample.cut(sorted(use.points), 1, f"kafka {name}") if use.pairs else []
    deaths = 2 * len(use.pairs)
    return Way(name, rules, use.points, frozenset(crashes), use.pairs, deaths, at_once=6)


pytest_generate_tests = in_each([way_of(name, use) for name, use in USES.items()])


@pytest.fixture
def opener(kafka: KafkaService, way: Way) -> Opener:
    kafka.start()  # the test before may have left it killed
    return partial(open_variant, kafka.bootstrap, way.name)
