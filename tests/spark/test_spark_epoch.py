"""One micro-batch in three targets under one decision, on this Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.errors import ConfigError, OptionError
from abs_spark.foreach.explain import explanation
from abs_spark.foreach.function import Epoch
from abs_spark.foreach.spec import EpochSink
from abs_spark.foreach.tasks import Obscured
from tests import sample
from tests.spark.epoch_world import EpochWorld, once

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(8)]


def ids(numbers: range, rows: int = 40) -> list[int]:
    return [number * 1000 + row for number in numbers for row in range(rows)]


def test_an_epoch_is_in_all_three_targets_once(spark: SparkSession, world: EpochWorld) -> None:
    world.files.add_files(range(3))
    world.run(spark)
    expected = once(ids(range(3)))
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}
    assert [(s.number, s.name) for s in world.register().sinks] == [
        (0, "payments"),
        (1, "alerts"),
        (2, "items"),
    ]
    assert world.register().frontier == 2


def test_a_replayed_epoch_changes_no_target(spark: SparkSession, world: EpochWorld) -> None:
    world.files.add_files(range(2))
    world.run(spark)
    world.files.forget_commits(2)
    world.files.add_files(range(2, 3))
    world.run(spark)
    expected = once(ids(range(3)))
    assert world.ids() == {"payments": expected, "alerts": expected, "items": expected}


def counting_jobs(function: Epoch, jobs: list[int]) -> Callable[[DataFrame, int], None]:
    """The function, and how many Spark jobs its query had after each of its calls."""

    def write(df: DataFrame, batch: int) -> None:
        function(df, batch)
        group = df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        jobs.append(len(df.sparkSession.sparkContext.statusTracker().getJobIdsForGroup(group)))

    return write


def test_a_replayed_epoch_of_a_stateless_query_costs_no_job(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(2))
    world.run(spark, world.epoch(world.postgres()))
    world.files.forget_commits(1)
    jobs: list[int] = []
    world.run(spark, counting_jobs(world.epoch(world.postgres()), jobs))
    assert jobs == [0]
    assert world.ids()["payments"] == once(ids(range(2)))


def test_a_replayed_epoch_of_a_stateful_query_is_read_so_that_its_state_is_kept(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(2))

    def run(jobs: list[int]) -> None:
        rows = world.stream(spark).dropDuplicates(["id"]).writeStream
        query = rows.foreachBatch(counting_jobs(world.epoch(world.postgres()), jobs))
        query = query.option("checkpointLocation", str(world.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    run([])
    world.files.forget_commits(1)
    world.files.add_files(range(2, 3))
    jobs: list[int] = []
    run(jobs)
    assert jobs[0] > 0
    assert world.ids()["payments"] == once(ids(range(3)))


def test_each_sink_gets_its_rows_and_columns_of_one_pass(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1))
    sinks = [
        world.postgres(where="id < 10"),
        world.to_kafka(where="nullif(id, 7) > 4"),  # NULL for 7, which is left out
        world.to_s3(select=["id", "upper(word) as word"]),
    ]
    jobs: list[int] = []
    world.run(spark, counting_jobs(world.epoch(*sinks), jobs))
    found = world.ids()
    assert found["payments"] == once(range(10))
    assert found["alerts"] == once([n for n in range(40) if n > 4 and n != 7])
    assert found["items"] == once(range(40))
    assert set(world.bucket.frame(world.bucket.names())["word"]) == {f"WORD {n}" for n in range(40)}
    assert jobs == [1]


def test_a_transform_is_any_function_of_the_micro_batch(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(2))
    counted = world.to_s3(
        transform=lambda df: df.groupBy((df.id % 2).alias("id")).count().select("id")
    )
    world.run(spark, world.epoch(world.postgres(), counted))
    found = world.ids()
    assert found["payments"] == once(ids(range(2)))
    assert found["items"] == {0: 2, 1: 2}


@pytest.mark.parametrize(
    "select", [["explode(array(id)) as id"], ["sum(id) as id"], ["row_number() over (order by id)"]]
)
def test_what_is_not_made_of_one_row_is_refused_by_name(
    spark: SparkSession, world: EpochWorld, select: list[str]
) -> None:
    world.files.add_files(range(1))
    with pytest.raises(StreamingQueryException, match=r"items.*not computed from one row alone"):
        world.run(spark, world.epoch(world.postgres(), world.to_s3(select=select)))
    assert not world.ids()["payments"]


def test_a_sink_can_be_added_and_taken_out_between_runs(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1))
    world.run(spark, world.epoch(world.postgres()))
    world.files.add_files(range(1, 2))
    world.run(spark, world.epoch(world.postgres(), world.to_kafka()))
    world.files.add_files(range(2, 3))
    world.run(spark, world.epoch(world.postgres(), world.to_s3()))
    found = world.ids()
    assert found["payments"] == once(ids(range(3)))
    assert found["alerts"] == once(ids(range(1, 2)))
    assert found["items"] == once(ids(range(2, 3)))
    sinks = [(s.number, s.name, s.since, s.until) for s in world.register().sinks]
    assert sinks == [(0, "payments", 0, None), (1, "alerts", 1, 1), (2, "items", 2, None)]


def test_a_second_call_in_one_batch_is_refused(spark: SparkSession, world: EpochWorld) -> None:
    world.files.add_files(range(1))
    function = world.epoch(world.postgres())

    def twice(df: DataFrame, batch: int) -> None:
        function(df, batch)
        function(df, batch)

    with pytest.raises(StreamingQueryException, match="This run has already written"):
        world.run(spark, twice)
    assert world.ids()["payments"] == once(ids(range(1)))


def test_a_function_may_call_for_two_jobs_each_with_a_certificate_of_its_own(
    spark: SparkSession, world: EpochWorld
) -> None:
    def run() -> None:
        payments = world.epoch(world.postgres())
        archive = world.epoch(world.to_s3(), job="archive")

        def both(df: DataFrame, batch: int) -> None:
            payments(df, batch)
            archive(df, batch)

        world.run(spark, both)

    world.files.add_files(range(2))
    run()
    world.files.forget_commits(1)
    world.files.add_files(range(2, 3))
    run()
    found = world.ids()
    assert found["payments"] == found["items"] == once(ids(range(3)))
    names = {path.name for path in (world.checkpoint / "abs").iterdir() if path.suffix == ".json"}
    assert names == {"certificate.json", "certificate-archive.json"}


def test_a_job_under_another_name_is_refused_also_beside_no_other(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1))
    world.run(spark, world.epoch(world.postgres()))
    world.files.add_files(range(1, 2))
    with pytest.raises(StreamingQueryException, match="belongs to job job"):
        world.run(spark, world.epoch(world.postgres(), job="renamed"))
    assert world.ids()["payments"] == once(ids(range(1)))


def test_a_function_may_leave_out_batches(spark: SparkSession, world: EpochWorld) -> None:
    world.files.add_files(range(4))
    function = world.epoch(world.postgres())
    world.run(spark, lambda df, batch: function(df, batch) if batch % 2 else None)
    assert world.ids()["payments"].total() == 80
    assert world.register().frontier == 3


def run_complete(spark: SparkSession, world: EpochWorld, *sinks: EpochSink) -> None:
    """A running count of each third of the ids; those of which there are more than 27."""
    third = world.stream(spark).selectExpr("cast(id % 3 as string) as word")
    counts = third.groupBy("word").count().where("count > 27").writeStream.outputMode("complete")
    query = counts.foreachBatch(world.epoch(*sinks))
    query = query.option("checkpointLocation", str(world.checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def test_complete_mode_is_refused_where_the_content_cannot_be_replaced_at_once(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1))
    table = {"url": world.files.url, "dbtable": "t", "protocol": "wal"}
    first = abs_spark.sink("abs-postgres", table, name="first")
    apart = abs_spark.sink("abs-postgres", {**table, "stateschema": "other"}, name="apart")
    for sinks, why in (
        ([world.to_s3()], "sink items cannot replace its content"),
        ([world.postgres()], "sink payments cannot replace its content"),
        ([first, apart], "do not share a transaction"),
    ):
        with pytest.raises(StreamingQueryException, match=why):
            run_complete(spark, world, *sinks)
    assert not any(world.ids().values())


def test_complete_mode_replaces_what_a_table_holds_in_one_decision(
    spark: SparkSession, world: EpochWorld
) -> None:
    url = world.files.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table counts (word text, count bigint)")
        connection.execute("insert into counts values ('of before', 1)")
    sink = abs_spark.sink(
        "abs-postgres", {"url": url, "dbtable": "counts", "protocol": "wal"}, name="counts"
    )

    def found() -> list[tuple[str, int]]:
        with psycopg.connect(url, autocommit=True) as connection:
            query = "select word, count from counts order by word"
            return connection.execute(query).fetchall()

    world.files.add_files(range(1))
    run_complete(spark, world, sink)
    assert found() == [], "a result without rows empties the table"
    world.files.add_files(range(1, 3))
    run_complete(spark, world, sink)
    numbers = ids(range(3))
    expected = [(str(n), sum(1 for i in numbers if i % 3 == n)) for n in range(3)]
    assert found() == expected
    world.files.forget_commits(2)
    run_complete(spark, world, sink)
    assert found() == expected


def test_a_function_that_is_used_again_in_another_mode_and_session_goes_by_that_mode(
    spark: SparkSession, world: EpochWorld
) -> None:
    url = world.files.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table sums (word text primary key, count bigint)")
    options = {"url": url, "dbtable": "sums", "protocol": "wal", "write": "upsert", "key": "word"}
    function = world.epoch(abs_spark.sink("abs-postgres", options))

    def run(session: SparkSession, mode: str) -> list[tuple[str, int]]:
        third = world.stream(session).selectExpr("cast(id % 3 as string) as word")
        writer = third.groupBy("word").count().writeStream.outputMode(mode)
        query = writer.foreachBatch(function).option("checkpointLocation", str(world.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute("select word, count from sums order by word").fetchall()

    world.files.add_files(range(1))
    assert len(run(spark, "update")) == 3
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("insert into sums values ('of before', 1)")
    world.files.add_files(range(1, 2))
    numbers = ids(range(2))
    expected = [(str(n), sum(1 for i in numbers if i % 3 == n)) for n in range(3)]
    assert run(spark.newSession(), "complete") == expected


def test_update_mode_keeps_running_aggregates_current(
    spark: SparkSession, world: EpochWorld
) -> None:
    url = world.files.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table sums (word text primary key, count bigint)")
    world.files.add_files(range(3))
    sink = abs_spark.sink(
        "abs-postgres",
        {"url": url, "dbtable": "sums", "protocol": "wal", "write": "upsert", "key": "word"},
    )
    counts = (
        world.stream(spark).selectExpr("cast(id % 3 as string) as word").groupBy("word").count()
    )
    writer = counts.writeStream.outputMode("update").foreachBatch(world.epoch(sink))
    query = writer.option("checkpointLocation", str(world.checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination()
    with psycopg.connect(url, autocommit=True) as connection:
        found: dict[str, int] = dict(connection.execute("select word, count from sums").fetchall())
    numbers = ids(range(3))
    assert found == {str(n): sum(1 for i in numbers if i % 3 == n) for n in range(3)}


def test_called_outside_of_a_query_is_refused(spark: SparkSession, world: EpochWorld) -> None:
    df = spark.range(3).selectExpr("id", "'x' as word", "current_timestamp() as at")
    with pytest.raises(Exception, match="outside of that batch"):
        world.epoch(world.postgres())(df, 0)
    assert not world.ids()["payments"]


def test_idempotent_beside_another_sink_is_refused(spark: SparkSession, world: EpochWorld) -> None:
    world.files.add_files(range(1))
    world.kafka_options["protocol"] = "idempotent"
    with pytest.raises(OptionError, match="idempotent beside other sinks"):
        world.run(spark)
    assert not world.ids()["payments"]


def test_no_secret_is_in_what_goes_to_tasks_or_is_shown(tmp_path: Path) -> None:

    secret = "hunter2-correct-horse"
    given = {"url": "postgresql://h/d", "dbtable": "t", "password": secret}
    sink = abs_spark.sink("abs-postgres", given)
    function = abs_spark.epoch(sink, checkpointLocation=str(tmp_path))
    assert secret not in repr(sink) + repr(function)
    assert secret.encode() not in pickle.dumps(Obscured({"password": secret}))
    rows = abs_spark.sink(
        "abs-s3", {"path": "s3://bucket/prefix"}, name="s", transform=lambda df: df.limit(1)
    )
    named = abs_spark.sink("abs-postgres", given, name="p")
    function = abs_spark.epoch([named, rows], job="job", checkpointLocation=str(tmp_path))
    sent = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    assert secret.encode() not in sent  # as it goes to a Connect server
    assert repr(cloudpickle.loads(sent)) == repr(function)


def test_a_query_and_its_sinks_are_explained_without_a_secret(
    spark: SparkSession, world: EpochWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    world.files.add_files(range(2))
    function = world.epoch()
    assert "not started" in explanation(function)
    query = world.start(spark, function)
    query.awaitTermination()
    abs_spark.explain(query)
    sent = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    assert repr(cloudpickle.loads(sent)) == repr(function), "also once it has written"
    told = capsys.readouterr().out
    assert "has finished everything up to epoch 1" in told
    assert told.count("protocol 2pc, write append") == 3
    assert told.count("in doubt: nothing") == 3
    for place in (world.bucket.options["path"], world.kafka.topic, 'table "t"'):
        assert place in told
        assert place in "".join(map(repr, function.sinks))
    secret = urlsplit(world.files.url).password
    assert secret
    assert secret not in told + repr(function.sinks) + repr(function)


def test_a_query_that_is_not_ours_is_not_explained(spark: SparkSession, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(tmp_path)).start()
    try:
        with pytest.raises(ConfigError, match="has received no batch"):
            abs_spark.explain(query)
    finally:
        query.stop()


def test_a_location_that_is_not_the_querys_is_refused(
    spark: SparkSession, world: EpochWorld, tmp_path: Path
) -> None:
    world.files.add_files(range(1))
    other = tmp_path / "other"
    function = abs_spark.epoch(world.postgres(), checkpointLocation=str(other))
    with pytest.raises(StreamingQueryException, match="is not a query's checkpoint") as refused:
        world.run(spark, function)
    assert f"This query's is file:{world.checkpoint}" in str(refused.value)
    assert not other.exists()
    assert not world.ids()["payments"]
