"""Every call of a job to Kafka, by its position, is dropped, answered in vain, delayed or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest

from abs_core.testing import Calls, Harness, Position, PositionOpener, by_calls, check_positions
from abs_services import KafkaService
from tests.daily import cut
from tests.fault_proxy.kafka import LossyBroker
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_modes import open_attempts, open_log

pytestmark = [
    pytest.mark.services,
    # kafka-python leaves the socket of a refused connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CELLS = ("2pc", "wal", "idempotent")

Opener = Callable[[], AbstractContextManager[TopicHarness]]


@pytest.fixture
def openers(kafka: KafkaService) -> dict[str, Opener]:
    kafka.start()
    return {
        "2pc": partial(open_topic, kafka.bootstrap, Variant("2pc")),
        "wal": partial(open_log, kafka.bootstrap, Variant("wal")),
        "idempotent": partial(open_attempts, kafka.bootstrap),
    }


def by_requests(opener: Opener) -> PositionOpener:
    """Opens a topic whose sinks reach the broker through a relay; it is looked at without it."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        with opener() as harness, LossyBroker(harness.bootstrap) as relay:
            harness.through(relay.bootstrap)
            try:
                yield harness, relay
            finally:
                harness.let_go()

    return opened


WAYS = {"requests": by_requests, "calls": by_calls}

DECIDES = {"requests": ("END_TXN",), "calls": ("compare_and_set", "commit", "co_commit")}
"""Names of the calls by which an epoch is decided and committed."""


def today(cell: str, way: str, found: Sequence[Position]) -> list[Position]:
    """One position of each call that decides or commits, and one of all others."""
    names = DECIDES[way]
    deciding = [each for each in found if each.name.partition(" ")[0] in names]
    kinds = sorted({each.name.partition(" ")[0] for each in deciding})
    chosen = [
        one
        for kind in kinds
        for one in cut(
            [each for each in deciding if each.name.startswith(kind)],
            1,
            f"Kafka {cell} {way} {kind}",
        )
    ]
    rest = [each for each in found if each not in deciding]
    return [*chosen, *cut(rest, 1, f"Kafka {cell} {way}")]


@pytest.mark.parametrize(
    ("cell", "way"), [(cell, *cut(WAYS, 1, f"Kafka {cell}, by position")) for cell in CELLS]
)
def test_a_call_that_is_lost_where_an_epoch_is_decided_or_anywhere_loses_and_doubles_nothing(
    openers: dict[str, Opener], cell: str, way: str
) -> None:
    done = check_positions(WAYS[way](openers[cell]), choose=partial(today, cell, way))
    print(cell, way, done, [str(each) for each in done.tried], sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_call_that_is_lost_at_every_position_loses_and_doubles_nothing(
    openers: dict[str, Opener], cell: str, way: str
) -> None:
    print(cell, way, check_positions(WAYS[way](openers[cell])), sep=": ")
