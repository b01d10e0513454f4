"""`abs doctor` for a job that writes to Kafka."""

from __future__ import annotations

import json

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions
from tests.kit.command import abs_
from tests.kit.kafka import make_topic

pytestmark = pytest.mark.services


@pytest.mark.usefixtures("soon_missing")
def test_a_topic_that_is_missing_is_told_and_one_that_is_there_will_do(
    kafka: KafkaService, topic: str
) -> None:
    server = f"kafka.bootstrap.servers={kafka.bootstrap}"
    arguments = ["doctor", "-o", server, "-o", f"topic={topic}", "--json"]
    missing = abs_(*arguments)
    assert missing.exit_code == 1
    assert "does not exist" in missing.stdout
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    make_topic(KafkaOptions.parse(given).kafka, topic)
    there = abs_(*arguments)
    assert there.exit_code == 0
    assert json.loads(there.stdout)["guarantee"]["protocol"] == "2pc"
    close_clusters()
