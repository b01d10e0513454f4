"""The sink keeps the contract, in every protocol and with both producers, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pytest

from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_sinks.kafka.columnar.choice import AUTO, LIBRDKAFKA
from abs_testing import Harness, Opener
from abs_testing.checks import CHECKS
from tests import sample
from tests.kit.crash_points import CO_COMMIT, TWO_STEP
from tests.kit.kafka import Variant, open_topic
from tests.kit.kafka_modes import open_attempts, open_log
from tests.sinks.contract import *  # noqa: F403 - the tests
from tests.sinks.contract import Way, in_each

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(600),
    # kafka-python leaves sockets to the collector when a connection ends.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

C = CrashPoint
TWO_PHASES, WHOLE_EPOCHS = frozenset(C) - CO_COMMIT, frozenset(C) - TWO_STEP
NOTHING_TO_ABORT = WHOLE_EPOCHS - {C.BETWEEN_ABORTS}
"""Points that a job passes; the tasks of ``idempotent`` leave nothing that could be aborted."""
ENDS = ((C.AFTER_PRE_COMMIT, C.BETWEEN_ABORTS), (C.AFTER_DECIDE, C.BETWEEN_COMMITS))
CO_ENDS = ((C.INSIDE_CO_COMMIT, C.AFTER_CO_COMMIT),)


@dataclass(frozen=True)
class Use:
    """What opens a harness for a way, given the address of the broker, and how it is tried."""

    opened: Callable[[str], AbstractContextManager[Harness]]
    points: frozenset[CrashPoint]
    pairs: tuple[tuple[CrashPoint, CrashPoint], ...] = ()
    sampled: bool = True


def topic(
    *, own_register: bool = True, producer: str = AUTO
) -> Callable[[str], AbstractContextManager[Harness]]:
    return partial(open_topic, variant=Variant("2pc", own_register, producer))


def log(
    *, own_register: bool = True, producer: str = AUTO
) -> Callable[[str], AbstractContextManager[Harness]]:
    return partial(open_log, variant=Variant("wal", own_register, producer))


USES = {
    "2pc": Use(topic(), TWO_PHASES, ENDS),
    "2pc-foreign-register": Use(topic(own_register=False), TWO_PHASES),
    "2pc-foreign-register-librdkafka": Use(
        topic(own_register=False, producer=LIBRDKAFKA), TWO_PHASES
    ),
    "wal": Use(log(), WHOLE_EPOCHS, CO_ENDS),
    "wal-librdkafka": Use(log(producer=LIBRDKAFKA), WHOLE_EPOCHS),
    "wal-foreign-register": Use(log(own_register=False), TWO_PHASES, sampled=False),
    "idempotent": Use(open_attempts, NOTHING_TO_ABORT),
    "idempotent-librdkafka": Use(partial(open_attempts, producer=LIBRDKAFKA), NOTHING_TO_ABORT),
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
    return partial(USES[way.name].opened, kafka.bootstrap)
