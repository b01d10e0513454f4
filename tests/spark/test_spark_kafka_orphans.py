"""A task dies and is tried again: what the first attempt left open holds no reader up for long.

For the campaign; ``make test`` has it of a killed worker without Spark, in
``tests/sinks/kafka/test_kafka_orphans.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_services.native.kafka import NativeKafka
from tests import sample
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.sinks.kafka.test_kafka_two_phase import ALLOWED, ASKED
from tests.spark.drivers import Driver
from tests.spark.kafka_world import KafkaWorld

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(600),
]


@pytest.mark.campaign
@pytest.mark.parametrize("mode", sample.members(["2pc", "2pc-librdkafka"], 1, of="orphans"))
def test_while_the_query_runs_on_readers_see_what_is_committed_soon_after_a_task_has_died(
    kafka: KafkaService, tmp_path: Path, mode: str
) -> None:
    """The transaction of the attempt that died would else be open for 15 minutes."""
    kafka.start()
    with open_variant(kafka.bootstrap, mode) as target:
        world = KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)
        added: list[object] = [*world.source.add(40)]
        died = tmp_path / "died"
        crash = f"{CrashPoint.BEFORE_PRE_COMMIT}#1@{died}"
        job = world.job(continuous=True, attempts=4)
        with Driver(job, tmp_path / "driver", crash=crash) as driver:
            driver.wait_until(lambda: len(world.epochs_done()) >= 3, "all is written")
            assert died.exists()
            added += world.source.add(10)
            driver.wait_until(lambda: target.hidden() == 0, "no reader waits any more")
            driver.wait_until(lambda: len(target.records()) >= len(added), "all is there")
            driver.kill()
        world.holds(added, "after a task was tried again")
    close_clusters()


@pytest.mark.campaign  # without Spark in `make test`: tests/sinks/kafka/test_kafka_two_phase.py
def test_without_a_timeout_the_driver_ends_what_a_dead_task_has_left_after_its_only_epoch(
    tmp_path: Path,
) -> None:
    """No task follows on the machine, and no timeout."""
    with NativeKafka(settings=ALLOWED) as kafka, open_variant(kafka.bootstrap, "2pc") as target:
        world = KafkaWorld(tmp_path, kafka, KafkaSourceHarness(kafka.bootstrap), target)
        added: list[object] = [*world.source.add(40)]
        died = tmp_path / "died"
        plain = world.job()
        job = world.job(
            continuous=True,
            attempts=4,
            options={**plain.options, **ASKED},
            source_options={**plain.source_options, "maxOffsetsPerTrigger": "100000"},
        )
        crash = f"{CrashPoint.BEFORE_PRE_COMMIT}#1@{died}"
        with Driver(job, tmp_path / "driver", crash=crash) as driver:
            driver.wait_until(lambda: len(target.records()) >= len(added), "all is there")
            assert died.exists()
            driver.wait_until(lambda: target.hidden() == 0, "no reader waits any more")
            assert world.epochs_done() in ([], [0])
            driver.kill()
        world.holds(added, "after a task was tried again")
        close_clusters()
