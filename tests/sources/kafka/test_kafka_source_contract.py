"""The Kafka source under the contract of every source, on a real broker, among transactions."""

from __future__ import annotations

from functools import partial

import pytest

from abs_services import KafkaService
from abs_testing import SOURCE_CHECKS, run_source_check
from abs_testing.checks.sources import SourceCheck, a_changed_past_is_an_error
from tests.kit.kafka_source import open_kafka_source

pytestmark = pytest.mark.services


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_kafka_source(
    check: SourceCheck, kafka: KafkaService, request: pytest.FixtureRequest
) -> None:
    kafka.start()
    if check is a_changed_past_is_an_error:
        request.getfixturevalue("soon_missing")
    run_source_check(partial(open_kafka_source, kafka.bootstrap), check)
