"""The adaptor from any source to Spark: ranges, limits, triggers, restarts, batches."""

from __future__ import annotations

import importlib.util
import logging
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from abs_core.errors import ConfigError, OptionError, SchemaError, UnavailableError
from abs_core.patience import Patience, slow_writes, waiting
from abs_core.source import Limit, Reader, Split
from abs_spark.datasource import readable as readers
from abs_spark.datasource.readable import BatchReader, RefusedReader, StreamReader
from abs_spark.schema import arrow_schema, spark_schema
from tests.spark.jobs.counting_source import (
    SCHEMA,
    ClosableCountingSource,
    CountingDataSource,
    CountingReader,
    CountingSource,
    place,
)
from tests.spark.jobs.stream_files import ended


def grow(folder: Path, by: int) -> None:
    with (folder / "count").open("ab") as file:
        file.write(b"." * by)


def stream_reader(source: CountingSource, limit: Limit | None = None) -> StreamReader:
    return StreamReader(source, limit or Limit(), arrow_schema(spark_schema(SCHEMA)))


def test_the_limit_of_the_options_and_the_trigger_s_own_are_both_kept(tmp_path: Path) -> None:
    grow(tmp_path, 100)
    reader = stream_reader(CountingSource(tmp_path), Limit(rows=30, bytes=1))
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert reader.latestOffset({"next": 10}, ReadMaxRows(30)) == {"next": 40}
    assert reader.latestOffset({"next": 10}, ReadMaxRows(5)) == {"next": 15}
    assert reader.latestOffset({"next": 10}, ReadAllAvailable()) == {"next": 100}
    assert reader.reportLatestOffset() == {"next": 100}


@pytest.mark.parametrize("kind", [CountingSource, ClosableCountingSource])
def test_available_now_ends_where_the_data_ended_when_it_began(
    kind: type[CountingSource], tmp_path: Path
) -> None:
    grow(tmp_path, 100)
    reader = stream_reader(kind(tmp_path), Limit(rows=60))
    reader.prepareForTriggerAvailableNow()
    places, limit = [{"next": 0}], reader.getDefaultReadLimit()
    while len(places) < 9:
        places.append(reader.latestOffset(places[-1], limit))
        grow(tmp_path, 10)
        if places[-1] == places[-2]:
            break
    bounded = [0, 60, 100, 100]
    assert [p["next"] for p in places] == (bounded if kind is not CountingSource else [0, 100, 100])


def test_a_spark_that_says_neither_start_nor_limit_is_served_from_where_it_was(
    tmp_path: Path,
) -> None:
    grow(tmp_path, 10)
    reader = stream_reader(CountingSource(tmp_path))
    assert reader.latestOffset() == {"next": 10}  # after a restart
    reader.partitions({"next": 0}, {"next": 10})
    grow(tmp_path, 10)
    assert reader.latestOffset() == {"next": 20}


def test_an_empty_range_has_no_partitions(tmp_path: Path) -> None:
    grow(tmp_path, 10)
    reader = stream_reader(CountingSource(tmp_path))
    assert reader.partitions({"next": 10}, {"next": 10}) == []
    assert len(reader.partitions({"next": 0}, {"next": 10})) == 2


def test_rows_of_another_schema_than_the_planned_one_are_an_error(tmp_path: Path) -> None:
    reader = StreamReader(CountingSource(tmp_path), Limit(), pa.schema([("other", pa.int64())]))
    split = Split("numbers", place(0), place(5))
    with pytest.raises(SchemaError, match="do not have the schema that the query was planned with"):
        next(reader.read(InputPartition(split)))


class SilentReader(CountingReader):
    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        return None


def test_a_range_of_which_nothing_comes_is_an_error_and_not_an_endless_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountingSource, "patience", Patience(0.01))
    monkeypatch.setattr(CountingSource, "open", lambda self, split: SilentReader(split))
    reader = stream_reader(CountingSource(tmp_path))
    with pytest.raises(UnavailableError, match="no records arrived"):
        next(reader.read(InputPartition(Split("numbers", place(0), place(5)))))


class SparseReader(CountingReader):
    """Has a row at the end only: before it are records that count for nothing, and take time."""

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        batch = super().read(timeout_seconds)
        time.sleep(0.05)
        return batch if self.finished else None


def test_a_long_range_with_few_rows_is_read_to_its_end_as_long_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountingSource, "patience", Patience(0.2))
    monkeypatch.setattr(CountingSource, "open", lambda self, split: SparseReader(split))
    grow(tmp_path, 200)
    reader = stream_reader(CountingSource(tmp_path))
    assert list(reader.read(InputPartition(Split("numbers", place(0), place(200)))))


