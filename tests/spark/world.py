"""What the Spark tests write, where, and how they look at what has become of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from abs_cli.moving import rename
from abs_core.model import JobState
from abs_sinks.postgres import PostgresOptions, PostgresRegister, PostgresSink
from tests.spark.drivers import copy_checkpoint
from tests.spark.jobs.stream_files import Job

_START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = "t"
JOB = "job"

WAYS = {
    "2pc": {"protocol": "2pc"},
    "wal": {"protocol": "wal"},
    "wal-upsert": {"protocol": "wal", "write": "upsert", "key": "id"},
    "idempotent": {"protocol": "idempotent", "write": "upsert", "key": "id"},
}
"""Every protocol with every write it can do; the name is for the test's id."""

ARROW = pa.schema([("id", pa.int64()), ("word", pa.string()), ("at", pa.timestamp("us", "UTC"))])

Row = tuple[int, str, datetime]


@dataclass(frozen=True)
class World:
    """A folder with input files and a checkpoint, and a database with a table.

    Args:
        folder: of this test.
        url: of the database, with its password.
        way: options of protocol and write.
    """

    folder: Path
    url: str
    way: tuple[tuple[str, str], ...]

    @property
    def job(self) -> Job:
        options = {"dbtable": TABLE, "job": JOB, **dict(self.way)}
        return Job(
            input=str(self.folder / "input"),
            checkpoint=str(self.folder / "checkpoint"),
            scratch=str(self.folder / "scratch"),
            options=options,
        )

    def epoch_job(self, sinks: list[dict[str, Any]]) -> Job:
        """The job, by ``abs_spark.epoch``."""
        return replace(self.job, sinks=sinks)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def with_checkpoint_copy(self, name: str) -> World:
        """The same world, with a checkpoint and an input of its own, copied as they are now."""
        other = self.folder / name
        copy_checkpoint(self.checkpoint, other / "checkpoint")
        return replace(self, folder=other)

    def add_file(self, number: int, rows: int = 40) -> list[Row]:
        """Put one input file in place, at once; its rows."""
        content = rows_of(number, rows)
        columns = [list(column) for column in zip(*content, strict=True)] or [[], [], []]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], ARROW)
        self.put(number, table)
        return content

    def put(self, number: int, table: pa.Table) -> None:
        """Put any table in place as an input file."""
        folder = Path(self.job.input)
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{number:04d}"
        pq.write_table(table, hidden)
        # Spark takes files by their times, and of one millisecond in any order.
        newest = max((path.stat().st_mtime for path in folder.glob("*.parquet")), default=0.0)
        put_at = max(time.time(), newest + 0.01)
        os.utime(hidden, (put_at, put_at))
        hidden.rename(folder / f"{number:04d}.parquet")

    def add_files(self, numbers: Iterable[int], rows: int = 40) -> list[Row]:
        return [row for number in numbers for row in self.add_file(number, rows)]

    def forget_commits(self, newest: int) -> None:
        """Delete the newest files under the checkpoint's ``commits/``."""
        commits = self.checkpoint / "commits"
        numbers = sorted(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        for number in numbers[-newest:]:
            (commits / str(number)).unlink()
            (commits / f".{number}.crc").unlink(missing_ok=True)

    def make_table(self) -> None:
        """The target; with a key only where rows are upserted, so that doubles can be seen."""
        key = ", primary key (id)" if dict(self.way).get("write") == "upsert" else ""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"create table {TABLE} (id bigint, word text, at timestamptz{key})")

    def alter(self, change: str) -> None:
        """Alter the target, as somebody does beside the query."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"alter table {TABLE} {change}")

    def rows(self) -> Counter[Row]:
        """What a reader sees."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("set time zone 'UTC'")
            return Counter(connection.execute(f"select id, word, at from {TABLE}").fetchall())

    def count(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(f"select count(*) from {TABLE}").fetchone()
        return 0 if found is None else int(found[0])

    def holds(self, expected: Iterable[Row]) -> None:
        """Assert that the table has exactly these rows, each once."""
        wanted, found = Counter(expected), self.rows()
        missing, extra = wanted - found, found - wanted
        assert not missing, f"{missing.total()} rows are missing: {list(missing)[:3]}"
        assert not extra, f"{extra.total()} rows are too many: {list(extra)[:3]}"

    def in_doubt(self) -> int:
        """How many prepared transactions the database has."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(
                "select count(*) from pg_prepared_xacts where database = current_database()"
            ).fetchone()
        return 0 if found is None else int(found[0])

    def left_behind(self, job: str = JOB) -> list[str]:
        """What the target still holds for the job besides rows and register."""
        sink = PostgresSink(self._options, ARROW)
        doubts = [doubt.detail for doubt in sink.committer().in_doubt(job)]
        sink.close()
        return doubts

    def rename_job(self, new: str) -> None:
        """As `abs register rename` does."""
        sink = PostgresSink(self._options, ARROW)
        rename(sink.register(), sink.committer(), JOB, new)
        sink.close()

    @property
    def _options(self) -> PostgresOptions:
        return PostgresOptions.parse({"url": self.url, **self.job.options})

    def state(self, job: str = JOB) -> JobState | None:
        """The job's register."""
        stored = PostgresRegister(self._options).load(job)
        return None if stored is None else stored.state

    def generation(self) -> int:
        """How many runs have started."""
        state = self.state()
        return 0 if state is None else state.generation

    def frontier(self, job: str = JOB) -> int:
        """The last finished epoch; -1 before the first."""
        state = self.state(job)
        return -1 if state is None or state.frontier is None else state.frontier


def rows_of(number: int, rows: int = 40) -> list[Row]:
    """The rows of one input file."""
    first = number * 1000
    return [(n, f"word {n}", _START + timedelta(seconds=n)) for n in range(first, first + rows)]
