"""The option ``deadletter`` where no row is bad, against the same job without it; no Spark.

Each run is one epoch of two tasks that append, in batches of Spark's size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from abs_services import S3Service
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.s3 import S3Options, S3Sink
from benchmarks.kafka_jobs import fresh_topic
from benchmarks.one_epoch import Job, postgres_job
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result
from benchmarks.rows import SPARK_BATCH_ROWS, table
from benchmarks.s3_folder import Folder, fresh_folder
from benchmarks.target import Target

BAR = Bar(low=0.9)
ROWS = 400_000
TASKS = 2

Parts = list[list[pa.RecordBatch]]


def run(target: Target, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Compare both protocols of PostgreSQL that append, each with the option and without."""
    parts = _parts(table(rows or ROWS))

    def side(name: str, options: Mapping[str, str]) -> Side:
        job = postgres_job(target, name, options, parts[0][0].schema)

        def once() -> Sample:
            target.reset()
            return job.run(parts)

        return Side(name, once)

    sides = [
        side(name, {"protocol": protocol, **more})
        for protocol in ("2pc", "wal")
        for name, more in _both(protocol, "bench_dead")
    ]
    before = "no row is bad; not timed: TRUNCATE and CHECKPOINT before each run"
    return _result("dead_letters", sides, parts, pairs, tell, before)


def of_kafka(bootstrap: str, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """The same for topics."""
    whole = table(rows or ROWS)
    text = whole["id"].cast(pa.string())
    parts = _parts(pa.table({"key": text, "value": whole["name"]}))
    with ExitStack() as stack:
        dead = stack.enter_context(fresh_topic(bootstrap))
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-bench-wal-")))

        def side(name: str, options: Mapping[str, str]) -> Side:
            topic = stack.enter_context(fresh_topic(bootstrap))
            given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **options}
            job = Job(KafkaSink(KafkaOptions.parse(given), parts[0][0].schema), _word(name))
            stack.callback(job.close)
            return Side(name, lambda: job.run(parts))

        sides = [
            side(name, {"protocol": protocol, **more, **wal})
            for protocol, wal in (("2pc", {}), ("wal", {"wal": log.as_uri()}), ("idempotent", {}))
            for name, more in _both(protocol, dead)
        ]
        return _result("kafka_dead_letters", sides, parts, pairs, tell, "no row is bad")


def of_s3(service: S3Service, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """The same for folders, by format: in JSON each text is encoded once more, to judge it."""
    parts = _parts(table(rows or ROWS))
    for fileformat, bar in (("parquet", BAR), ("json", NO_BAR)):
        with fresh_folder(service) as folder:
            sides = [
                _s3_side(folder, name, parts, {"fileformat": fileformat, **given})
                for protocol in ("2pc", "wal", "idempotent")
                for name, more in _both(protocol, f"s3://{folder.bucket}/dead")
                for given in ({"protocol": protocol, **more},)
            ]
            name = f"s3_dead_letters, {fileformat}"
            yield _result(name, sides, parts, pairs, tell, "no row is bad", bar)


def _s3_side(folder: Folder, name: str, parts: Parts, options: Mapping[str, str]) -> Side:
    path = f"{folder.options['path']}/{_word(name)}"
    given = S3Options.parse({**folder.options, **options, "path": path})
    job = Job(S3Sink(given, parts[0][0].schema), _word(name))
    return Side(name, lambda: job.run(parts))


def _parts(rows: pa.Table) -> Parts:
    made = rows.combine_chunks()
    share = -(-made.num_rows // TASKS)
    return [
        made.slice(part * share, share).to_batches(max_chunksize=SPARK_BATCH_ROWS)
        for part in range(TASKS)
    ]


def _both(protocol: str, place: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The names and options of both sides of a comparison."""
    yield protocol, {}
    yield _with(protocol), {"deadletter": place}


def _with(protocol: str) -> str:
    return f"{protocol} with deadletter"


def _word(name: str) -> str:
    return name.replace(" ", "-")


def _result(
    name: str, sides: list[Side], parts: Parts, pairs: int, tell: Tell, note: str, bar: Bar = BAR
) -> Result:
    plain = [side.name for side in sides if not side.name.endswith(_with("").strip())]
    return Result(
        name=name,
        unit="rows",
        samples=interleave(sides, pairs=pairs, warm_up=1, tell=tell),
        comparisons=[Comparison(_with(protocol), protocol, bar) for protocol in plain],
        facts={"rows of an epoch": f"{sum(b.num_rows for part in parts for b in part):,}"},
        notes=(note,),
    )
