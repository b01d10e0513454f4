"""A job by ``foreachBatch``, with its checkpoint and filled table, goes on by the page's lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit.command import abs_
from tests.spark.jobs.stream_files import WORKER_TRIES
from tests.spark.test_spark_snippets import PAGES, blocks

pytestmark = [pytest.mark.spark, pytest.mark.services]

JDBC = '    batch.write.mode("append").jdbc(jdbc_url, "payments", properties=driver)\n'


class Moving:
    """The job of the page, on a folder of JSON files."""

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        self.folder, self.url, self.rows = folder, url, set[tuple[int, float]]()
        self.names = {"spark": spark, "folder": str(folder), "url": url, "by_jdbc": self.by_jdbc}
        (page,) = [path for path in PAGES if path.name == "from-your-job.md"]
        self.old, self.new = [text for language, text in blocks(page) if language == "python"]
        # Spark's JDBC driver is a jar that no other test needs: what it does is done by psycopg here.
        assert JDBC in self.old
        self.old = self.old.replace(JDBC, "    by_jdbc(batch)\n")
        (folder / "in").mkdir()

    def by_jdbc(self, batch: DataFrame) -> None:
        with psycopg.connect(self.url) as connection:
            for row in batch.collect():
                connection.execute("insert into payments values (%s, %s)", tuple(row))

    def add(self, number: int) -> None:
        rows = [{"id": number * 10 + n, "amount": n / 4} for n in range(5)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "in" / f"{number}.json").write_text(text)
        self.rows |= {(int(row["id"]), row["amount"]) for row in rows}

    def run(self, lines: str) -> None:
        for left in reversed(range(WORKER_TRIES)):
            try:
                exec(lines, self.names)
            except Exception as error:
                if left == 0 or "failed to connect back" not in str(error):
                    raise
            else:
                return

    def newest(self, kind: str) -> int:
        return max(int(path.name) for path in (self.folder / "checkpoint" / kind).glob("[0-9]*"))

    def is_exact(self) -> None:
        with psycopg.connect(self.url) as connection:
            found = connection.execute("select id, amount from payments").fetchall()
        assert sorted(found) == sorted(self.rows)


@pytest.fixture
def moving(tmp_path: Path, database: str, spark: SparkSession) -> Moving:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (id bigint, amount double precision)")
    return Moving(spark, tmp_path, database)


def test_a_job_by_foreach_batch_goes_on_and_back_without_a_lost_or_doubled_row(
    moving: Moving,
) -> None:
    for number in range(2):
        moving.add(number)
    moving.run(moving.old)
    assert moving.newest("commits") == moving.newest("offsets") == 1, "as the page asks"
    moving.is_exact()
    moving.add(2)
    moving.run(moving.new)
    moving.is_exact()
    assert moving.newest("commits") == 2
    for name in ("2", ".2.crc"):  # the driver died before Spark's note: it writes batch 2 again
        (moving.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    moving.add(3)
    moving.run(moving.new)
    moving.is_exact()
    moving.add(4)
    moving.run(moving.old)  # and back
    moving.is_exact()
    removed = abs_("job", "remove", "payments", "--url", moving.url, "--yes")
    assert removed.exit_code == 0, removed.output
    shutil.rmtree(moving.folder / "checkpoint" / "abs")
    with psycopg.connect(moving.url) as connection:
        assert connection.execute("select count(*) from abs.register").fetchone() == (0,)
    moving.is_exact()


def test_planted_a_new_checkpoint_writes_every_row_a_second_time(moving: Moving) -> None:
    moving.add(0)
    moving.run(moving.old)
    shutil.rmtree(moving.folder / "checkpoint")
    moving.run(moving.new)
    with pytest.raises(AssertionError):
        moving.is_exact()
