"""The Kafka source against the C client's consume loop, and against Spark's own source.

    python -m benchmarks.kafka_source
    python -m benchmarks.kafka_source --spark-python V/bin/python --spark-jars DIR

Sides of the first comparison, in this process, partition after partition:

- ``consume loop``: confluent-kafka's ``consume`` and nothing else: messages are counted and dropped;
- ``source``: ``KafkaSource``: plan, open, read Arrow batches, look at the topic again, close.

Sides of the second, each a warm Spark session of two threads in a process of its own, that reads the
topic into nothing: ``abs-kafka`` and ``kafka``, which is Spark's own (JVM) with what lies in DIR:
spark-sql-kafka-0-10 of its version, kafka-clients, commons-pool2.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console

from abs_core.source import Limit
from abs_services import services
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka.client import consumer_settings
from benchmarks.machine import load, machine
from benchmarks.meter import metered
from benchmarks.pairs import Side, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result, as_json, save, show

RESULTS = Path(__file__).parent / "results" / "kafka_source.json"
PARTITIONS = 4
CHUNK = 1000
LOOP, SOURCE, OURS, SPARKS = "consume loop", "source", "abs-kafka", "kafka (JVM)"

console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)


class Topic:
    """A topic full of messages, and the ways to read it."""

    def __init__(self, bootstrap: str, name: str, rows: int, size: int) -> None:
        self.name, self.rows, self.bootstrap = name, rows, bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000}
        producer = Producer({**settings, "queue.buffering.max.messages": 200_000})
        for number in range(rows):
            value = (b"%d " % number).ljust(size, b"x")
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
                consumer = Consumer(consumer_settings({"bootstrap.servers": self.bootstrap}))
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

    def by(self, session: subprocess.Popen[str]) -> Callable[[], Sample]:
        """Read by a Spark session."""

        def run() -> Sample:
            assert session.stdin is not None
            with metered() as taken:
                session.stdin.write("\n")
                session.stdin.flush()
                said = _said(session)
            return self._sample(said["seconds"], taken.cpu_s, int(said["rows"]))

        return run

    def _sample(self, wall_s: float, cpu_s: float, rows: int) -> Sample:
        if rows != self.rows:
            raise AssertionError(f"{rows} rows were read, {self.rows} were written")
        return Sample(wall_s, cpu_s, rows)


@contextmanager
def spark(
    python: str, name: str, options: Mapping[str, str], jars: Sequence[str]
) -> Iterator[subprocess.Popen[str]]:
    """A Spark session in a process of its own, ready."""
    job = Path(__file__).with_name("kafka_read_job.py")
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, str(job), name, json.dumps(options), *jars],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            if process.poll() is not None:
                raise AssertionError(f"the session of {name} did not start")
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _said(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, float] = json.loads(line)
            return found
    raise AssertionError("the session has ended")


def main(
    pairs: Annotated[int, typer.Option(min=1)] = 10,
    rows: Annotated[int, typer.Option(min=1000)] = 1_000_000,
    size: Annotated[int, typer.Option(min=10, help="Bytes of a value.")] = 100,
    spark_python: Annotated[str | None, typer.Option(help="Python of the other Spark.")] = None,
    spark_jars: Annotated[Path | None, typer.Option(help="Folder of its Kafka jars.")] = None,
) -> None:
    """Ratios in interleaved pairs."""
    load_before, began = load(), time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with ExitStack() as stack:
        broker = stack.enter_context(services().kafka())
        topic = Topic(broker.bootstrap, "bench", rows // PARTITIONS * PARTITIONS, size)
        sides = [Side(LOOP, topic.loop), Side(SOURCE, topic.source)]
        comparisons = [Comparison(SOURCE, LOOP)]
        if spark_python and spark_jars:
            jars = [str(path) for path in sorted(spark_jars.glob("*.jar"))]
            ours = stack.enter_context(spark(sys.executable, "abs-kafka", topic.options, []))
            theirs = stack.enter_context(spark(spark_python, "kafka", topic.options, jars))
            sides += [Side(OURS, topic.by(ours)), Side(SPARKS, topic.by(theirs))]
            comparisons.append(Comparison(OURS, SPARKS))
        samples = interleave(sides, pairs=pairs, warm_up=2, tell=_tell)
    result = Result(
        name="kafka_source",
        unit="rows",
        samples=samples,
        comparisons=comparisons,
        facts={"rows": f"{rows:,}", "bytes of a value": size, "partitions": PARTITIONS},
        notes=(
            "wall of the Spark sides is of load() and save() into noop, in a warm session",
            "CPU is of this process and of all below it: clients, Spark, and a native broker",
        ),
    )
    show(result, console)
    document = {
        "started": started,
        "seconds": round(time.monotonic() - began),
        "command": f"python -m benchmarks.kafka_source --pairs {pairs} --rows {rows} --size {size}",
        "load before": load_before,
        "load after": load(),
        "environment": machine("pyspark", "pyarrow", "confluent-kafka"),
        "results": [as_json(result)],
    }
    save(RESULTS, {"kafka_source": document})


def _tell(label: str, side: str, sample: Sample) -> None:
    errors.print(f"{label:>12}  {side:<14} {sample.wall_s:7.3f} s  {sample.cpu_s:6.2f} s CPU")


if __name__ == "__main__":
    typer.run(main)
