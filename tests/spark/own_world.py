"""A job with a write of its own, and a look at what its target has."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from abs_core.crash import VARIABLE, CrashPoint
from tests.spark.drivers import Session, interpreter, until
from tests.spark.jobs import own_write
from tests.spark.jobs.own_write import OwnJob, start
from tests.spark.jobs.stream_files import ended

ROWS = 20


def _sqlite(place: str) -> dict[int, int]:
    with closing(sqlite3.connect(place)) as db:
        return dict(db.execute("SELECT account, amount FROM balances"))


def _duckdb(place: str) -> dict[int, int]:
    import duckdb

    with duckdb.connect(place) as db:
        return dict(db.execute("SELECT account, amount FROM balances").fetchall())


def _postgresql(place: str) -> dict[int, int]:
    with psycopg.connect(place) as db:
        return dict(db.execute("SELECT account, amount FROM balances").fetchall())


def _delta(place: str) -> dict[int, int]:
    from deltalake import DeltaTable

    rows = DeltaTable(place).to_pyarrow_table().to_pylist()
    return {row["account"]: row["amount"] for row in rows}


_CHDB = """
import json, sys
from chdb.session import Session
print(Session(sys.argv[1]).query("SELECT account, amount FROM balances", "JSONCompactEachRow"))
"""


def _clickhouse(place: str) -> dict[int, int]:
    """By the Python that has it: the tests' has not."""
    command = [interpreter(), "-c", _CHDB, place]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (json.loads(line) for line in text.splitlines() if line)
    return {int(account): int(amount) for account, amount in rows}


READERS: dict[str, Callable[[str], dict[int, int]]] = {
    "sqlite_upsert": _sqlite,
    "duckdb_merge": _duckdb,
    "postgresql_merge": _postgresql,
    "delta_merge": _delta,
    "delta_spark_merge": _delta,
    "clickhouse_insert": _clickhouse,
}
"""What a recipe's target shows, read by its own client."""


@dataclass
class OwnWorld:
    """A job in a folder of its own."""

    folder: Path
    job: OwnJob
    files: int = 0

    @classmethod
    def of(cls, folder: Path, recipe: str, place: str, **more: Any) -> OwnWorld:
        (folder / "input").mkdir()
        at = {name: str(folder / name) for name in ("input", "checkpoint", "register", "scratch")}
        return cls(folder, OwnJob(recipe, place, **{**at, **more}))

    @property
    def checkpoint(self) -> Path:
        return Path(self.job.checkpoint)

    def add_files(self, number: int = 1) -> None:
        """Add input files, one an epoch; no two rows have one amount."""
        for file in range(self.files, self.files + number):
            rows = (_row(file, row) for row in range(ROWS))
            hidden = self.folder / "input" / f".{file}"
            hidden.write_text("\n".join(map(json.dumps, rows)))
            hidden.rename(self.folder / "input" / f"{file}.json")
        self.files += number

    @property
    def expected(self) -> dict[int, int]:
        sums: Counter[int] = Counter()
        for file in range(self.files):
            for row in range(ROWS):
                made = _row(file, row)
                sums[made["account"]] += made["amount"]
        return dict(sums)

    @property
    def balances(self) -> dict[int, int]:
        return READERS[self.job.recipe](self.job.place)

    def run_alone(self, name: str, **more: Any) -> None:
        """Run the query to its end in a process of its own."""
        with self.driver(name, **more) as driver:
            assert driver.end() == 0, driver.log[-4000:]

    def run(self, spark: SparkSession, **more: Any) -> None:
        """Run the query to its end in this process."""
        ended(lambda: start(spark, replace(self.job, **more)))

    def driver(self, name: str, crash: str | None = None, **more: Any) -> Session:
        """A driver as a process of its own."""
        folder = self.folder / name
        folder.mkdir()
        settings = folder / "settings.json"
        job = replace(self.job, scratch=str(folder / "scratch"), **more)
        settings.write_text(job.to_json())
        environment = {**os.environ, "PYSPARK_PYTHON": interpreter(), "SPARK_LOCAL_IP": "127.0.0.1"}
        if crash is not None:
            environment[VARIABLE] = crash
        command = [interpreter(), own_write.__file__, str(settings)]
        return Session(command, folder, environment, "driver.log")

    def killed(self, point: CrashPoint | int, nth: int = 1) -> bool:
        """Run a driver until it dies at a crash point or line of the recipe's write; whether it did."""
        died = self.folder / "died"
        crash = f"{point}#{nth}@{died}" if isinstance(point, CrashPoint) else None
        line: dict[str, Any] = {"line": point, "died": str(died)} if crash is None else {}
        with self.driver("killed", crash, **line) as driver:
            until(lambda: died.exists() or driver.has_ended, f"it dies at {point}")
            driver.kill()
            if not died.exists():
                assert "Traceback" not in driver.log, driver.log[-4000:]
        return died.exists()

    def forget_commits(self, first: int) -> None:
        """As if Spark had died before it noted these epochs."""
        for file in (self.checkpoint / "commits").iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                file.unlink()

    def copied(self, name: str) -> str:
        """A copy of the checkpoint."""
        to = self.folder / name
        shutil.copytree(self.checkpoint, to, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc"))
        return str(to)


def _row(file: int, row: int) -> dict[str, int]:
    return {"account": row % 7, "amount": 1 + file * ROWS + row}
