"""Each server is away for minutes under a running query, which waits, says so, and goes on.

By ``abs_spark.epoch`` with three targets, and by each format with one. For the
campaign; without Spark and for seconds, ``make test`` has it: see ``tests/sinks/test_short_outage.py``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from abs_services import KafkaService, PostgresService
from abs_services.contracts import S3Service, Service
from tests import sample
from tests.outage import Away, Way, standing_still, stopped
from tests.spark.drivers import Driver, until
from tests.spark.epoch_world import JOB, EpochWorld, once
from tests.spark.jobs.stream_files import Job

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("store"),  # drivers inherit the bucket's keys
]

AWAY_SECONDS = 120.0
SHORT_SECONDS = 6.0
ROWS = 40
TARGETS = ("postgres", "kafka", "s3")
SINKS = {"postgres": "payments", "kafka": "alerts", "s3": "items"}
"""The name of each target's sink in the world's epoch."""

BY_FORMAT = list(product(TARGETS, (stopped, standing_still)))
TODAY = sample.cut(BY_FORMAT, 1, "servers away under a format")
PROTOCOLS = ("2pc", "wal", "idempotent")


@dataclass(frozen=True)
class Query:
    """A query that runs until it is stopped, and the targets that it writes to.

    Args:
        left: what the targets hold for it that is not committed.
        sinks: the names of what it writes, in ``EpochWorld.ids``.
    """

    job: Job
    left: Callable[[], Sequence[object]]
    sinks: Sequence[str]


@pytest.fixture
def away(
    request: pytest.FixtureRequest, postgres: PostgresService, kafka: KafkaService, store: S3Service
) -> Service:
    """The server that goes away."""
    servers: dict[str, Service] = {"postgres": postgres, "kafka": kafka, "s3": store}
    return servers[request.param]


@pytest.mark.campaign
@pytest.mark.parametrize("way", [stopped, standing_still])
@pytest.mark.parametrize("away", TARGETS, indirect=True)
def test_a_query_to_three_targets_waits_for_a_server_that_is_away_for_two_minutes(
    world: EpochWorld, away: Service, way: Way
) -> None:
    query = Query(world.job(continuous=True), world.left_behind, list(SINKS.values()))
    outlasts(world, query, away, way, AWAY_SECONDS)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("away", "target", "way"), [(t, t, way) for t, way in BY_FORMAT], indirect=["away"]
)
def test_a_query_by_a_format_waits_for_its_server_that_is_away_for_two_minutes(
    world: EpochWorld, away: Service, target: str, way: Way
) -> None:
    outlasts(world, by_format(world, target), away, way, AWAY_SECONDS)


@pytest.mark.parametrize(
    ("away", "target", "way"),
    [
        pytest.param(*(t, t, way), marks=() if (t, way) in TODAY else pytest.mark.campaign)
        for t, way in BY_FORMAT
    ],
    indirect=["away"],
)
@pytest.mark.campaign
def test_a_query_by_a_format_goes_on_after_its_server_was_away_for_seconds(
    world: EpochWorld, away: Service, target: str, way: Way
) -> None:
    outlasts(world, by_format(world, target), away, way, SHORT_SECONDS)


def by_format(world: EpochWorld, target: str) -> Query:
    """The query of one sink of the world's, by its format; its protocol goes by the date."""
    [protocol] = sample.cut(PROTOCOLS, 1, f"protocol of a format whose {target} is away")
    job = world.job(protocol, continuous=True)
    [sink] = [each for each in job.sinks if each["name"] == SINKS[target]]
    options = {**sink["options"], "job": JOB}
    if (target, protocol) == ("postgres", "idempotent"):
        world.files.alter("add primary key (id)")
        options |= {"write": "upsert", "key": "id"}
    left = {
        "postgres": world.files.left_behind,
        "kafka": lambda: world.kafka.leftovers(JOB),
        "s3": world.bucket.in_doubt,
    }
    select = sink.get("select", [])
    one = replace(job, sinks=[], format=sink["format"], options=options, select=select)
    return Query(one, left[target], [SINKS[target]])


def outlasts(world: EpochWorld, query: Query, away: Service, way: Way, seconds: float) -> None:
    """The rule: the query is up for as long as the server is away, and then writes its rows once."""
    commits = world.checkpoint / "commits"
    folder = world.files.folder / "waits"
    world.files.add_files(range(1), ROWS)
    url = world.files.url if SINKS["postgres"] in query.sinks else None
    with Driver(query.job, folder, url) as driver:
        driver.wait_until(lambda: (commits / "0").exists(), "it is idle")
        with Away(away, way, 2 * seconds) as outage:
            outage.begin()
            written_while_away(world, driver, seconds)
        driver.wait_until(lambda: (commits / "1").exists(), "it has gone on")
        log = driver.log
    expected = once([number * 1000 + row for number in range(2) for row in range(ROWS)])
    until(lambda: not query.left(), "nothing is left behind")
    found: dict[str, Counter[int]] = world.ids()
    assert {name: found[name] for name in query.sinks} == dict.fromkeys(query.sinks, expected)
    assert seconds < AWAY_SECONDS or "WARNING abs_core.waiting" in log, log[-4000:]


def written_while_away(world: EpochWorld, driver: Driver, seconds: float) -> None:
    """A file comes, and the query stays up for as long as the server is away."""
    world.files.add_files(range(1, 2), ROWS)
    over = time.monotonic() + seconds
    driver.wait_until(lambda: time.monotonic() > over, "it is over", seconds + 60, every=0.2)
    assert not (world.checkpoint / "commits" / "1").exists()
