"""A database that is restored from an older dump: the way back by the page."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from abs_services import KafkaService, Provider, services
from abs_services.native.postgres import find_binaries
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from tests.kit.kafka_source import PARTITIONS, KafkaSourceHarness
from tests.spark.drivers import Driver, until
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.services]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "restores.md"


Start = Callable[[Job, str], str]
"""Runs a job to its end; the text of what stops it."""


def in_one_session(spark: SparkSession) -> Start:
    """As a notebook does: every run is of one driver."""

    def start(job: Job, url: str) -> str:
        try:
            run_to_end(spark, job, url)
        except StreamingQueryException as error:
            return str(error)
        return ""

    return start


def each_in_a_driver(folder: Path) -> Start:
    numbers = itertools.count()

    def start(job: Job, url: str) -> str:
        with Driver(job, folder / f"driver {next(numbers)}", url) as driver:
            until(lambda: driver.has_ended, "it has ended")
            return driver.log if "QUERY FAILED" in driver.log else ""

    return start


@dataclass
class Restored:
    """A job from a topic into a table, whose database goes back to a dump of its first two epochs.

    Args:
        rows: all that was sent.
    """

    folder: Path
    url: str
    bootstrap: str
    source: KafkaSourceHarness
    rows: list[bytes]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def send(self, rows: int) -> None:
        self.rows += [value for value in self.source.add(rows) if isinstance(value, bytes)]

    def job(self, **options: str) -> Job:
        source = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.source.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "40",
        }
        return Job(
            input="",
            checkpoint=str(self.checkpoint),
            scratch=str(self.folder / "scratch"),
            options={"dbtable": "t", "job": "job", "protocol": "2pc", **options},
            source="abs-kafka",
            source_options=source,
            select=["value"],
        )

    def refused(self, start: Start, **options: str) -> str:
        text = start(self.job(**options), self.url)
        assert "RegisterLostError" in text
        return text

    def run(self, start: Start, **options: str) -> None:
        text = start(self.job(**options), self.url)
        assert not text, text[-3000:]

    def dump(self) -> str:
        done = self._server("pg_dump", "--no-owner", "--format=plain", "--clean", "--if-exists")
        return done.replace("SELECT pg_catalog.set_config", "-- ")

    def restore(self, dump: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("drop schema abs cascade")
        self._server("psql", "--quiet", "--set=ON_ERROR_STOP=1", given=dump)

    def _server(self, program: str, *arguments: str, given: str = "") -> str:
        command = [str(find_binaries(None) / program), *arguments, f"--dbname={self.url}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, input=given)
        return done.stdout

    def frontier(self) -> int | None:
        stored = PostgresRegister(PostgresOptions.parse({"url": self.url, "dbtable": "t"})).load(
            "job"
        )
        assert stored is not None
        return stored.state.frontier

    def found(self) -> list[bytes]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return sorted(value for (value,) in connection.execute("select value from t"))

    def trim(self) -> None:
        """The commands of the page, as they stand there."""
        (commands,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert "CHECKPOINT.before" in commands
        assert self.frontier() == 1, "the page says so"
        filled = commands.replace("CHECKPOINT", str(self.checkpoint))
        subprocess.run(["sh", "-euc", filled], check=True)


def restored(folder: Path, url: str, kafka: KafkaService, start: Start) -> Restored:
    """After the restore, with rows that came since."""
    if services().provider is not Provider.NATIVE:
        pytest.skip("pg_dump comes with the native server")
    kafka.start()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table t (value bytea)")
    job = Restored(folder, url, kafka.bootstrap, KafkaSourceHarness(kafka.bootstrap), [])
    job.send(36)
    job.run(start)
    assert job.frontier() == 1
    dump = job.dump()
    job.send(60)
    job.run(start)
    assert job.found() == sorted(job.rows)
    job.restore(dump)
    assert (job.frontier(), len(job.found())) == (1, 36)
    job.send(10)
    return job


def token(text: str) -> str:
    return text.rpartition("adopt=")[2][:12]


def goes_back_by_the_page(job: Restored, start: Start) -> None:
    """Source and table agree after what the page says; what it warns of is refused at each step."""
    first = job.refused(start)
    assert re.search(r"does not have epochs 2 to \d+: the query would go on with epoch", first)
    assert "all of commits/ from 2 on and all of offsets/ above 2" in first
    job.trim()
    second = job.refused(start, adopt=token(first))
    assert "nothing from epoch 2 on" in second
    assert "will never be written: " not in second
    assert len(job.found()) == 36, "a refused start has written"
    job.run(start, adopt=token(second))
    assert job.found() == sorted(job.rows)


def test_a_restored_database_goes_on_by_the_page_without_a_lost_row(
    tmp_path: Path, database: str, kafka: KafkaService, spark: SparkSession
) -> None:
    start = in_one_session(spark)
    goes_back_by_the_page(restored(tmp_path, database, kafka, start), start)


@pytest.mark.campaign
def test_a_restored_database_goes_on_by_the_page_with_every_run_in_a_driver_of_its_own(
    tmp_path: Path, database: str, kafka: KafkaService
) -> None:
    start = each_in_a_driver(tmp_path)
    goes_back_by_the_page(restored(tmp_path, database, kafka, start), start)


@pytest.mark.campaign
def test_the_token_that_gives_up_epochs_loses_those_that_it_names_and_no_others(
    tmp_path: Path, database: str, kafka: KafkaService, spark: SparkSession
) -> None:
    start = in_one_session(spark)
    job = restored(tmp_path, database, kafka, start)
    text = job.refused(start)
    assert "epochs 2 to " in text
    told = re.search(r"will never be written\. The source had at most (\d+) records in these", text)
    assert told is not None, text
    job.run(start, adopt=token(text))
    assert job.found() == sorted([*job.rows[:36], *job.rows[-10:]])
    # Offsets tell, and the source has more of them than rows: as many rows in an aborted transaction,
    # and at the end of each transaction a marker in each partition.
    lost = len(job.rows) - len(job.found())
    assert int(told[1]) == 2 * lost + 2 * PARTITIONS
