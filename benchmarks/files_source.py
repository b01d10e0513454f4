"""Parquet files through abs-files, against pyarrow alone and against Spark's own file source.

Sides of the first comparison, in this process, one file after the other:

- ``pyarrow``: ``ParquetFile.iter_batches`` and nothing else: batches are counted and dropped;
- ``source``: ``FileSource``: list, pin, plan, open, read, look at each file again.

Sides of the second, in one warm Spark session of two threads, which reads all files into nothing, every
column of every row: ``abs-files`` (Python workers that send Arrow batches to the JVM) and ``parquet``,
which is Spark's own (JVM, vectorised).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from abs_core.source import Limit
from abs_sources.files import FileOptions, FileSource
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Sample
from benchmarks.report import Comparison, Result

FILES, ROWS = 8, 2_000_000
BATCH = 65_536
PYARROW, SOURCE, OURS, SPARKS = "pyarrow", "source", "abs-files", "parquet (JVM)"


class Folder:
    """A folder of Parquet files, and the ways to read it."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.path = folder
        self.rows = rows // FILES * FILES
        folder.mkdir()
        start = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(FILES):
            ids = range(number * self.rows // FILES, (number + 1) * self.rows // FILES)
            table = pa.table(
                {
                    "id": pa.array(ids, pa.int64()),
                    "word": [f"word {n % 10_007} of many" for n in ids],
                    "x": [n / 7 for n in ids],
                    "at": pa.array(
                        [start + timedelta(seconds=n) for n in ids], pa.timestamp("us", "UTC")
                    ),
                }
            )
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=131_072)

    def pyarrow(self) -> Sample:
        """Batches as pyarrow's reader gives them, dropped."""
        rows = 0
        with metered() as taken:
            for path in sorted(self.path.iterdir()):
                for batch in pq.ParquetFile(path, pre_buffer=True).iter_batches(BATCH):
                    rows += batch.num_rows
        return self._sample(taken.wall_s, taken.cpu_s, rows)

    def source(self) -> Sample:
        """Arrow batches, by the contract of a source."""
        rows = 0
        with metered() as taken:
            options = FileOptions.parse({"path": str(self.path)}, streaming=False)
            source = FileSource(options)
            start = source.initial()
            for split in source.splits(start, source.latest(start, Limit())):
                reader = source.open(split)
                while not reader.finished:
                    batch = reader.read(1.0)
                    rows += 0 if batch is None else batch.num_rows
                reader.close()
        return self._sample(taken.wall_s, taken.cpu_s, rows)

    def by(self, spark: SparkSession, form: str) -> Callable[[], Sample]:
        """Read by Spark."""

        def run() -> Sample:
            seen = Observation()
            with metered() as taken:
                frame = spark.read.format(form).load(str(self.path))
                used = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
                used.write.format("noop").mode("overwrite").save()
            return self._sample(taken.wall_s, taken.cpu_s, int(seen.get["rows"]))

        return run

    def _sample(self, wall_s: float, cpu_s: float, rows: int) -> Sample:
        if rows != self.rows:
            raise AssertionError(f"{rows} rows were read, {self.rows} were written")
        return Sample(wall_s, cpu_s, rows)


def run(spark: SparkSession, scratch: Path, *, pairs: int, rows: int | None, tell: Tell) -> Result:
    """One result; the files are in a new folder of ``scratch``."""
    folder = Folder(scratch / "parquet", rows or ROWS)
    sides = [
        Side(PYARROW, folder.pyarrow),
        Side(SOURCE, folder.source),
        Side(OURS, folder.by(spark, "abs-files")),
        Side(SPARKS, folder.by(spark, "parquet")),
    ]
    return Result(
        name="files_source",
        unit="rows",
        samples=interleave(sides, pairs=pairs, warm_up=2, tell=tell),
        comparisons=[
            Comparison(SOURCE, PYARROW),
            Comparison(OURS, SPARKS),
            Comparison(OURS, SOURCE),
        ],
        facts={"rows": f"{folder.rows:,}", "files": FILES},
        notes=("Spark's reader never leaves the JVM; ours sends every batch to it over a socket",),
    )
