"""The broker is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_services import KafkaService
from tests.kit.kafka import TopicHarness
from tests.kit.kafka_modes import open_variant
from tests.sinks.crashes import *  # noqa: F403 - the suite
from tests.sinks.crashes import killable

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

MODES = (
    "2pc",
    *(
        pytest.param(mode, marks=pytest.mark.campaign)
        for mode in ("2pc-librdkafka", "wal", "idempotent")
    ),
)


@pytest.fixture
def server(kafka: KafkaService) -> Iterator[KafkaService]:
    killable(kafka)
    yield kafka
    kafka.start()


@pytest.fixture(params=MODES)
def harness(request: pytest.FixtureRequest, server: KafkaService) -> Iterator[TopicHarness]:
    with open_variant(server.bootstrap, request.param) as harness:
        yield harness
        assert harness.hidden() == 0
