"""The Kafka source against the C client's consume loop, and against Spark's own source.

    python -m benchmarks kafka_source
    python -m benchmarks kafka_source --spark-python V/bin/python --spark-jars DIR

Sides of the first comparison, in this process, partition after partition:

- ``consume loop``: confluent-kafka's ``consume`` and nothing else: messages are counted and dropped;
- ``source``: ``KafkaSource``: plan, open, read Arrow batches, look at the topic again, close.

Sides of the second, each a warm Spark session of two threads in a process of its own, that reads the
topic into nothing: ``abs-kafka`` and ``kafka``, which is Spark's own (JVM) with what lies in DIR:
spark-sql-kafka-0-10 of its version, kafka-clients, commons-pool2.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from abs_clients.kafka.settings import Settings
from abs_core.source import Limit
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from benchmarks.meter import metered
from benchmarks.other_spark import Installed, Session, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result

JOB = "kafka_read_job.py"
PARTITIONS = 4
ROWS = 1_000_000
SIZE = 100
"""Bytes of a value."""
CHUNK = 1000
LOOP, SOURCE, OURS, SPARKS = "consume loop", "source", "abs-kafka", "kafka (JVM)"


class Topic:
    """A topic full of messages, and the ways to read it."""

    def __init__(self, bootstrap: str, rows: int) -> None:
        name = f"bench-{secrets.token_hex(4)}"
        self.name, self.rows, self.bootstrap = name, rows, bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000}
        producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
        for number in range(rows):
            value = (b"%d " % number).ljust(SIZE, b"x")
            while True:
                try:
                    producer.produce(name, value, b"%d" % number, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.name,
            "startingOffsets": "earliest",
        }

    def loop(self) -> Sample:
        """Messages as the C client hands them over, dropped."""
        rows = 0
        with metered() as taken:
            for number in range(PARTITIONS):
                consumer = Consumer(
                    KafkaSourceOptions(Settings.of({"bootstrap.servers": self.bootstrap})).consumer
                )
                consumer.assign([TopicPartition(self.name, number, 0)])
                wanted = self.rows // PARTITIONS
                while wanted > 0:
                    found = len(consumer.consume(min(CHUNK, wanted), 0.05))
                    wanted -= found
                    rows += found
                consumer.close()
        return self._sample(taken.wall_s, taken.cpu_s, rows)

    def source(self) -> Sample:
        """Arrow batches, by the contract of a source."""
        source = KafkaSource(KafkaSourceOptions.parse(self.options))
        rows = 0
        with metered() as taken:
            start = source.initial()
            for split in source.splits(start, source.latest(start, Limit())):
                reader = source.open(split)
                while not reader.finished:
                    batch = reader.read(1.0)
                    rows += 0 if batch is None else batch.num_rows
                reader.close()
        return self._sample(taken.wall_s, taken.cpu_s, rows)

    def by(self, spark: Session, name: str) -> Callable[[], Sample]:
        """Read by a Spark session, with the source of that name."""

        def run() -> Sample:
            with metered() as taken:
                said = spark.ask({"format": name, "options": self.options})
            return self._sample(said["seconds"], taken.cpu_s, int(said["rows"]))

        return run

    def _sample(self, wall_s: float, cpu_s: float, rows: int) -> Sample:
        if rows != self.rows:
            raise AssertionError(f"{rows} rows were read, {self.rows} were written")
        return Sample(wall_s, cpu_s, rows)


def run(
    bootstrap: str, other: Installed | None, *, pairs: int, rows: int | None, tell: Tell
) -> Result:
    """Both comparisons, the second where another Spark is given."""
    topic = Topic(bootstrap, (rows or ROWS) // PARTITIONS * PARTITIONS)
    sides = [Side(LOOP, topic.loop), Side(SOURCE, topic.source)]
    comparisons = [Comparison(SOURCE, LOOP)]
    with ExitStack() as stack:
        if other is not None:
            ours = stack.enter_context(session(JOB))
            theirs = stack.enter_context(session(JOB, other))
            sides += [
                Side(OURS, topic.by(ours, "abs-kafka")),
                Side(SPARKS, topic.by(theirs, "kafka")),
            ]
            comparisons.append(Comparison(OURS, SPARKS))
        samples = interleave(sides, pairs=pairs, warm_up=2, tell=tell)
    return Result(
        name="kafka_source",
        unit="rows",
        samples=samples,
        comparisons=comparisons,
        facts={"rows": f"{topic.rows:,}", "bytes of a value": SIZE, "partitions": PARTITIONS},
        notes=(
            "wall of the Spark sides is of load() and save() into noop, in a warm session",
            "CPU is of this process and of all below it: clients, Spark, and a native broker",
        ),
    )
