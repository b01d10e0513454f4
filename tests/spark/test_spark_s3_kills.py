"""Drivers that write to a bucket and are killed at crash points: every row is there exactly once.

For the campaign; in ``make test`` ``test_spark_epoch_kills`` kills a driver that
writes to a bucket and two more targets, and ``tests/sinks/s3/test_s3_contract.py`` tries the crash
points on the sink alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_core.crash import CrashPoint
from tests.kit.crash_points import CO_COMMIT, RARE, TWO_STEP
from tests.spark.bucket import Bucket
from tests.spark.drivers import killed_at
from tests.spark.jobs.stream_files import Job, run_to_end
from tests.spark.world import Row, World

pytestmark = [pytest.mark.spark, pytest.mark.services]

_NEVER = {
    "2pc": CO_COMMIT,
    # What is composed of so few rows is one file.
    "wal": CO_COMMIT | {CrashPoint.BETWEEN_COMMITS},
    "idempotent": TWO_STEP,
}
FULL = [
    (protocol, point)
    for protocol, never in _NEVER.items()
    for point in CrashPoint
    if point not in never | RARE
]


@pytest.mark.campaign
@pytest.mark.parametrize(("protocol", "point"), FULL)
def test_a_crash_between_two_effects_is_healed(
    protocol: str, point: CrashPoint, bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    crash_and_recover(bucket, protocol, point, spark, tmp_path)


def crash_and_recover(
    bucket: Bucket, protocol: str, point: CrashPoint, spark: SparkSession, folder: Path
) -> None:
    """Kill the driver's whole tree as soon as one of its processes has died at the point."""
    world = World(folder, "", (("protocol", protocol),))
    # At random over two tasks: what is written again lies in other partitions then.
    job = replace(
        world.job,
        format="abs-s3",
        options={**bucket.options, "protocol": protocol, "job": "job"},
        scramble=True,
    )
    expected = world.add_files(range(3))
    # The second time a process gets there, so that there is something to lose; a run starts once.
    killed_at(point, 1 if point is CrashPoint.AFTER_START else 2, job, folder / "first")
    holds_at_most(bucket, protocol, expected)
    run(spark, job)
    holds(bucket, protocol, expected)
    world.forget_commits(2)
    run(spark, job)
    holds(bucket, protocol, expected)


def run(spark: SparkSession, job: Job) -> None:
    run_to_end(spark, job)


def rows_of(bucket: Bucket, protocol: str) -> Counter[Row]:
    """What a reader sees: every file in the folder, or, under idempotent, what manifests name."""
    frame = bucket.frame(bucket.committed() if protocol == "idempotent" else bucket.names())
    if frame.empty:
        return Counter()
    moments = [moment.to_pydatetime() for moment in frame["at"]]
    return Counter(zip(frame["id"], frame["word"], moments, strict=True))


def holds_at_most(bucket: Bucket, protocol: str, expected: Iterable[Row]) -> None:
    extra = rows_of(bucket, protocol) - Counter(expected)
    assert not extra, f"{extra.total()} rows are too many after the crash: {list(extra)[:3]}"


def holds(bucket: Bucket, protocol: str, expected: Sequence[Row]) -> None:
    """Exactly these rows, each once; no other file, no upload, nothing in doubt."""
    found, wanted = rows_of(bucket, protocol), Counter(expected)
    assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"
    assert sorted(bucket.names()) == sorted(bucket.committed()), "a file that nothing names"
    assert (bucket.uploads(), bucket.in_doubt()) == ([], [])
