"""One situation's input, checkpoint and target, and what a reader of the target finds in it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from benchmarks.scoreboard import job

COLUMNS = pa.schema([("id", pa.int64()), ("word", pa.string()), ("amount", pa.float64())])
SHARE = 100
"""Rows of a file."""
HELD_S = 120.0
"""No task waits longer for its sign to go on."""
Row = tuple[int, float]
"""Key and value of a row."""


def held(rows: DataFrame, hold: dict[str, Any]) -> DataFrame:
    """The same rows; a task that meets a row ``from`` this id on waits for the file ``go``."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and batch[0][0].as_py() >= hold["from"]:
                Path(hold["arrived"]).touch()
                wait_for(hold["go"])
            yield batch

    return rows.mapInArrow(wait, job.SCHEMA)


def wait_for(path: str | Path, seconds: float = HELD_S) -> bool:
    """Whether the file is there in time."""
    over = time.monotonic() + seconds
    while not Path(path).exists():
        if time.monotonic() > over:
            return False
        threading.Event().wait(0.05)
    return True


@dataclass
class Trial:
    """One situation: files of input, a checkpoint and a target that nobody has used.

    Attributes:
        expected: what should be in the target.
        error: that the last run ended with.
        note: what else happened, for the result file.
    """

    spark: SparkSession
    given: job.Settings
    other: Any
    expected: Counter[Row] = field(default_factory=Counter)
    error: str = ""
    note: str = ""
    files: int = 0

    def add(self, ids: Iterable[int] = (), *, amount: float | None = None) -> None:
        """One more file, newer than all. An ``amount`` replaces the one that its keys have."""
        ids = [*ids] or [*range(self.files * SHARE, (self.files + 1) * SHARE)]
        amounts = [id_ / 100 if amount is None else amount for id_ in ids]
        if amount is not None:
            again = {*ids}
            self.expected = Counter({r: n for r, n in self.expected.items() if r[0] not in again})
        self.expected.update(zip(ids, amounts, strict=True))
        file = Path(self.given["input"], f"{self.files:05d}.parquet")
        words = [f"word {id_}" for id_ in ids]
        parquet.write_table(pa.table([ids, words, amounts], schema=COLUMNS), file)
        os.utime(file, (1_700_000_000 + self.files,) * 2)
        self.files += 1

    def hold(self, whose: str) -> dict[str, Any]:
        """Of the tasks of one driver, at the next file but one."""
        paths = {sign: f"{self.given['place']}/{sign}-{whose}" for sign in ("arrived", "go")}
        return {"from": (self.files - 1) * SHARE, **paths}

    def run(
        self,
        files: int = 1,
        change: Callable[[DataFrame], DataFrame] = lambda stream: stream,
    ) -> None:
        """Write all that is there, so many files an epoch; the query's error is kept."""
        self.error = ""
        given = {**self.given, "files": files}
        try:
            job.write(change(job.read(self.spark, given)), given)
        except StreamingQueryException as error:
            self.error = all_of(error)

    @property
    def checkpoint(self) -> Path:
        return Path(self.given["checkpoint"])

    def forget_newest_commit(self) -> None:
        """What a kill leaves between the sink's commit and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for name in (str(newest), f".{newest}.crc"):
            (commits / name).unlink(missing_ok=True)

    def rows(self, given: job.Settings | None = None) -> dict[str, Counter[Row]]:
        """What a reader of each target sees now."""
        given = given or self.given
        return {name: Counter(READERS[name](self.spark, given)) for name in given["reads"]}

    def verdict(self, *more: dict[str, Counter[Row]]) -> str:
        """Of all targets; the worst one's where they differ."""
        targets = [rows for every in (self.rows(), *more) for rows in every.values()]
        return max((judge(self.expected, rows, self.error) for rows in targets), key=_worse)


def all_of(error: StreamingQueryException) -> str:
    """Its text, with the causes that a sink's own words are in."""
    return f"{error}\n{getattr(error, '_stackTrace', None) or ''}"


def judge(expected: Counter[Row], rows: Counter[Row], error: str) -> str:
    """``passed``, ``lost N``, ``doubled N``, ``stale N`` (an older value of the key), ``refused``.

    Rows that lack where the query ended with an error are not lost: somebody is told.
    """
    lacking, more = expected - rows, rows - expected
    old = Counter(id_ for id_, _ in lacking.elements()) & Counter(id_ for id_, _ in more.elements())
    lost, doubled = lacking.total() - old.total(), more.total() - old.total()
    wrong = [
        f"{name} {number}"
        for name, number in (
            ("doubled", doubled),
            ("stale", old.total()),
            ("lost", 0 if error else lost),
        )
        if number
    ]
    return ", ".join(wrong) or ("refused" if error else "passed")


def _worse(verdict: str) -> int:
    return ("passed", "refused").index(verdict) if verdict in ("passed", "refused") else 2


def in_postgres(spark: SparkSession, given: job.Settings) -> list[Row]:
    with psycopg.connect(given["url"]) as connection:
        return [
            (int(i), v) for i, v in connection.execute(f"SELECT id, amount FROM {given['table']}")
        ]


def in_kafka(spark: SparkSession, given: job.Settings) -> list[Row]:
    if given["protocol"] == "idempotent":  # with the side topic that says which attempts count
        reader = spark.read.format("abs-kafka").option("subscribe", given["topic"])
        reader = reader.option("kafka.bootstrap.servers", given["bootstrap"])
        values = reader.option("winners", "true").load().select("value").collect()
        return [_of_json(bytes(value)) for (value,) in values]
    return [_of_json(value) for value in _records(given)]


def _records(given: job.Settings) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": given["bootstrap"],
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records, ends = [], 0
    partitions = consumer.list_topics(given["topic"], 30).topics[given["topic"]].partitions
    consumer.assign([TopicPartition(given["topic"], number, 0) for number in partitions])
    while ends < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            ends += 1
        else:
            records.append(message.value() or b"")
    consumer.close()
    return records


def _of_json(value: bytes) -> Row:
    row = json.loads(value)
    return row["id"], row["amount"]


def in_folder(spark: SparkSession, given: job.Settings) -> list[Row]:
    if given["way"] == "abs_iceberg" and job.iceberg_table(given) is None:
        return []
    of_files = given["way"] in ("spark_files", "delta", "deltalake", "abs_delta")
    if of_files and not Path(given["folder"]).exists():
        return []
    try:
        return [(i, v) for i, v in job.seen(spark, given).select("id", "amount").collect()]
    except Exception as error:
        if any(text in str(error) for text in _EMPTY):
            return []
        raise


_EMPTY = (
    "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
    "not a Delta table",
    "DELTA_",
    "No files in log",
)
READERS = {"postgres": in_postgres, "kafka": in_kafka, "seen": in_folder, "s3": in_folder}
