"""Each server is killed in the midst of a batch, and is away for a minute: no epoch is torn."""

from __future__ import annotations

import time

import pytest

from abs_services import KafkaService, PostgresService
from abs_services.contracts import S3Service, Service
from tests.outage import Away, killed
from tests.spark.drivers import Driver, until
from tests.spark.epoch_world import EpochWorld, once

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("store"),  # drivers inherit the bucket's keys
]

AWAY_SECONDS = 60.0
ROWS = 400
AT_ONCE, AWAY = 1, 2
"""The batch in whose midst the server is killed, and the one that comes while it is away."""


@pytest.fixture(params=["postgres", "kafka", "s3"])
def server(
    request: pytest.FixtureRequest, postgres: PostgresService, kafka: KafkaService, store: S3Service
) -> Service:
    """The one that is killed."""
    servers: dict[str, Service] = {"postgres": postgres, "kafka": kafka, "s3": store}
    return servers[request.param]


def test_no_epoch_is_torn_by_a_server_that_is_killed_in_its_midst_and_away_for_a_minute(
    world: EpochWorld, server: Service
) -> None:
    with Driver(
        world.job(continuous=True), world.files.folder / "waits", world.files.url
    ) as driver:
        world.files.add_files(range(AT_ONCE), ROWS)
        driver.wait_until(lambda: noted(world, "commits", 0), "it is idle")
        with Away(server, killed, 2 * AWAY_SECONDS) as outage:
            world.files.add_files(range(AT_ONCE, AWAY), ROWS)
            driver.wait_until(lambda: noted(world, "offsets", AT_ONCE), "the batch has begun")
            outage.begin()
            world.files.add_files(range(AWAY, AWAY + 1), ROWS)
            over = time.monotonic() + AWAY_SECONDS
            driver.wait_until(
                lambda: time.monotonic() > over, "a minute is over", 2 * AWAY_SECONDS, every=0.2
            )
            assert not noted(world, "commits", AWAY)
        driver.wait_until(lambda: noted(world, "commits", AWAY), "it has gone on")
    expected = once([number * 1000 + row for number in range(AWAY + 1) for row in range(ROWS)])
    until(lambda: not world.left_behind(), "nothing is left behind")
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}


def noted(world: EpochWorld, folder: str, batch: int) -> bool:
    """Whether Spark's checkpoint has it."""
    return (world.checkpoint / folder / str(batch)).exists()
