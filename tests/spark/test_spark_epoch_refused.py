"""Table and topic under one decision, and a record that the broker refuses: in both, or in none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import abs_spark
from abs_spark.foreach.spec import EpochSink
from tests import sample
from tests.spark.epoch_world import EpochWorld, once

pytestmark = [pytest.mark.spark, pytest.mark.services]

IDS = once(range(40))


@sample.cases(1)
@pytest.mark.parametrize("protocol", ["wal", "2pc"])
@pytest.mark.parametrize("what", ["time", "topic"])
def test_a_refused_record_is_in_no_target_and_the_corrected_input_in_both(
    spark: SparkSession, world: EpochWorld, tmp_path: Path, protocol: str, what: str
) -> None:
    given = {
        "kafka.bootstrap.servers": world.kafka.bootstrap,
        "registertopic": world.kafka.options.registertopic,
        "protocol": protocol,
        **({"wal": (tmp_path / "wal").as_uri()} if protocol == "wal" else {}),
    }

    def to_kafka(hours: int = 0, topic: str = world.kafka.topic) -> EpochSink:
        select = ["cast(id as string) as key", "cast(id as string) as value"]
        select += [
            f"current_timestamp() + interval {hours} hours as timestamp",
            f"'{topic}' as topic",
        ]
        return abs_spark.sink("abs-kafka", given, name="alerts", select=select)

    world.files.add_files(range(1))
    # An hour ahead is the most that a topic takes; brokers keep some topics for themselves.
    refused = to_kafka(hours=2) if what == "time" else to_kafka(topic="__transaction_state")
    for _ in ("at first", "and again"):
        with pytest.raises(StreamingQueryException, match=r"[Rr]ow 0 of the task"):
            world.run(spark, world.epoch(world.postgres(), refused))
        assert (world.ids()["payments"], world.ids()["alerts"]) == (Counter(), Counter())
    world.run(spark, world.epoch(world.postgres(), to_kafka()))
    assert (world.ids()["payments"], world.ids()["alerts"]) == (IDS, IDS)
