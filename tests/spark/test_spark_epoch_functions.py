"""Functions of a user's own around ``abs_spark.epoch``: a mistake there is an error, never a loss."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.errors import AbsError
from abs_spark.foreach.function import Epoch
from abs_spark.foreach.process import Known, runs
from abs_spark.foreach.spec import EpochSink
from tests import sample
from tests.spark.epoch_world import SCHEMA
from tests.spark.world import JOB, World

pytestmark = [pytest.mark.spark, pytest.mark.services, sample.tests(6)]

Batch = Callable[[DataFrame, int], None]


@dataclass
class Table:
    """One query, and the table that it writes to.

    Args:
        told: errors that a function has kept to itself.
    """

    spark: SparkSession
    world: World
    told: list[str] = field(default_factory=list)

    def sink(self, table: str = "t", **more: Any) -> EpochSink:
        return abs_spark.sink("abs-postgres", {"url": self.world.url, "dbtable": table}, **more)

    def epoch(self, *sinks: EpochSink, job: str | None = JOB, **more: Any) -> Epoch:
        place = str(self.world.checkpoint)
        return abs_spark.epoch(
            list(sinks) or [self.sink()], job=job, checkpointLocation=place, **more
        )

    def run(self, function: Batch) -> None:
        """The query, a file a batch, until its input is read."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
        writer = reader.parquet(self.world.job.input).writeStream.foreachBatch(function)
        writer = writer.option("checkpointLocation", str(self.world.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def keeping_errors(self, function: Batch) -> Batch:
        """The function in another one, which keeps its errors to itself."""

        def careful(df: DataFrame, batch: int) -> None:
            try:
                function(df, batch)
            except AbsError as error:
                self.told.append(f"{batch}: {error}")
            except Exception as error:  # noqa: BLE001 - Spark's own, around an error of a task
                self.told.append(f"{batch}: {type(error).__name__}")

        return careful

    def batches(self, rows: int = 40) -> list[int]:
        """Which batches are in the table, each whole and once."""
        found = self.world.rows()
        assert set(found.values()) <= {1}
        numbers = sorted({row[0] // 1000 for row in found})
        assert found.total() == rows * len(numbers)
        return numbers


@pytest.fixture
def table(spark: SparkSession, new_world: Callable[[str], World]) -> Table:
    return Table(spark, new_world("2pc"))


def halves(first: Callable[[], Batch], second: Callable[[], Batch]) -> Batch:
    """A function that calls two, each with half of the rows."""

    def both(df: DataFrame, batch: int) -> None:
        first()(df.where("id % 2 = 0"), batch)
        second()(df.where("id % 2 = 1"), batch)

    return both


@pytest.mark.parametrize(
    "way",
    sample.members(product([False, True], [JOB, None]), 1, "two functions of one job"),
    ids=str,
)
def test_two_functions_of_one_job_in_one_batch_are_an_error_at_each_start(
    table: Table, way: tuple[bool, str | None]
) -> None:
    anew, job = way
    table.world.add_files(range(2))

    def function() -> Epoch:
        return table.epoch(job=job)

    even, odd = function(), function()
    both = halves(function, function) if anew else halves(lambda: even, lambda: odd)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="This run has already written"):
            table.run(both)
    assert table.batches(rows=20) == [0], "what the first call wrote"


def test_two_functions_of_one_job_with_sinks_of_their_own_are_an_error(table: Table) -> None:
    with psycopg.connect(table.world.url, autocommit=True) as connection:
        connection.execute("create table t2 (like t)")
    table.world.add_files(range(1))
    first = table.epoch(table.sink(name="first"))
    second = table.epoch(table.sink("t2", name="second"))
    with pytest.raises(StreamingQueryException, match="began with the sinks first"):
        table.run(halves(lambda: first, lambda: second))


def broken_from(batch: int, broken: Callable[[DataFrame], DataFrame], function: Batch) -> Batch:
    """The function, with this batch broken and all others whole."""

    def write(df: DataFrame, number: int) -> None:
        function(broken(df) if number == batch else df, number)

    return write


def in_a_task(df: DataFrame) -> DataFrame:
    return df.selectExpr("if(id % 1000 = 7, raise_error('boom'), id) as id", "word", "at")


def in_the_driver(df: DataFrame) -> DataFrame:
    return df.withColumnRenamed("word", "wurd")


@sample.cases(1)
@pytest.mark.parametrize("broken", [in_a_task, in_the_driver])
def test_a_batch_whose_error_is_kept_from_spark_is_refused_to_be_passed_over(
    table: Table, broken: Callable[[DataFrame], DataFrame]
) -> None:
    table.world.add_files(range(3))
    table.run(table.keeping_errors(broken_from(1, broken, table.epoch())))
    assert [told.partition(":")[0] for told in table.told] == ["1", "2"]
    assert "Batch 1 failed in this run" in table.told[1]
    assert table.batches() == [0]

    table.world.add_files(range(3, 4))
    for _ in range(2):  # a start that is refused is no batch that failed
        with pytest.raises(StreamingQueryException, match=r"Epoch 1 failed and was not") as why:
            table.run(table.epoch())
    assert table.batches() == [0]

    # As the error says: Spark writes batch 1 again, and what came after it in batches to come.
    table.world.forget_commits(2)
    for number in (2, 3):
        for name in (str(number), f".{number}.crc"):
            (table.world.checkpoint / "offsets" / name).unlink(missing_ok=True)
    assert "offsets/ above 1" in str(why.value)
    table.run(table.epoch())
    assert 1 in table.batches()


def test_a_function_that_is_mended_does_not_skip_a_batch_that_was_written_in_part(
    table: Table,
) -> None:
    table.world.add_files(range(1))
    function = table.epoch()
    with pytest.raises(StreamingQueryException, match="This run has already written"):
        table.run(halves(lambda: function, lambda: function))
    assert table.batches(rows=20) == [0]
    with pytest.raises(StreamingQueryException, match="it has 40 rows now and had 20"):
        table.run(table.epoch())
    # As the first error says: the rows of the second call are those of another job.
    other = table.epoch(job="other")
    table.run(halves(table.epoch, lambda: other))
    table.world.add_files(range(1, 2))
    table.run(halves(table.epoch, lambda: other))
    assert table.batches() == [0, 1]


def test_a_batch_that_failed_is_not_passed_over_under_a_new_name(table: Table) -> None:
    table.world.add_files(range(2))
    table.run(table.keeping_errors(broken_from(1, in_a_task, table.epoch())))
    table.world.add_files(range(2, 3))
    table.world.rename_job("new")
    with pytest.raises(StreamingQueryException, match=r"Epoch 1 failed and was not"):
        table.run(table.epoch(job="new"))
    assert table.batches() == [0]


def test_by_consent_a_query_goes_on_without_a_batch_that_failed(table: Table) -> None:
    table.world.add_files(range(2))
    table.run(table.keeping_errors(broken_from(1, in_a_task, table.epoch())))
    for number in (2, 3):
        table.world.add_files(range(number, number + 1))
        if number == 2:
            with pytest.raises(StreamingQueryException, match="was not written") as why:
                table.run(table.epoch())
            token = re.search(r"adopt=([0-9a-f]{12})", str(why.value))
            assert token is not None
            table.run(table.epoch(adopt=token[1]))
        else:
            table.run(table.epoch())
    assert table.batches() == [0, 2, 3]


def test_by_consent_a_query_goes_on_without_its_register_batch_after_batch(table: Table) -> None:
    table.world.add_files(range(2))
    table.run(table.epoch())
    with psycopg.connect(table.world.url, autocommit=True) as connection:
        connection.execute("drop schema abs cascade")
    table.world.add_files(range(2, 4))
    with pytest.raises(StreamingQueryException, match="register is not there") as why:
        table.run(table.epoch())
    token = re.search(r"adopt=([0-9a-f]{12})", str(why.value))
    assert token is not None
    table.run(table.epoch(adopt=token[1]))
    assert table.batches() == [0, 1, 2, 3]


def test_a_second_try_in_the_function_is_told_that_the_run_has_ended(table: Table) -> None:
    table.world.add_files(range(1))
    function = table.epoch()

    def twice(df: DataFrame, batch: int) -> None:
        table.keeping_errors(function)(in_a_task(df), batch)
        function(df, batch)

    with pytest.raises(StreamingQueryException, match=r"do not catch the error in the function"):
        table.run(twice)
    table.run(function)
    assert table.batches() == [0], "the next run writes it"


def test_a_batch_that_fails_and_ends_the_query_is_written_by_the_next_run(table: Table) -> None:
    table.world.add_files(range(3))
    with pytest.raises(StreamingQueryException):
        table.run(broken_from(1, in_the_driver, table.epoch()))
    table.run(table.epoch())
    assert table.batches() == [0, 1, 2]


def test_a_named_sink_that_loses_its_name_is_an_error_that_says_which(table: Table) -> None:
    table.world.add_files(range(1))
    table.run(table.epoch(table.sink(name="payments")))
    table.world.add_files(range(1, 2))
    with pytest.raises(StreamingQueryException, match=r"name='payments'"):
        table.run(table.epoch(table.sink()))
    table.run(table.epoch(table.sink(name="payments")))
    assert table.batches() == [0, 1]


def test_a_batch_that_failed_is_refused_to_be_passed_over_at_every_later_start(
    table: Table,
) -> None:
    table.world.add_files(range(2))
    table.run(table.keeping_errors(broken_from(1, in_a_task, table.epoch())))
    table.world.add_files(range(2, 3))
    for _ in range(3):
        with pytest.raises(StreamingQueryException, match=r"Epoch 1 failed and was not written"):
            table.run(table.epoch())
    assert table.batches() == [0]


def test_a_start_that_fails_before_it_looks_does_not_hide_the_batch_that_failed(
    table: Table,
) -> None:
    table.world.add_files(range(2))
    table.run(table.keeping_errors(broken_from(1, in_a_task, table.epoch())))
    table.world.add_files(range(2, 3))
    with pytest.raises(StreamingQueryException, match="target of its options is not there"):
        table.run(table.epoch(table.sink("nowhere")))
    with pytest.raises(StreamingQueryException, match=r"Epoch 1 failed and was not written"):
        table.run(table.epoch())
    assert table.batches() == [0]


def test_a_function_that_names_a_job_group_of_its_own_still_starts_a_run_of_its_own(
    table: Table,
) -> None:
    function = table.epoch()

    def in_a_group(df: DataFrame, batch: int) -> None:
        df.sparkSession.sparkContext.setJobGroup("ours", "for the console")
        function(df, batch)

    for number in range(2):
        table.world.add_files(range(number, number + 1))
        table.run(in_a_group)
    assert table.batches() == [0, 1]
    assert table.world.generation() == 2, "a run that was stopped is fenced by the next one"


def test_a_batch_that_a_thread_loses_in_a_running_query_is_not_passed_over_by_the_next(
    table: Table,
) -> None:
    function = table.epoch()

    def second_in_a_thread(df: DataFrame, batch: int) -> None:
        if batch != 1:
            function(df, batch)
            return
        with ThreadPoolExecutor() as threads:
            threads.submit(function, df, batch)  # and nobody looks at what becomes of it

    table.world.add_files(range(3))
    with pytest.raises(StreamingQueryException, match=r"Epoch 1 failed and was not written"):
        table.run(second_in_a_thread)
    assert table.batches() == [0]


def test_a_batch_that_a_thread_without_spark_s_properties_loses_is_refused_to_be_passed_over(
    table: Table,
) -> None:
    function = table.epoch()

    def in_a_thread(df: DataFrame, batch: int) -> None:
        with ThreadPoolExecutor() as threads:
            threads.submit(function, df, batch)  # and nobody looks at what becomes of it

    table.world.add_files(range(2))
    table.run(in_a_thread)
    assert table.batches() == []
    table.world.add_files(range(2, 3))
    with pytest.raises(StreamingQueryException, match=r"Epoch 0 failed and was not written"):
        table.run(function)


def many_other_queries() -> None:
    """What this process notes when many queries run in it, each a batch."""
    for number in range(200):
        runs.note(f"query {number}", "its run", JOB, Known())


def test_among_many_queries_a_second_call_of_a_batch_is_an_error(table: Table) -> None:
    table.world.add_files(range(1))
    function = table.epoch()

    def first(df: DataFrame, batch: int) -> None:
        function(df, batch)
        many_other_queries()

    with pytest.raises(StreamingQueryException, match="This run has already written"):
        table.run(halves(lambda: first, lambda: function))
    assert table.batches(rows=20) == [0], "what the first call wrote"


def test_among_many_queries_a_batch_that_failed_while_the_target_was_away_is_not_passed_over(
    table: Table,
) -> None:
    table.world.add_files(range(3))
    function = table.keeping_errors(table.epoch())

    def away_in_batch_1(df: DataFrame, batch: int) -> None:
        with psycopg.connect(table.world.url, autocommit=True) as connection:
            if batch == 1:
                connection.execute("alter schema abs rename to away")
            function(df, batch)
            if batch == 1:
                connection.execute("alter schema away rename to abs")
        many_other_queries()

    table.run(away_in_batch_1)
    assert [told.partition(":")[0] for told in table.told] == ["1", "2"]
    assert table.batches() == [0]
