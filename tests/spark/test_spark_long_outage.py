"""Each server is away for two minutes under a running query, which waits, says so, and goes on."""

from __future__ import annotations

import time

import pytest

from abs_services import KafkaService, PostgresService
from abs_services.contracts import S3Service, Service
from tests.outage import Away, Way, standing_still, stopped
from tests.spark.drivers import Driver, until
from tests.spark.epoch_world import EpochWorld, once

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.campaign,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("store"),  # drivers inherit the bucket's keys
]

AWAY_SECONDS = 120.0
ROWS = 40


@pytest.fixture(params=["postgres", "kafka", "s3"])
def away(
    request: pytest.FixtureRequest, postgres: PostgresService, kafka: KafkaService, store: S3Service
) -> Service:
    """The server that goes away."""
    servers: dict[str, Service] = {"postgres": postgres, "kafka": kafka, "s3": store}
    return servers[request.param]


@pytest.mark.parametrize("way", [stopped, standing_still])
def test_a_query_to_three_targets_waits_for_a_server_that_is_away_for_two_minutes(
    world: EpochWorld, away: Service, way: Way
) -> None:
    world.files.add_files(range(1), ROWS)
    with Driver(
        world.job(continuous=True), world.files.folder / "waits", world.files.url
    ) as driver:
        driver.wait_until(lambda: (world.checkpoint / "commits" / "0").exists(), "it is idle")
        with Away(away, way, 2 * AWAY_SECONDS) as outage:
            outage.begin()
            written_while_away(world, driver)
        driver.wait_until(lambda: (world.checkpoint / "commits" / "1").exists(), "it has gone on")
        log = driver.log
    expected = once([number * 1000 + row for number in range(2) for row in range(ROWS)])
    until(lambda: not world.left_behind(), "nothing is left behind")
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert "WARNING abs_core.waiting" in log, log[-4000:]


def written_while_away(world: EpochWorld, driver: Driver) -> None:
    """A file comes, and the query stays up for as long as the server is away."""
    world.files.add_files(range(1, 2), ROWS)
    over = time.monotonic() + AWAY_SECONDS
    driver.wait_until(
        lambda: time.monotonic() > over, "two minutes are over", AWAY_SECONDS + 60, every=0.5
    )
    assert not (world.checkpoint / "commits" / "1").exists()
