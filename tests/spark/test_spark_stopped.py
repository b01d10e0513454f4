"""A query that ends in the middle of a batch leaves nothing open; its restart is exactly once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_core.patience import DEFAULT_PATIENCE
from abs_services import KafkaService
from abs_spark.datasource.kafka import KafkaDataSource
from tests import sample
from tests.kit.kafka_modes import open_variant
from tests.spark.bucket import Bucket
from tests.spark.drivers import Session, interpreter, until
from tests.spark.jobs import stopped
from tests.spark.jobs.stopped import NOT_REGISTERED, OTHER_THREAD, ROUTES, TERMINATED, WAYS, Held
from tests.spark.other_sparks import OLDEST
from tests.spark.test_spark_s3 import put_file
from tests.spark.world import JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1800)]

TARGETS = ("kafka", "postgres", "s3")
EPOCHS = ("first", "later")
CASES = [
    *product(TARGETS, ROUTES, WAYS, EPOCHS),
    *product(["postgres"], ROUTES, [TERMINATED, OTHER_THREAD], ["later"]),
    ("postgres", "format", NOT_REGISTERED, "later"),
]
TODAY = sample.cut(CASES, 1, "queries that end in a batch")


@dataclass(frozen=True)
class Aim:
    """A target, and how it is looked at.

    Args:
        options: of the sink.
        left: what it holds for the job that is not committed.
        ids: the ids that a reader gets, each as often as it is there.
    """

    format: str
    options: dict[str, str]
    left: Callable[[], Sequence[object]]
    ids: Callable[[], Counter[int]]

    @property
    def holds_what_no_task_has_reported(self) -> bool:
        """Whether the target keeps what a task has begun, when the task and its connection are gone."""
        return self.format != "abs-postgres"


@pytest.fixture
def aim(request: pytest.FixtureRequest) -> Iterator[Aim]:
    if request.param == "kafka":
        yield from _kafka(request.getfixturevalue("kafka"))
    elif request.param == "postgres":
        world: World = request.getfixturevalue("new_world")("2pc")
        options = {"dbtable": "t", "url": world.url}

        def ids() -> Counter[int]:
            return Counter(row[0] for row in world.rows().elements())

        yield Aim("abs-postgres", options, world.left_behind, ids)
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        yield Aim("abs-s3", bucket.options, bucket.in_doubt, bucket.ids)


def _kafka(kafka: KafkaService) -> Iterator[Aim]:
    kafka.start()
    with open_variant(kafka.bootstrap, "2pc") as target:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": target.topic,
            "registertopic": target.options.registertopic,
        }

        def ids() -> Counter[int]:
            assert target.hidden() == 0, "a reader stands still before the end of the topic"
            return Counter(int(key or b"") for key, _ in target.records())

        def left() -> Sequence[object]:
            # A broker that has just started does not list its transactions at once.
            return DEFAULT_PATIENCE.retry(lambda: target.leftovers(JOB))

        yield Aim("abs-kafka", options, left, ids)
    close_clusters()


@pytest.mark.parametrize(
    ("aim", "route", "way", "epoch"),
    [pytest.param(*case, marks=() if case in TODAY else pytest.mark.campaign) for case in CASES],
    indirect=["aim"],
)
def test_a_query_that_ends_within_a_batch_leaves_nothing_open(
    aim: Aim, route: str, way: str, epoch: str, spark: SparkSession, tmp_path: Path
) -> None:
    end_within_a_batch(aim, route, way, epoch, spark, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("aim", ["postgres"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_neither_does_one_on_the_oldest_release(
    aim: Aim, way: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OLDEST.use(monkeypatch)
    end_within_a_batch(aim, "epoch", way, "later", spark, tmp_path)


def end_within_a_batch(
    aim: Aim, route: str, way: str, epoch: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Start a query, end it so while it writes, and start it again."""
    spark.dataSource.register(KafkaDataSource)
    gate = tmp_path / "gate"
    # In the first epoch no task reports: then nothing but the register tells whose run it is.
    none_reports = epoch == EPOCHS[0] and aim.holds_what_no_task_has_reported
    tasks = (0, 1) if none_reports else (1,)
    held = Held(str(tmp_path), aim.format, aim.options, JOB, route, way, tasks, none_reports)
    before: list[int] = []
    if epoch == EPOCHS[0]:
        gate.touch()
    expected = put_file(tmp_path / "input", 0)
    with driver(held) as running:
        if epoch != EPOCHS[0]:
            done = tmp_path / "checkpoint" / "commits" / "0"
            running.wait_until(done.exists, "the first epoch is done", every=0.1)
            before = list(expected)
            gate.touch()
            expected += put_file(tmp_path / "input", 1)
        # A task has pre-committed, or all have begun to; at least one goes on writing.
        running.wait_until(lambda: len(aim.left()) >= len(tasks), "a task has written", every=0.1)
        if way == TERMINATED:
            running.terminate()
        (tmp_path / "stop").touch()
        running.end()
        until(lambda: not aim.left(), "what the query had open is ended", 60, every=0.1)
    assert aim.ids() == Counter(before)
    gate.unlink()
    stopped.start(spark, held, once=True).awaitTermination()
    assert aim.ids() == Counter(expected)
    assert not aim.left()


def driver(held: Held) -> Session:
    """The query in a process of its own."""
    folder = Path(held.folder)
    settings = folder / "settings.json"
    settings.write_text(held.to_json())
    python = interpreter()
    environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [python, stopped.__file__, str(settings)]
    return Session(command, folder / "driver", environment, "driver.log")
