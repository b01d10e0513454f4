"""A query that logs in to Kafka by tokens is killed again and again while they run out."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from abs_clients.kafka.cluster import close_clusters
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.kit.kafka_tokens import TokenKafka
from tests.kit.token_server import TokenServer
from tests.spark.drivers import Driver
from tests.spark.kafka_world import KafkaWorld

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

LIFE, KILLS = 6, 2


@pytest.mark.campaign  # without Spark in `make test`: tests/sinks/kafka/test_kafka_tokens.py
def test_a_killed_query_goes_on_with_new_tokens_and_each_record_is_there_once(
    tmp_path: Path,
) -> None:
    with (
        TokenServer(life=LIFE) as server,
        TokenKafka(server) as kafka,
        open_variant(kafka.bootstrap, "2pc") as target,
    ):
        world = KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)
        access = {f"kafka.{n}": v for n, v in server.settings(kafka.token_bootstrap).items()}
        plain = world.job()
        job = world.job(
            continuous=True,
            attempts=4,
            options={**plain.options, **access},
            source_options={**plain.source_options, **access},
        )
        added: list[object] = []

        def all_is_there() -> bool:
            return len(target.records()) >= len(added)

        for number in range(KILLS + 1):
            added += world.source.add(40)
            since, asked = time.time(), len(server.tokens)
            with Driver(job, tmp_path / f"driver{number}") as driver:
                driver.wait_until(all_is_there, "all is there")
                driver.wait_until(partial(_past, since + 3 * LIFE), "tokens have run out")
                added += world.source.add(10)
                driver.wait_until(all_is_there, "it goes on")
                driver.kill()
                assert server.secret not in driver.log
                assert not [token for token in server.tokens if token in driver.log]
            assert len(server.tokens) > asked + 1, "tokens were renewed"
        with Driver(job, tmp_path / "last") as driver:
            driver.wait_until(lambda: target.hidden() == 0, "nothing is left open")
            driver.kill()
        world.holds(added, "after three drivers were killed")
        close_clusters()


def _past(moment: float) -> bool:
    return time.time() > moment
