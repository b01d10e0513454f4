"""Records with a schema: Avro from columns, against bytes of the same size and Spark's own way.

    python -m benchmarks kafka_avro --spark-python V/bin/python --spark-jars DIR

**In one process**, one transaction of all rows each: the 2pc writer with ``value.format=avro``, against
the same writer with the same records as bytes, encoded beforehand.

**Whole Spark jobs** from parquet files to a topic (``kafka_jobs``): ``abs-kafka`` with Avro, the same
with bytes of the same size, and, where another Spark is named, Spark's own sink with ``to_avro``, which
is at least once. ``DIR`` has, besides its Kafka jars, spark-avro_2.13 of its version.

A row: a long, two strings, a double and a long that is null in two rows of three; 75 bytes of Avro.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from abs_clients.avro.registry import header_of
from abs_clients.avro.schema import parsed
from abs_core.contracts import Task
from abs_services.registry import StandIn
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.avro.encode import encode
from benchmarks import kafka_jobs
from benchmarks.kafka_jobs import EPOCHS, FILES, UNCOUNTED, Input, Job
from benchmarks.meter import metered
from benchmarks.other_spark import Installed, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result
from tests.kit.kafka import make_topic

ROWS, ROWS_OF_AN_EPOCH = 500_000, 500_000
BATCH_ROWS, PARTITIONS = 10_000, 4
BAR = Bar(low=0.80)
AVRO, RAW = "2pc writer, avro", "2pc writer, bytes"
OURS, BYTES, SPARKS = "abs-kafka, avro", "abs-kafka, bytes", "kafka (JVM), to_avro"
DDL = "id bigint, name string, text string, price double, maybe bigint"
FIELDS = {"id": "long", "name": "string", "text": "string", "price": "double", "maybe": "long"}
SCHEMA = {
    "type": "record",
    "name": "bench.Row",
    "fields": [{"name": name, "type": ["null", kind]} for name, kind in FIELDS.items()],
}


def table(first: int, rows: int) -> pa.Table:
    """Rows from a number on."""
    numbers = np.arange(first, first + rows)
    given: Mapping[str, Any] = {
        "id": numbers,
        "name": [f"name-{n % 9973}" for n in numbers],
        "text": [f"{n:040d}" for n in numbers],
        "price": numbers * 1.25,
        "maybe": pa.array(numbers, mask=numbers % 3 != 0),
    }
    return pa.table(given)


class Writers:
    """The same records as structs and as bytes; a topic and a sink for each."""

    def __init__(self, bootstrap: str, registry: StandIn, rows: int) -> None:
        self.rows, self._epoch = rows, 0
        structs = table(0, rows).to_struct_array().combine_chunks()
        avro, raw = (f"bench-{secrets.token_hex(4)}" for _ in range(2))
        number = registry.add(f"{avro}-value", SCHEMA)
        node = parsed(json.dumps(SCHEMA))
        records = encode(node, structs, header_of(number), "value")
        self.size = records.nbytes // rows
        more = {"value.format": "avro", "registry.url": registry.url}
        self.avro = self._sink(bootstrap, avro, structs, more)
        self.raw = self._sink(bootstrap, raw, records, {})

    def _sink(
        self, bootstrap: str, topic: str, values: pa.Array, more: Mapping[str, str]
    ) -> tuple[KafkaSink, list[pa.RecordBatch]]:
        options = KafkaOptions.parse({"kafka.bootstrap.servers": bootstrap, "topic": topic, **more})
        make_topic(options.kafka, topic, PARTITIONS)
        batches = pa.table({"value": values}).to_batches(max_chunksize=BATCH_ROWS)
        return KafkaSink(options, batches[0].schema, co_commit=False), batches

    def write(self, sink: KafkaSink, batches: list[pa.RecordBatch]) -> Sample:
        """One task; its producer was initialised while the one before was written."""
        attempt = secrets.token_hex(8)
        task = Task("0" * 16, "bench", 1, self._epoch, 0, attempt, self._epoch - 1)
        with metered() as taken:
            writer = sink.writer(task)
            for batch in batches:
                writer.write(batch)
            committable = writer.pre_commit()
        assert committable is not None
        sink.committer().commit([committable])
        self._epoch += 1
        return Sample(taken.wall_s, taken.cpu_s, self.rows)

    def close(self) -> None:
        for sink, _ in (self.avro, self.raw):
            sink.close()


def run(
    bootstrap: str, other: Installed | None, *, pairs: int, rows: int | None, tell: Tell
) -> Iterator[Result]:
    """The writers, and the jobs."""
    with StandIn() as registry:
        yield _writers(bootstrap, registry, pairs, rows, tell)
        yield _jobs(bootstrap, registry, other, pairs, rows, tell)


def _writers(bootstrap: str, registry: StandIn, pairs: int, rows: int | None, tell: Tell) -> Result:
    with closing(Writers(bootstrap, registry, rows or ROWS)) as given:
        sides = [
            Side(AVRO, partial(given.write, *given.avro)),
            Side(RAW, partial(given.write, *given.raw)),
        ]
        samples = interleave(sides, pairs=pairs, warm_up=2, tell=tell)
        return Result(
            name="kafka_avro, writer",
            unit="rows",
            samples=samples,
            comparisons=[Comparison(AVRO, RAW, BAR)],
            facts={"rows": f"{given.rows:,}", "bytes of a value": given.size},
            notes=("CPU holds the broker's, a child of this process",),
        )


def _files(folder: Path, rows: int, number: int) -> tuple[Input, Input]:
    """The files of all epochs, with columns and with their encoding."""
    found = []
    node = parsed(json.dumps(SCHEMA))
    for name in ("avro", "bytes"):
        (folder / name).mkdir()
        size = 0
        for part in range(FILES):
            given = table(part * rows // FILES, rows // FILES)
            if name == "bytes":
                structs = given.to_struct_array().combine_chunks()
                values = encode(node, structs, header_of(number), "value")
                size, given = values.nbytes // len(values), pa.table({"value": values})
            first = folder / name / f"e0-{part}.parquet"
            pq.write_table(given, first)
            for epoch in range(1, UNCOUNTED + EPOCHS):
                os.link(first, folder / name / f"e{epoch}-{part}.parquet")
        found.append(Input(folder / name, rows, size))
    avro, raw = found
    return Input(avro.folder, rows, raw.size), raw


def _jobs(
    bootstrap: str,
    registry: StandIn,
    other: Installed | None,
    pairs: int,
    rows: int | None,
    tell: Tell,
) -> Result:
    own = {
        "value.format": "avro",
        "registry.url": registry.url,
        "value.schema": json.dumps(SCHEMA),
        "value.subject.name.strategy": "record",
    }
    number = registry.add("bench.Row", SCHEMA)
    struct, binary = ("struct(*) AS value",), "value binary"
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        columns, encoded = _files(Path(folder), rows or ROWS_OF_AN_EPOCH, number)
        with session(kafka_jobs.JOB) as spark:
            jobs = {
                OURS: Job(
                    spark, bootstrap, columns, "abs-kafka", True, own, schema=DDL, select=struct
                ),
                BYTES: Job(spark, bootstrap, encoded, "abs-kafka", True, schema=binary),
            }
            bars = {OURS: BAR, BYTES: NO_BAR}
            if other is None:
                return kafka_jobs.compared("kafka_avro, job", jobs, bars, pairs, tell)
            to_avro = (f"to_avro(struct(*), '{json.dumps(SCHEMA)}') AS value",)
            with session(kafka_jobs.JOB, other) as theirs:
                jobs[SPARKS] = Job(
                    theirs, bootstrap, columns, "kafka", False, schema=DDL, select=to_avro
                )
                found = kafka_jobs.compared("kafka_avro, job", jobs, bars, pairs, tell)
            wanted = [Comparison(OURS, BYTES, BAR), Comparison(OURS, SPARKS, NO_BAR)]
            return replace(found, comparisons=wanted)
