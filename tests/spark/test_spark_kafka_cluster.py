"""A query from Kafka to Kafka while the brokers are started anew, one after the other.

For the campaign; in ``make test`` ``tests/sinks/kafka/test_kafka_cluster.py`` has it of the sink alone,
and ``tests/sources/kafka/test_kafka_source_cluster.py`` of the source alone.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kafka.errors import KafkaTimeoutError

from abs_clients.kafka.cluster import close_clusters
from abs_core.errors import UnavailableError
from tests import sample
from tests.kit.kafka_cluster import NativeKafkaCluster
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.drivers import Driver
from tests.spark.kafka_world import KafkaWorld

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(900),
]

EVERY = [
    (mode, end)
    for mode in ("2pc", "2pc-librdkafka", "wal", "idempotent")
    for end in ("stop", "kill")
]


@pytest.mark.campaign
@pytest.mark.parametrize("way", sample.members(EVERY, 1, of="ways of brokers"), ids="-".join)
def test_a_query_runs_on_while_each_broker_in_turn_goes_and_comes_back(
    brokers: NativeKafkaCluster, tmp_path: Path, way: tuple[str, str]
) -> None:
    """It does not fail, and so needs nobody who starts it again; each record is there once."""
    mode, end = way
    with open_variant(brokers.bootstrap, mode) as target:
        world = KafkaWorld(tmp_path, brokers, KafkaSourceHarness(brokers.bootstrap), target)
        added: list[object] = [*world.source.add(60)]
        looks = [""]

        def all_is_written() -> bool:
            target.look_anew()  # no reader's own memory of where leaders were
            try:
                found = len(target.records())
            except (UnavailableError, KafkaTimeoutError) as error:
                # To this look at it, not to the query.
                found, seen = 0, f"{type(error).__name__}: {error}"
            else:
                seen = f"{found} of {len(added)} records"
            if seen != looks[-1]:
                looks.append(seen)
                print(time.strftime("%H:%M:%S"), seen)
            return found >= len(added)

        with Driver(world.job(continuous=True, scramble=True), tmp_path / "driver") as driver:
            driver.wait_until(lambda: len(world.epochs_done()) >= 2, "two epochs are done")
            for broker in brokers.brokers:
                getattr(broker, end)()
                added += world.source.add(60)
                driver.wait_until(all_is_written, "all is written", every=1.0)
                broker.start()
                added += world.source.add(60)
            driver.wait_until(all_is_written, "all is written", every=1.0)
            driver.kill()
        world.holds(added, f"after {end} of each broker in turn")
    close_clusters()
