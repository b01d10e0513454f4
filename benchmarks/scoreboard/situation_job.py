"""The Spark driver of one contestant in every situation, each with its own target and checkpoint.

Settings are JSON in ``ABS_SCOREBOARD``; the verdicts go to its ``results``, as they come. A verdict
is what a reader of the target finds at the end: ``passed``, ``lost N``, ``doubled N``, ``stopped``
(the query ends with an error, and nothing is wrong in the target), ``part seen``.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
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
SLOW_S = 4.0
"""How long the second task of an epoch takes where a reader looks meanwhile."""


@dataclass
class Trial:
    """One situation: files of input, a checkpoint and a target that nobody has used."""

    spark: SparkSession
    given: dict[str, Any]
    expected: Counter[int] = field(default_factory=Counter)
    error: str = ""
    files: int = 0

    def add(self, ids: list[int] | None = None) -> None:
        """One more file, newer than all."""
        ids = ids or list(range(self.files * SHARE, (self.files + 1) * SHARE))
        self.expected.update(ids)
        rows = [ids, [f"word {id_}" for id_ in ids], [id_ / 100 for id_ in ids]]
        file = Path(self.given["input"], f"{self.files:05d}.parquet")
        parquet.write_table(pa.table(rows, schema=COLUMNS), file)
        os.utime(file, (1_700_000_000 + self.files,) * 2)
        self.files += 1

    def run(self, files: int = 1, change: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """Write all that is there, so many files an epoch; the query's error is kept."""
        self.error = ""
        given = {**self.given, "files": files}
        stream = job.read(self.spark, given)
        try:
            job.write(stream if change is None else change(stream), given)
        except StreamingQueryException as error:
            self.error = str(error)

    @property
    def checkpoint(self) -> Path:
        return Path(self.given["checkpoint"])

    def forget_newest_commit(self) -> None:
        """What a kill leaves between the sink's commit and Spark's own note of it."""
        commits = self.checkpoint / "commits"
        newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for name in (str(newest), f".{newest}.crc"):
            (commits / name).unlink(missing_ok=True)

    def ids(self) -> Counter[int]:
        """What a reader of the target sees now."""
        return Counter(READERS[self.given["reads"]](self.spark, self.given))

    def verdict(self) -> str:
        found = self.ids()
        lost, doubled = self.expected - found, found - self.expected
        if doubled:
            also = f", lost {lost.total()}" if lost and not self.error else ""
            return f"doubled {doubled.total()}{also}"
        if self.error:
            return "stopped"
        return f"lost {lost.total()}" if lost else "passed"


def in_postgres(spark: SparkSession, given: job.Settings) -> list[int]:
    with psycopg.connect(given["url"]) as connection:
        return [id_ for (id_,) in connection.execute(f"SELECT id FROM {job.TABLE}")]


def in_kafka(spark: SparkSession, given: job.Settings) -> list[int]:
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
    found, ends = [], 0
    partitions = consumer.list_topics(given["topic"], 30).topics[given["topic"]].partitions
    consumer.assign([TopicPartition(given["topic"], number, 0) for number in partitions])
    while ends < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            ends += 1
        else:
            found.append(int(message.key() or b""))
    consumer.close()
    return found


def in_folder(spark: SparkSession, given: job.Settings) -> list[int]:
    if given["way"] not in ("s3", "epoch", "iceberg") and not Path(given["folder"]).exists():
        return []
    try:
        return [row[0] for row in job.seen(spark, given).select("id").collect()]
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error) or "UNABLE_TO_INFER_SCHEMA" in str(error):
            return []
        raise


READERS = {"postgres": in_postgres, "kafka": in_kafka, "seen": in_folder, "s3": in_folder}


def killed_between(trial: Trial) -> str:
    trial.add()
    trial.add()
    trial.run()
    trial.forget_newest_commit()
    trial.add()
    trial.run()
    return trial.verdict()


def equal_keys(trial: Trial) -> str:
    trial.add([*range(SHARE), *range(10)])
    trial.add([*range(5), *range(SHARE, SHARE + 20)])
    trial.run()
    return trial.verdict()


def read_meanwhile(trial: Trial) -> str:
    trial.add()
    trial.run()
    before = trial.ids().total()
    trial.add()
    trial.add()
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen.add(trial.ids().total())

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and batch[0][0].as_py() >= 2 * SHARE:
                threading.Event().wait(SLOW_S)
            yield batch

    reader = threading.Thread(target=look)
    reader.start()
    try:
        trial.run(2, lambda stream: stream.mapInArrow(slow, job.SCHEMA))
    finally:
        over.set()
        reader.join()
    part = {count for count in seen if before < count < trial.expected.total()}
    verdict = trial.verdict()
    return "part seen" if part and verdict == "passed" else verdict


def deleted_checkpoint(trial: Trial) -> str:
    trial.add()
    trial.add()
    trial.run()
    shutil.rmtree(trial.checkpoint)
    trial.add()
    trial.run(2)
    return trial.verdict()


def restored_checkpoint(trial: Trial) -> str:
    trial.add()
    trial.run()
    backup = trial.checkpoint.with_name("backup")
    shutil.copytree(trial.checkpoint, backup)
    trial.add()
    trial.run()
    shutil.rmtree(trial.checkpoint)
    backup.rename(trial.checkpoint)
    trial.add()
    trial.run(2)
    return trial.verdict()


SITUATIONS: dict[str, Callable[[Trial], str]] = {
    each.__name__: each
    for each in (
        killed_between,
        equal_keys,
        read_meanwhile,
        deleted_checkpoint,
        restored_checkpoint,
    )
}


def prepare(given: job.Settings, number: int) -> job.Settings:
    """The settings of one situation, whose target is made."""
    job.TABLE, job.STAGE, job.BATCHES = f"rows_{number}", f"staged_{number}", f"batches_{number}"
    job.JOB, job.ICEBERG = f"situation-{number}", f"lake.db.t{number}"
    folder = Path(given["work"], str(number))
    (folder / "input").mkdir(parents=True)
    topic = f"{given['topic']}-{number}"
    with psycopg.connect(given["url"], autocommit=True) as connection:
        key = " PRIMARY KEY" if given["unique"] else ""
        for table, unique in ((job.TABLE, key), (job.STAGE, "")):
            connection.execute(
                f"CREATE TABLE {table} (id bigint{unique}, word text, amount double precision)"
            )
    if given["reads"] == "kafka" or given["way"] == "epoch":
        from confluent_kafka import admin

        broker = admin.AdminClient({"bootstrap.servers": given["bootstrap"]})
        new = admin.NewTopic(topic, 2, 1)  # type: ignore[attr-defined]
        for made in broker.create_topics([new]).values():
            made.result()
    paths = {name: str(folder / name) for name in ("input", "checkpoint")}
    path = f"{given['path']}/{number}"
    return {**given, **paths, "folder": str(folder / "table"), "topic": topic, "path": path}


def main() -> None:
    given: job.Settings = json.loads(os.environ["ABS_SCOREBOARD"])
    spark = job.session(given)
    verdicts: dict[str, dict[str, str]] = {}
    for number, (name, situation) in enumerate(SITUATIONS.items()):
        trial = Trial(spark, prepare(given, number))
        verdict = situation(trial)
        told = trial.error.splitlines()
        reason = next((line for line in told if "Error: " in line or "Exception: " in line), "")
        verdicts[name] = {"verdict": verdict, "error": (reason or "".join(told[:1]))[:600]}
        Path(given["results"]).write_text(json.dumps(verdicts))
        print(name, verdicts[name], flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
