"""Parts of a checkpoint that are restored alone, or lost: no row is lost or doubled without a word.

Each part of a query's checkpoint goes back to a time of its own: ``commits/`` of an older time beside
``offsets/`` of a newer one, trimmed offsets, the query's id, the log of files, our certificate.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests import sample
from tests.kit.restored_parts import files
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

PARTS = ("commits", "offsets", "metadata", "sources", "abs", "abs-files")
Put = Callable[[], object]


class Query:
    """A query from a folder of files into a Delta table, whose register lies beside the table.

    Args:
        random: draws its ways: with a name or without, as a format or in ``foreachBatch``.
    """

    def __init__(self, spark: SparkSession, folder: Path, random: Random) -> None:
        self._spark, self._random = spark, random
        self._input, self._table = folder / "input", folder / "table"
        self.checkpoint = folder / "checkpoint"
        self._input.mkdir()
        self.sent: list[int] = []
        self.story: list[str] = []
        options = {"path": str(self._table), "createtable": "true"}
        named = {"job": "job"} if random.random() < 0.6 else {}
        source = {
            "path": str(self._input),
            "checkpointLocation": str(self.checkpoint),
            "maxFilesPerTrigger": "1",
        }
        by_function = random.random() < 0.5
        sinks = [{"format": "abs-delta", "options": options}] if by_function else []
        self._job = Job(
            input="",
            checkpoint=str(self.checkpoint),
            scratch=str(folder / "scratch"),
            format="abs-delta",
            options=named if by_function else {**options, **named},
            source="abs-files",
            source_options=source,
            sinks=sinks,
        )
        self.story.append(f"{named or 'no name'}, {'epoch' if by_function else 'format'}")

    def send(self, files: int) -> None:
        for _ in range(files):
            first = len(self.sent)
            rows = list(range(first, first + self._random.randint(1, 3)))
            pq.write_table(pa.table({"id": rows}), self._input / f"{first:06d}.parquet")
            self.sent += rows

    def run(self) -> str:
        """Run it until all files are read; what it says if it stops."""
        try:
            run_to_end(self._spark, self._job)
        except PySparkException as error:
            self.story.append(f"told: {str(error)[:300]}")
            return str(error)
        self.story.append(f"run, {len(self.sent)} rows")
        return ""

    def kept(self) -> dict[str, Put]:
        return {part: files(self.checkpoint, f"{part}*", f"{part}/**/*")() for part in PARTS}

    def seen(self) -> Counter[int]:
        if not (self._table / "_delta_log").exists():
            return Counter()
        return Counter(DeltaTable(str(self._table)).to_pyarrow_table()["id"].to_pylist())

    def check(self, *, whole: bool) -> None:
        seen = self.seen()
        assert max(seen.values(), default=1) == 1, self.failed("a row is there twice")
        if whole:
            assert seen.keys() == set(self.sent), self.failed("rows are missing")

    def failed(self, what: str) -> str:
        return "\n".join([what, *self.story])

    def lose(self, part: str) -> None:
        """The part is gone."""
        place = self.checkpoint / part
        place.unlink(missing_ok=True) if place.is_file() else shutil.rmtree(place, True)


def history(spark: SparkSession, folder: Path, random: Random) -> None:
    query = Query(spark, folder, random)
    kept = []
    for _ in range(random.randint(2, 4)):
        query.send(random.randint(1, 2))
        assert not query.run(), query.failed("nothing has gone back yet")
        kept.append(query.kept())
    for part in random.sample(PARTS, random.choice([1, 1, 2, 2, 3])):
        time = random.randrange(-1, len(kept) - 1)
        query.story.append(f"{part} goes back to time {time} of {len(kept)}")
        if time < 0:
            query.lose(part)
        else:
            kept[time][part]()
    told, went_on = "", False
    for _ in range(random.randint(1, 2)):
        query.send(random.randint(0, 2))
        told = query.run()
        went_on |= not told
    query.check(whole=not told)
    if told and not went_on:
        query.story.append("the newest state of all parts is put back")
        for part in PARTS:
            query.lose(part)
            kept[-1][part]()
        assert not query.run(), query.failed("it does not go on")
        query.check(whole=True)


@pytest.mark.parametrize("number", range(24))
def test_parts_of_a_checkpoint_that_go_back_are_told_or_nothing_is_lost(
    number: int, spark: SparkSession, tmp_path: Path
) -> None:
    history(spark, tmp_path, Random(f"checkpoint {number} {sample.seed()}"))
