"""Whole Spark streaming jobs from parquet files to a topic, that differ in their sink only.

An epoch's time is Spark's ``triggerExecution``: from asking for new files to the commit, Spark's own
logs included. The first epoch of each run does not count: it pays for planning, for producers and for
the register's start.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from abs_clients.kafka.cluster import cluster
from abs_sinks.kafka.options import KafkaOptions
from benchmarks.meter import metered
from benchmarks.other_spark import Installed, Session, sample_of, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result, epoch_times
from benchmarks.session import BATCHES_BY_ROWS
from benchmarks.write_job import PARTIAL
from tests.kit.kafka import make_topic

PARTITIONS = 4
FILES = 2
"""Of an epoch: one for each task."""
UNCOUNTED, EPOCHS = 1, 6
WARM_UP = 8
ROWS = {100: 500_000, 1000: 200_000}
"""Of an epoch, by the bytes of a record: about a second each."""

SCHEMA = "key binary, value binary"
JOB = "write_job.py"
OURS, SPARKS, AT_LEAST = "abs-kafka", "kafka (JVM)", "at least once"
BY_ROWS = "abs-kafka, batches by rows"
ONE_BY_ONE = "abs-kafka, librdkafka"
FASTER = {100: Bar(low=1.15), 1000: Bar(low=1.0)}
WITHIN_5_PERCENT = Bar(low=0.95)
_RETAINED = {"file.delete.delay.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Input:
    """Parquet files of all epochs: they hold the same rows, linked under other names.

    Args:
        rows: of an epoch.
        size: bytes of a record's key and value.
    """

    folder: Path
    rows: int
    size: int

    @classmethod
    def write(cls, folder: Path, rows: int, size: int) -> Input:
        text = secrets.token_bytes(2 * size)
        for part in range(FILES):
            numbers = range(part * rows // FILES, (part + 1) * rows // FILES)
            values = [text[n % size : n % size + size - 12] for n in numbers]
            table = pa.table({"key": [b"%012d" % n for n in numbers], "value": values})
            first = folder / f"e0-{part}.parquet"
            pq.write_table(table, first)
            for epoch in range(1, UNCOUNTED + EPOCHS):
                os.link(first, folder / f"e{epoch}-{part}.parquet")
        return cls(folder, rows, size)


@dataclass(frozen=True, slots=True)
class Job:
    """One side: the job with one sink, in one session.

    Args:
        format: of the sink.
        options: besides brokers and topic.
        conf: settings of the session while it runs.
        transactions: whether each task's share ends with a marker in each partition.
        schema: of the files.
        select: expressions of what is written.
    """

    session: Session
    bootstrap: str
    input: Input
    format: str
    transactions: bool
    options: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    schema: str = SCHEMA
    select: tuple[str, ...] = ("*",)

    def run(self) -> Sample:
        """Run the job to its end, into a new topic that is deleted afterwards."""
        with fresh_topic(self.bootstrap) as topic:
            asked = {
                "format": self.format,
                "options": {
                    "kafka.bootstrap.servers": self.bootstrap,
                    "topic": topic,
                    **self.options,
                },
                "conf": dict(self.conf),
                "input": str(self.input.folder),
                "schema": self.schema,
                "select": list(self.select),
                "files": FILES,
            }
            with metered() as taken:
                epochs = self.session.ask(asked)["epochs"]
            self._check(topic, [epoch["rows"] for epoch in epochs])
        return sample_of(epochs, taken.cpu_s, uncounted=UNCOUNTED)

    def _check(self, topic: str, rows: list[int]) -> None:
        epochs = UNCOUNTED + EPOCHS
        if rows != [self.input.rows] * epochs:
            raise AssertionError(f"not {epochs} epochs of {self.input.rows} rows: {rows}")
        markers = epochs * FILES * PARTITIONS if self.transactions else 0
        if (found := _stable(self.bootstrap, topic)) != sum(rows) + markers:
            raise AssertionError(f"{found} entries in the topic, not {sum(rows)} and {markers}")


def spark_kafka(
    bootstrap: str, other: Installed, size: int, *, pairs: int, rows: int | None, tell: Tell
) -> Result:
    """Our sink with both producers, exactly once, against Spark's own Kafka sink, at least once."""
    with session(JOB) as ours, session(JOB, other) as theirs, _input(rows, size) as given:
        jobs = {
            OURS: Job(ours, bootstrap, given, "abs-kafka", True),
            BY_ROWS: Job(ours, bootstrap, given, "abs-kafka", True, conf=BATCHES_BY_ROWS),
            ONE_BY_ONE: Job(ours, bootstrap, given, "abs-kafka", True, {"producer": "librdkafka"}),
            SPARKS: Job(theirs, bootstrap, given, "kafka", False),
        }
        bars = {OURS: FASTER[size], BY_ROWS: NO_BAR, ONE_BY_ONE: NO_BAR}
        return compared(f"spark_kafka_{size}", jobs, bars, pairs, tell)


def exactly_once(bootstrap: str, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Our sink against the same without transactions and register, in one session."""
    size = max(ROWS)
    with session(JOB) as spark, _input(rows, size) as given:
        jobs = {
            OURS: Job(spark, bootstrap, given, "abs-kafka", True),
            AT_LEAST: Job(spark, bootstrap, given, PARTIAL, False),
        }
        return compared("kafka_exactly_once", jobs, {OURS: WITHIN_5_PERCENT}, pairs, tell)


def compared(
    name: str, jobs: Mapping[str, Job], bars: Mapping[str, Bar], pairs: int, tell: Tell
) -> Result:
    sides = [Side(side, job.run) for side, job in jobs.items()]
    samples = interleave(sides, pairs=pairs, warm_up=WARM_UP, tell=tell)
    *ours, theirs = jobs
    given = jobs[theirs].input
    return Result(
        name=f"{name}, {given.size} bytes",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(side, theirs, bars[side]) for side in ours],
        facts={
            "rows per epoch": f"{given.rows:,}",
            "partitions": PARTITIONS,
            "tasks": FILES,
            **epoch_times(samples, EPOCHS),
        },
        notes=(
            f"wall is triggerExecution of {EPOCHS} epochs; the first of each run is left out",
            "CPU is of the whole query, all processes and a native broker; its share by epochs",
        ),
    )


@contextmanager
def _input(rows: int | None, size: int) -> Iterator[Input]:
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        yield Input.write(Path(folder), rows or ROWS[size], size)


@contextmanager
def fresh_topic(bootstrap: str) -> Iterator[str]:
    name = f"bench-{secrets.token_hex(4)}"
    settings = KafkaOptions.parse({"kafka.bootstrap.servers": bootstrap, "topic": name}).kafka
    make_topic(settings, name, PARTITIONS, _RETAINED)
    yield name
    cluster(settings).client().delete_topics([name])


def _stable(bootstrap: str, topic: str) -> int:
    """Entries that a reader with read_committed can get at, markers among them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    try:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
    finally:
        consumer.close()
