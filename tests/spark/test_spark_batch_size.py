"""Once an epoch of a format has shown how large its rows are, Spark counts rows in place of bytes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import abs_spark
from abs_core.effort import Effort
from abs_core.model import Drained, Wrote
from abs_spark.datasource import batch_size
from abs_spark.foreach.row_size import BYTES, MAX_ROWS, ROWS
from abs_spark.process.program import PIPE, program_hears
from tests.spark.drivers import until
from tests.spark.jobs.stream_files import run_to_end
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MB = 1 << 20
EPOCHS = 3


class Counted(DataSource):
    """Notes the rows of each batch, in a file for each epoch; tells their size as our formats do."""

    @classmethod
    def name(cls) -> str:
        return "abs-counted"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        folder, go = self.options["folder"], self.options["go"]

        class Message(WriterCommitMessage):
            def __init__(self, query: str, run: str, rows: int, size: int) -> None:
                self.query, self.run, self.rows, self.size = query, run, rows, size

        class Writer(DataSourceStreamArrowWriter):
            def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
                from abs_spark.process.executor import stream_task

                task = stream_task()
                found = [(batch.num_rows, batch.nbytes) for batch in iterator]
                with (Path(folder) / str(task.epoch)).open("a") as file:
                    file.write("".join(f"{rows} " for rows, _ in found))
                rows, size = sum(rows for rows, _ in found), sum(size for _, size in found)
                return Message(task.query, task.run, rows, size)

            def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
                for one in messages:
                    share = Wrote(0, None, effort=Effort(((0, one.rows, one.size),)))
                    batch_size.tell_row_size(one.query, one.run, [share, Drained(1)])
                # The next epoch begins when the program has heard of this one.
                while not (Path(go) / str(batchId)).exists():
                    time.sleep(0.01)

        return Writer()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The epochs that the program has heard of; it lets each one end."""
    told: list[int] = []
    before = batch_size.BatchSizes.set

    def heard_of(sizes: batch_size.BatchSizes, query: str, run: str, size: float) -> None:
        before(sizes, query, run, size)
        (tmp_path / str(len(told))).touch()
        told.append(round(size))

    monkeypatch.setattr(batch_size.BatchSizes, "set", heard_of)
    return told


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path, heard: list[int]) -> Iterator[Callable[..., Any]]:
    """Streams epochs of so many rows with a text of so many bytes; the rows of each batch, by epoch."""

    def run(
        rows: int,
        width: int | Sequence[int],
        conf: tuple[str, str] | None = None,
        change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> list[list[int]]:
        batch_size.hear_row_sizes()
        with program_hears(spark) as hears:
            assert hears
            spark.dataSource.register(Counted)
        if conf is not None:
            spark.conf.set(*conf)
        before = dict(spark.conf.getAll)
        widths = [width] * EPOCHS if isinstance(width, int) else width
        for epoch, bytes_ in enumerate(widths):
            wide = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {bytes_}) as text")
            wide.write.parquet(str(tmp_path / "in" / str(epoch)))
        counted = tmp_path / "counted"
        counted.mkdir()
        reader = spark.readStream.schema("text string").option("maxFilesPerTrigger", 1)
        query = (
            change(reader.parquet(str(tmp_path / "in" / "*")).coalesce(1))
            .writeStream.format("abs-counted")
            .options(folder=str(counted), go=str(tmp_path))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert dict(spark.conf.getAll) == before, "the session is the user's"
        found = (counted / str(epoch) for epoch in range(EPOCHS))
        return [[int(number) for number in path.read_text().split()] for path in found]

    yield run
    for name in (BYTES, ROWS):
        spark.conf.unset(name)


def test_rows_come_by_their_number_once_an_epoch_has_shown_their_size(
    batches: Callable[..., Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("abs_spark"), "propagate", True)
    caplog.set_level(logging.INFO, logger="abs_spark.start")
    found = batches(2_500, 100)
    assert found[0] == [2_500], "Spark's own bounds"
    assert found[1:] == [[MAX_ROWS, MAX_ROWS, 500]] * 2
    said = [line for line in caplog.messages if BYTES in line]
    assert len(said) == 1
    assert f"Spark hands Python {MAX_ROWS} rows of about" in said[0]


def test_rows_of_a_megabyte_take_no_more_memory_also_when_they_become_small_and_large_again(
    batches: Callable[..., Any], heard: list[int]
) -> None:
    found = batches(70, (MB, 100, MB))
    assert heard[0] >= MB
    assert max(found[0]) <= 65, "Spark's own bound"
    assert max(found[1]) * batch_size.MARGIN <= 64, "64 MiB, with a margin, by the epoch before"
    assert max(found[2]) <= 65, "Spark's own bound"


def test_a_setting_of_the_user_is_respected(batches: Callable[..., Any]) -> None:
    assert batches(250, 100, conf=(ROWS, "100")) == [[100, 100, 50]] * EPOCHS


def test_a_bound_in_bytes_of_the_user_is_respected(batches: Callable[..., Any]) -> None:
    found = batches(2_500, 1_000, conf=(BYTES, str(MB)))
    assert found[0] == found[-1]
    assert max(found[0]) > MAX_ROWS


def test_a_query_with_other_python_functions_is_left_to_spark(
    batches: Callable[..., Any], tmp_path: Path
) -> None:
    # What they take may be much larger than what the sink takes.
    def lengths(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            with (tmp_path / "taken").open("a") as file:
                file.write(f"{batch.num_rows} ")
            yield pa.RecordBatch.from_pydict({"n": [1] * batch.num_rows})

    batches(70, MB, change=lambda frame: frame.mapInArrow(lengths, "n long"))
    taken = [int(rows) for rows in (tmp_path / "taken").read_text().split()]
    assert sum(taken) == 70 * EPOCHS
    assert max(taken) <= 65


def test_what_another_thread_sends_meanwhile_is_not_changed(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    sending, before = context.environment, dict(context.environment)
    with program_hears(spark):
        assert sending == before
        assert PIPE in context.environment
    assert context.environment is sending
    assert sending == before


@pytest.mark.services
def test_a_format_of_ours_that_register_has_seen_tells_how_large_its_rows_are(
    spark: SparkSession, new_world: Callable[[], World], heard: list[int]
) -> None:
    world = new_world()
    abs_spark.register(spark)
    rows = world.add_files(range(2))
    run_to_end(spark, world.job, world.url)
    world.holds(rows)
    until(lambda: bool(heard), "the program hears of an epoch")
    assert 20 < heard[0] < 200
