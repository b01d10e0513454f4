"""Whole Spark streaming jobs into Parquet files: ours on S3, exactly once, against Spark's file sink.

Spark's own writes to a local folder, and through hadoop-aws to the same S3 server where Spark's Ivy
can fetch that (once, 690 MB, into the cache folder). One session runs them all. Spark's sink is exactly
once only for readers who go by its ``_spark_metadata``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import pyarrow.parquet as pq

from abs_services import S3Service
from abs_services.paths import cache_folder
from benchmarks.meter import metered
from benchmarks.other_spark import THIS, Session, sample_of, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result, epoch_times
from benchmarks.rows import SPARK_SCHEMA, write_epochs
from benchmarks.s3_folder import fresh_folder
from benchmarks.session import BATCHES_BY_ROWS

FILES = 2
"""Of an epoch: one for each task."""
UNCOUNTED, EPOCHS, WARM_UP = 1, 3, 1
ROWS = 1_000_000
JOB = "write_job.py"
OURS, WAL = "abs-s3, 2pc", "abs-s3, wal"
BY_ROWS = "abs-s3, 2pc, batches by rows"
LOCAL, S3A = "parquet, local folder", "parquet, s3a"


@dataclass(frozen=True, slots=True)
class Input:
    """Parquet files for all epochs of a job, of ``rows`` rows each."""

    folder: Path
    rows: int


Target = tuple[str, Mapping[str, str], Mapping[str, str], Callable[[], int]]
"""Format and options of a sink, settings of the session, and how many rows are there."""


@dataclass(frozen=True, slots=True)
class Job:
    """One side: the job with one sink, each time into an empty folder."""

    session: Session
    input: Input
    target: Callable[[], Iterator[Target]]

    def run(self) -> Sample:
        with contextmanager(self.target)() as (form, options, conf, count):
            asked = {
                "format": form,
                "options": dict(options),
                "conf": dict(conf),
                "input": str(self.input.folder),
                "schema": SPARK_SCHEMA,
                "files": FILES,
                "register": form.startswith("abs-"),
            }
            with metered() as taken:
                epochs = self.session.ask(asked)["epochs"]
            wanted = [self.input.rows] * (UNCOUNTED + EPOCHS)
            if [epoch["rows"] for epoch in epochs] != wanted or (found := count()) != sum(wanted):
                raise AssertionError(f"{found} rows are there, not {sum(wanted)}")
        return sample_of(epochs, taken.cpu_s, uncounted=UNCOUNTED)


def run(service: S3Service, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """The same job with each sink, in one session."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as scratch, _session() as (spark, s3a):
        given = Input(Path(scratch) / "input", rows or ROWS)
        write_epochs(given.folder, rows=given.rows, files=FILES, epochs=UNCOUNTED + EPOCHS)
        targets: dict[str, Callable[[], Iterator[Target]]] = {
            OURS: lambda: _ours(service, "2pc"),
            BY_ROWS: lambda: _ours(service, "2pc", BATCHES_BY_ROWS),
            WAL: lambda: _ours(service, "wal"),
            LOCAL: lambda: _local(Path(scratch)),
        }
        if s3a:
            targets[S3A] = lambda: _by_hadoop(service)
        sides = [Side(name, Job(spark, given, target).run) for name, target in targets.items()]
        samples = interleave(sides, pairs=pairs, warm_up=WARM_UP, tell=tell)
    others = [name for name in targets if name not in (OURS, BY_ROWS)]
    return Result(
        name="spark_s3",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(side, name) for side in (OURS, BY_ROWS) for name in others],
        facts={
            "rows per epoch": f"{given.rows:,}",
            "tasks": FILES,
            **epoch_times(samples, EPOCHS),
        },
        notes=(
            f"wall is triggerExecution of {EPOCHS} epochs; the first of each run is left out",
            "CPU is of the whole query, all processes and the S3 server; its share by epochs",
            "the S3 server shares the machine's cores with Spark; the local folder needs none",
            *(() if s3a else ("hadoop-aws could not be resolved: no side by s3a",)),
        ),
    )


def _ours(
    service: S3Service, protocol: str, conf: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Target]:
    with fresh_folder(service) as folder:
        yield "abs-s3", {**folder.options, "protocol": protocol}, conf, folder.count


def _local(scratch: Path) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        files = Path(name) / "rows"

        def count() -> int:
            found = files.glob("*.parquet")
            return sum(pq.ParquetFile(path).metadata.num_rows for path in found)

        yield "parquet", {"path": str(files)}, {}, count


def _by_hadoop(service: S3Service) -> Iterator[Target]:
    with fresh_folder(service) as folder:
        conf = {
            "fs.s3a.endpoint": service.endpoint,
            "fs.s3a.endpoint.region": service.region,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": service.access_key,
            "fs.s3a.secret.key": service.secret_key,
        }
        yield "parquet", {"path": f"s3a://{folder.bucket}/rows"}, conf, folder.count


@contextmanager
def _session() -> Iterator[tuple[Session, bool]]:
    """A session, and whether hadoop-aws is on board."""
    keys = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    packages = (
        f"--packages org.apache.hadoop:hadoop-aws:{_hadoop()} "
        f"--conf spark.jars.ivy={cache_folder() / 'ivy'} pyspark-shell"
    )
    started = session(JOB, THIS, {**keys, "PYSPARK_SUBMIT_ARGS": packages})
    try:
        spark = started.__enter__()
    except AssertionError:
        with session(JOB, THIS, keys) as spark:
            yield spark, False
        return
    try:
        yield spark, True
    finally:
        started.__exit__(None, None, None)


def _hadoop() -> str:
    """The version of Hadoop in this Spark: hadoop-aws must be of the same."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")
