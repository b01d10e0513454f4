"""The Kafka 2pc writer, from Arrow batches to pre-commit, against the client alone.

    python -m benchmarks kafka_writer

Sides, in one process, one transaction of all rows each, with the writer's own settings:

- ``produce loop``: ``confluent_kafka.Producer.produce`` for each record, over columns that are Python
  lists beforehand, and a flush: nothing is checked, nothing can be found again;
- ``2pc writer``: ours: checks the batches and their fit, hashes them, sends column by column, asks
  coordinator and partitions what they have;
- ``2pc writer, librdkafka``: the same with ``producer=librdkafka``, which makes a call for each record.

Producers are initialised before they are timed, as the writer has its own initialised by the epoch
before. Commits are not in it; how long that of an epoch of 8 transactions takes is told besides.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.configs import producer_settings
from abs_core.contracts import Task
from abs_core.model import Committable
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.columnar.choice import LIBRDKAFKA
from abs_sinks.kafka.librdkafka import Failures
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result
from tests.kit.kafka import make_topic

SIZES = 100, 1000
"""Bytes of a record's key and value."""
ROWS = 1_000_000
BAR = Bar(low=0.80)
PARTITIONS = 4
BATCH_ROWS = 10_000
HANDLES = 8
COMMITS = 10
_FULL_PAUSE = 0.02
LOOP, WRITER = "produce loop", "2pc writer"
ONE_BY_ONE = "2pc writer, librdkafka"


class Rows:
    """The same records as Arrow batches and as lists; their topic."""

    def __init__(self, bootstrap: str, rows: int, size: int) -> None:
        self.topic = f"bench-{secrets.token_hex(4)}"
        self.options = KafkaOptions.parse(
            {"kafka.bootstrap.servers": bootstrap, "topic": self.topic}
        )
        make_topic(self.options.kafka, self.topic, PARTITIONS)
        text = secrets.token_bytes(2 * size)
        self.keys = [b"%012d" % number for number in range(rows)]
        self.values = [text[n % size : n % size + size - 12] for n in range(rows)]
        whole = pa.table({"key": self.keys, "value": self.values})
        self.batches = whole.to_batches(max_chunksize=BATCH_ROWS)
        self.sink = KafkaSink(self.options, whole.schema, co_commit=False)
        one_by_one = replace(self.options, producer=LIBRDKAFKA)
        self.one_by_one = KafkaSink(one_by_one, whole.schema, co_commit=False)
        self._epoch = 0

    def loop(self) -> Sample:
        """What the client reaches alone: one transaction of all rows."""
        failures = Failures()
        producer = Producer(self._settings(failures))
        producer.init_transactions(60)
        producer.list_topics(self.topic, 60)
        with metered() as taken:
            producer.begin_transaction()
            self._produce(producer)
            while producer.flush(10):
                pass
        failures.raise_any(producer)
        producer.commit_transaction(60)
        return Sample(taken.wall_s, taken.cpu_s, len(self.values))

    def writer(self, sink: KafkaSink) -> Sample:
        """Ours; its producer was initialised while the run before was written."""
        with metered() as taken:
            committable = self.write(sink, 0, self.batches)
        sink.committer().commit([committable])
        self._epoch += 1
        return Sample(taken.wall_s, taken.cpu_s, len(self.values))

    def commits(self) -> list[float]:
        """Seconds that the commit of an epoch of ``HANDLES`` transactions takes, each time."""
        found = []
        for _ in range(COMMITS):
            given = [self.write(self.sink, number, self.batches[:1]) for number in range(HANDLES)]
            began = time.perf_counter()
            self.sink.committer().commit(given)
            found.append(time.perf_counter() - began)
            self._epoch += 1
        return found

    def write(self, sink: KafkaSink, partition: int, batches: list[pa.RecordBatch]) -> Committable:
        attempt = secrets.token_hex(8)
        task = Task("0" * 16, "bench", 1, self._epoch, partition, attempt, self._epoch - 1)
        writer = sink.writer(task)
        for batch in batches:
            writer.write(batch)
        found = writer.pre_commit()
        assert found is not None
        return found

    def close(self) -> None:
        self.sink.close()
        self.one_by_one.close()
        cluster(self.options.kafka).client().delete_topics([self.topic])

    def _settings(self, failures: Failures) -> dict[str, Any]:
        name = f"bench-{secrets.token_hex(4)}"
        return producer_settings(
            self.options.kafka, name, failures.report, self.options.patience.seconds
        )

    def _produce(self, producer: Producer) -> None:
        produce, topic = producer.produce, self.topic
        for key, value in zip(self.keys, self.values, strict=True):
            try:
                produce(topic, value, key)
            except BufferError:
                self._again(producer, key, value)

    def _again(self, producer: Producer, key: bytes, value: bytes) -> None:
        while True:
            producer.poll(_FULL_PAUSE)
            try:
                producer.produce(self.topic, value, key)
            except BufferError:
                continue
            return


def run(
    bootstrap: str, *, pairs: int, rows: int | None, tell: Tell, sizes: Sequence[int] = SIZES
) -> Iterator[Result]:
    """A result for each size of a record."""
    for size in sizes:
        data = Rows(bootstrap, rows or ROWS, size)
        sides = [
            Side(LOOP, data.loop),
            Side(WRITER, partial(data.writer, data.sink)),
            Side(ONE_BY_ONE, partial(data.writer, data.one_by_one)),
        ]
        samples = interleave(sides, pairs=pairs, warm_up=2, tell=tell)
        commits = data.commits()
        data.close()
        yield Result(
            name=f"kafka_writer, {size} bytes",
            unit="rows",
            samples=samples,
            comparisons=[
                Comparison(WRITER, LOOP, BAR),
                Comparison(ONE_BY_ONE, LOOP, BAR),
            ],
            facts={
                "rows": f"{len(data.values):,}",
                "partitions": PARTITIONS,
                f"commit of {HANDLES} transactions, median ms": round(median(commits) * 1000, 1),
                f"commit of {HANDLES} transactions, longest ms": round(max(commits) * 1000, 1),
            },
            notes=(
                "loop: its columns are Python lists already; nothing is checked or looked at",
                "CPU holds the broker's, a child of this process",
            ),
        )
