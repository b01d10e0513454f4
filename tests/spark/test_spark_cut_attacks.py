"""Cuts and waits while others change the targets, or while a source is read in parts."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.errors import AbsError, IdentityError
from abs_spark.epochs import cut as cutting
from tests.planted import planted
from tests.sinks.lake.tending import compact, tend_delta
from tests.spark.jobs.stream_files import SCHEMA, ended
from tests.spark.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

ROWS = 5


class LakeJob:
    """A query that writes a table of the lake alone, one file an epoch."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self.spark, self.folder = spark, folder
        self.lake = Lake(kind, folder)
        self.files = 0
        (folder / "in").mkdir()

    @property
    def sink(self) -> Any:
        return abs_spark.sink(self.lake.format, self.lake.given)

    def add(self, number: int = 1) -> None:
        for file in range(self.files, self.files + number):
            rows = ({"id": file * 1000 + row, "word": "w"} for row in range(ROWS))
            (self.folder / "in" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
        self.files += number

    def rows(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "in"))

    def run(self, checkpoint: str = "checkpoint") -> None:
        writer = self.rows().writeStream.format(self.lake.format).options(**self.lake.given)
        at = {"job": "job", "checkpointLocation": str(self.folder / checkpoint)}
        ended(lambda: writer.options(**at).trigger(availableNow=True).start())

    def cut(self, epoch: int) -> Any:
        return abs_spark.cut(self.sink, job="job", epoch=epoch)

    def ids(self, cut: Any) -> Counter[int]:
        return Counter(row["id"] for row in cut.read(self.spark).collect())

    def wanted(self, epoch: int) -> Counter[int]:
        return Counter(file * 1000 + row for file in range(epoch + 1) for row in range(ROWS))


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LakeJob:
    job = LakeJob(spark, tmp_path, request.param)
    job.add(3)
    job.run()
    return job


def tended(job: LakeJob, *, forget: bool) -> None:
    """Compact the table; and remove what older states need."""
    if job.lake.kind == "delta":
        DeltaTable(str(job.lake.folder)).optimize.compact()
        if forget:
            tend_delta(str(job.lake.folder))
        return
    table = load_catalog("default", **job.lake.catalog).load_table("db.t")
    compact(table)
    table.refresh()
    if forget:
        old = [each.snapshot_id for each in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(old).commit()


def test_a_cut_stays_what_it_is_through_a_compaction_and_more_epochs(job: LakeJob) -> None:
    cuts = {epoch: job.cut(epoch) for epoch in range(3)}
    tended(job, forget=False)
    job.add(2)
    job.run()
    for epoch, cut in cuts.items():
        assert job.ids(cut) == job.ids(job.cut(epoch)) == job.wanted(epoch)
    assert job.ids(job.cut(4)) == job.wanted(4)


def test_a_state_that_was_cleaned_away_is_an_error_and_never_fewer_rows(job: LakeJob) -> None:
    cut = job.cut(0)
    tended(job, forget=True)
    for made in (cut, None):
        with pytest.raises(Exception, match=r"no longer has|is gone|not found|No such file"):
            job.ids(made or job.cut(0))
    job.add()
    job.run()
    assert job.ids(job.cut(3)) == job.wanted(3)


def test_a_table_that_was_made_anew_is_not_read_for_the_one_that_was(job: LakeJob) -> None:
    old = job.cut(1)
    if job.lake.kind == "delta":
        shutil.rmtree(job.lake.folder)  # with the register
        job.run("another checkpoint")
    else:
        catalog = load_catalog("default", **job.lake.catalog)
        schema = catalog.load_table("db.t").schema()
        catalog.drop_table("db.t")
        catalog.create_table("db.t", schema)
    with pytest.raises(IdentityError, match="and the job has"):
        job.ids(old)
    if job.lake.kind == "delta":
        assert job.ids(job.cut(2)) == job.wanted(2)


def test_the_check_finds_a_cut_that_does_not_look_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = LakeJob(spark, tmp_path, "delta")
    job.add(3)
    job.run()
    with planted((cutting, "_check_target", lambda *_: None), by=pytest.fail.Exception):
        test_a_table_that_was_made_anew_is_not_read_for_the_one_that_was(job)


def test_after_a_time_is_no_promise_for_a_query_that_takes_its_source_in_parts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the page says of a limit and of availableNow; and that --latest holds after the run."""
    job = LakeJob(spark, tmp_path, "delta")
    job.add(2)
    waits, goes_on = threading.Event(), threading.Event()
    function: Callable[[DataFrame, int], None] = abs_spark.epoch(
        [job.sink], job="job", checkpointLocation=str(tmp_path / "checkpoint")
    )

    def first_stands(df: DataFrame, batch: int) -> None:
        if batch == 0:
            waits.set()
            goes_on.wait(120)
        function(df, batch)

    writer = job.rows().writeStream.foreachBatch(first_stands)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert waits.wait(120)
    job.add(2)  # after the query has fixed what it reads
    moment = datetime.now(UTC)
    goes_on.set()
    query.awaitTermination()
    assert abs_spark.wait(job.sink, job="job", after=moment, timeout=0) == 1
    assert job.ids(job.cut(1)) == job.wanted(1), "files 2 and 3 were there at that time"
    writer.trigger(availableNow=True).start().awaitTermination()
    assert job.ids(job.cut(abs_spark.wait(job.sink, job="job", timeout=0))) == job.wanted(3)


def test_an_epoch_that_does_not_exist_is_told(job: LakeJob) -> None:
    for epoch in (-1, 99):
        with pytest.raises(AbsError):
            job.cut(epoch)