def test_a_task_that_waits_for_rows_tells_so_and_waits_as_long_as_its_source_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_writes, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(logging.getLogger(waiting.LOGGER), "propagate", True)
    caplog.set_level(logging.WARNING, waiting.LOGGER)

    class PatientSource(CountingSource):
        patience = Patience(1.2, system="the counter")

        def open(self, split: Split) -> Reader:
            return SilentReader(split)

    reader = stream_reader(PatientSource(tmp_path))
    with pytest.raises(UnavailableError, match=r"no records arrived for 1\.2 s"):
        next(reader.read(InputPartition(Split("numbers", place(0), place(5)))))
    assert any("waiting for the counter for" in each for each in caplog.messages)


@pytest.mark.spark
def test_spark_streams_every_row_once_over_restarts_and_replays(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(CountingDataSource)
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    data.mkdir()

    def run() -> list[int]:
        """To the end of the data, in epochs of at most 40 rows; how many rows each had."""
        frame = spark.readStream.format("abs-counting").options(rows="40", bounded="true")
        writer = frame.load(str(data)).writeStream.format("parquet")
        query = writer.options(path=str(tmp_path / "out"), checkpointLocation=str(checkpoint))
        started = query.trigger(availableNow=True).start()
        assert started.awaitTermination(300)
        return [epoch.numInputRows for epoch in started.recentProgress if epoch.numInputRows]

    def numbers() -> list[int]:
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert all(row.word == f"w{row.n}" for row in rows)
        return sorted(row.n for row in rows)

    grow(data, 100)
    assert run() == [40, 40, 20]
    grow(data, 50)
    assert run() == [40, 10]
    assert numbers() == list(range(150))
    newest = checkpoint / "commits" / "4"
    newest.unlink()
    (checkpoint / "commits" / ".4.crc").unlink(missing_ok=True)
    assert run() == []  # the file sink knows the epoch already, and skips it
    assert newest.exists()
    grow(data, 5)
    assert run() == [5]
    assert numbers() == list(range(155))


@pytest.mark.spark
def test_spark_reads_a_batch_of_all_there_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(CountingDataSource)
    (tmp_path / "count").touch()
    frame = spark.read.format("abs-counting").load(str(tmp_path))
    assert frame.collect() == []
    grow(tmp_path, 100)
    frame = spark.read.format("abs-counting").load(str(tmp_path))
    assert frame.schema == spark_schema(SCHEMA)
    assert sorted(row.n for row in frame.collect()) == list(range(100))


def test_a_spark_without_limits_refuses_them_and_reads_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)  # as in Spark 4.1
    found = importlib.util.find_spec("abs_spark.datasource.readable")
    assert found is not None
    assert found.loader is not None
    old = importlib.util.module_from_spec(found)
    found.loader.exec_module(old)
    assert not old.HAS_LIMITS
    monkeypatch.setattr(readers, "HAS_LIMITS", old.HAS_LIMITS)
    with pytest.raises(ConfigError, match=r"use Spark 4\.2"):
        stream_reader(CountingSource(tmp_path), Limit(rows=1))
    grow(tmp_path, 3)
    assert stream_reader(CountingSource(tmp_path)).latestOffset() == {"next": 3}


@pytest.mark.spark
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "1 second"}])
def test_what_is_wrong_with_a_stream_s_options_is_the_error_that_the_query_ends_with(
    spark: SparkSession, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    frame = spark.readStream.format("abs-kafka").option("subscribe", "t").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as caught:
        ended(lambda: writer.trigger(**trigger).start())
    assert "OptionError" in str(caught.value), str(caught.value)
    assert "kafka.bootstrap.servers" in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_a_task_of_nothing_reads_no_rows(partition: InputPartition | None) -> None:
    source: Any = None  # it is not asked
    assert [*BatchReader(source, pa.schema([])).read(partition)] == []


def test_a_refused_reader_raises_its_error_wherever_it_is_asked_and_is_stopped_in_peace() -> None:
    error = OptionError("The option x is wrong.", remedy="leave it out.")
    reader = RefusedReader(error)
    asked: list[Callable[[], object]] = [
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.latestOffset,
        reader.prepareForTriggerAvailableNow,
        reader.reportLatestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(None)),
        lambda: reader.commit({}),
        lambda: pickle.dumps(reader),
    ]
    for ask in asked:
        with pytest.raises(OptionError) as caught:
            ask()
        assert caught.value is error
    reader.stop()
