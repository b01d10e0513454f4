"""A server that stands still for some seconds under an epoch: the epoch goes on, and is there once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.client import close_idle
from abs_core.coordinator import Coordinator, Report
from abs_core.patience import Patience
from abs_core.testing.case import Case, rows
from abs_core.testing.harness import Harness
from abs_services import KafkaService, PostgresService, S3Service
from abs_services.contracts import Service
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_sinks.s3.testing import open_folder
from tests.kit.kafka import Variant as KafkaVariant
from tests.kit.kafka import open_topic
from tests.outage import StandsStill

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

SECONDS = 4.0
LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)


@dataclass(frozen=True)
class Place:
    server: Service
    harness: Harness
    system: str


@pytest.fixture(params=["postgres", "kafka", "s3"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "postgres":
            server: PostgresService = request.getfixturevalue("postgres")
            url = request.getfixturevalue("database")
            harness: Harness = stack.enter_context(open_table(url, VARIANTS["2pc-append"]))
            yield Place(server, harness, "PostgreSQL")
        elif request.param == "kafka":
            broker: KafkaService = request.getfixturevalue("kafka")
            broker.start()
            stack.callback(close_clusters)
            harness = stack.enter_context(open_topic(broker.bootstrap, KafkaVariant("2pc")))
            yield Place(broker, harness, "Kafka")
        else:
            s3: S3Service = request.getfixturevalue("s3")
            for name, value in (("ID", s3.access_key), ("KEY", s3.secret_key)):
                key = "AWS_ACCESS_KEY_ID" if name == "ID" else "AWS_SECRET_ACCESS_KEY"
                request.getfixturevalue("monkeypatch").setenv(key, value)
            close_idle()
            stack.callback(close_idle)
            path = f"s3://{s3.bucket}/{request.getfixturevalue('prefix')}"
            given = {"endpoint": s3.endpoint, "region": s3.region, "protocol": "2pc"}
            harness = stack.enter_context(open_folder(path, given))
            yield Place(s3, harness, "S3")


def test_a_server_that_stands_still_for_seconds_ends_no_epoch(place: Place) -> None:
    case = Case(place.harness)
    run = case.run()
    run.epoch(0, LEFT)
    shares = run.tasks(1, RIGHT)
    patience = Patience(seconds=120.0, system=place.system)
    coordinator = Coordinator(
        run.who, run.store, run.committer, patience=patience, fence=run.sink.fence
    )
    with StandsStill(place.server, SECONDS) as outage:
        outage.begin()
        coordinator.commit(Report(1, shares, None))
        state, _ = coordinator.begin(2)
    assert state.frontier == 1
    run.epoch(2, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the server stood still")
    case.close()
