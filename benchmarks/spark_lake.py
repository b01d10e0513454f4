"""Whole Spark streaming jobs into tables in a folder: ours, and delta-spark's and iceberg-spark's.

One session runs them all, of a Spark that has both libraries' jars and this package. All sinks are
exactly once while their table keeps its old states, and the others' only while nothing else writes the
epochs of their query.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from benchmarks.meter import metered
from benchmarks.other_spark import Installed, Session, sample_of, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result, epoch_times
from benchmarks.rows import SPARK_SCHEMA, write_epochs
from benchmarks.spark_s3 import EPOCHS, FILES, UNCOUNTED, Input

ROWS = 500_000
DELTA, DELTA_SPARK = "abs-delta", "delta-spark"
ICEBERG, ICEBERG_SPARK = "abs-iceberg", "iceberg-spark"
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.peer.type": "hadoop",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A new table.

    Args:
        sql: what makes it.
        count: how many rows a foreign reader finds.
    """

    format: str
    options: dict[str, str]
    count: Callable[[], int]
    sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One side: the job with one sink, each time into a new table."""

    session: Session
    input: Input
    target: Callable[[], Target]

    def run(self) -> Sample:
        target = self.target()
        asked = {
            "format": target.format,
            "options": target.options,
            "sql": target.sql,
            "input": str(self.input.folder),
            "schema": SPARK_SCHEMA,
            "files": FILES,
            "register": target.format.startswith("abs-"),
        }
        with metered() as taken:
            epochs = self.session.ask(asked)["epochs"]
        wanted = self.input.rows * (UNCOUNTED + EPOCHS)
        if (found := target.count()) != wanted:
            raise AssertionError(f"{target.format}: {found} rows are there, not {wanted}")
        return sample_of(epochs, taken.cpu_s, uncounted=UNCOUNTED)


def run(other: Installed, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """The same job with each sink."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as name, _session(other, name) as spark:
        given = Input(Path(name) / "input", rows or ROWS)
        write_epochs(given.folder, rows=given.rows, files=FILES, epochs=UNCOUNTED + EPOCHS)
        folder = Path(name)
        targets = {
            DELTA: lambda: _delta(folder, "abs-delta", {"createtable": "true"}),
            DELTA_SPARK: lambda: _delta(folder, "delta", {}),
            ICEBERG: lambda: _iceberg(folder),
            ICEBERG_SPARK: lambda: _iceberg_spark(folder),
        }
        sides = [Side(name, Job(spark, given, target).run) for name, target in targets.items()]
        samples = interleave(sides, pairs=pairs, tell=tell)
    yield Result(
        name="spark_lake",
        unit="rows",
        samples=samples,
        comparisons=[Comparison(DELTA, DELTA_SPARK), Comparison(ICEBERG, ICEBERG_SPARK)],
        facts={
            "rows per epoch": f"{given.rows:,}",
            "tasks": FILES,
            **epoch_times(samples, EPOCHS),
        },
        notes=(
            f"wall is triggerExecution of {EPOCHS} epochs; the first of each run is left out",
            "CPU is of the whole query, all processes; its share by epochs",
            "our formats are registered (abs_spark.register), as users are asked to",
            "tables in a local folder; their own defaults (zstd, and for delta-spark snappy)",
        ),
    )


@contextmanager
def _session(other: Installed, warehouse: str) -> Iterator[Session]:
    conf = {**_CONF, "spark.sql.catalog.peer.warehouse": f"{warehouse}/peer"}
    given = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    with session("write_job.py", other, {"PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"}) as spark:
        yield spark


def _delta(folder: Path, form: str, options: dict[str, str]) -> Target:
    path = str(folder / secrets.token_hex(6))
    count: Callable[[], int] = lambda: DeltaTable(path).to_pyarrow_dataset().count_rows()  # noqa: E731
    return Target(form, {"path": path, **options}, count)


def _iceberg(folder: Path) -> Target:
    from benchmarks.lake_s3 import catalog_in

    mine = folder / secrets.token_hex(6)
    mine.mkdir()
    return Target("abs-iceberg", catalog_in(mine, f"file://{mine}"), _counting(mine / "db" / "t"))


def _iceberg_spark(folder: Path) -> Target:
    name = f"t{secrets.token_hex(6)}"
    made = f"CREATE TABLE peer.db.{name} ({SPARK_SCHEMA}) USING iceberg"
    options = {"path": f"peer.db.{name}", "fanout-enabled": "true"}
    count = _counting(folder / "peer" / "db" / name)
    return Target("iceberg", options, count, ("CREATE NAMESPACE IF NOT EXISTS peer.db", made))


def _counting(table: Path) -> Callable[[], int]:
    def count() -> int:
        newest = max((table / "metadata").glob("*.metadata.json"), key=lambda p: p.stat().st_mtime)
        found: Any = StaticTable.from_metadata(str(newest))
        return sum(task.file.record_count for task in found.scan().plan_files())

    return count
