"""What people and machines do to a job with a write of its own, beside kills; judged by the target."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_core.crash import CrashPoint
from abs_core.errors import AbsError
from abs_core.ownwrite import Token
from tests.kit.keyed_service import KeyedService, keyed_service
from tests.spark.jobs.own_write import recipe
from tests.spark.jobs.stream_files import ended
from tests.spark.own_world import OwnWorld

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

NAMES = (
    "a b/c",
    "支付",
    "..",
    "x'; DROP TABLE balances; --",
    "100%@day",
    "tab\tand\nline",
    "'\"\\",
)


@pytest.fixture
def world(tmp_path: Path) -> OwnWorld:
    return OwnWorld.of(tmp_path, "sqlite_upsert", str(tmp_path / "target.db"))


@pytest.fixture
def service() -> Iterator[KeyedService]:
    with keyed_service() as service:
        yield service


@pytest.mark.parametrize("name", NAMES)
def test_a_job_of_any_name_is_killed_and_goes_on(
    spark: SparkSession, world: OwnWorld, service: KeyedService, name: str
) -> None:
    world.job = replace(world.job, job=name)
    world.add_files(2)
    assert world.killed(CrashPoint.AFTER_COMMIT, 1)
    world.run(spark)
    world.forget_commits(1)
    world.run(spark)
    assert world.balances == world.expected
    write, _ = recipe("http_service", service.host)
    at = str(world.folder / "register")
    for _ in range(2):
        guarded = abs_spark.once(
            write, promise="at least once", job=name, register=at, epoch=f"{name} 1"
        )
        guarded(spark.createDataFrame([(1, 10)], "account bigint, amount bigint"))
    assert service.balances == {1: 10}


def stream(
    spark: SparkSession,
    world: OwnWorld,
    write: Callable[[DataFrame, Token], None],
    applied: Callable[[str], int | None] | None,
    where: str = "true",
) -> None:
    """The world's query with functions of the test's own."""
    function = abs_spark.once(
        write,
        applied=applied,
        job=world.job.job,
        register=world.job.register,
        checkpointLocation=world.job.checkpoint,
    )
    reader = spark.readStream.schema("account bigint, amount bigint")
    rows = reader.option("maxFilesPerTrigger", 1).json(world.job.input).where(where)
    writer = rows.writeStream.foreachBatch(function)
    writer = writer.option("checkpointLocation", world.job.checkpoint)
    ended(lambda: writer.trigger(availableNow=True).start())


@pytest.mark.parametrize("name", ["sqlite_upsert", "duckdb_merge", "delta_merge"])
def test_batches_without_rows_and_two_of_equal_rows_are_written_once_each(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    world = OwnWorld.of(tmp_path, name, str(tmp_path / "target"))
    write, applied = recipe(name, world.job.place)
    rows = '{"account": 1, "amount": 10}'
    folder = Path(world.job.input)
    for number, text in enumerate(("", rows, rows, '{"account": 2, "amount": -1}', rows)):
        (folder / f"{number}.json").write_text(text)
    stream(spark, world, write, applied, "amount > 0")
    assert world.balances == {1: 30}
    world.forget_commits(2)
    stream(spark, world, write, applied, "amount > 0")
    assert world.balances == {1: 30}


def test_a_write_that_returns_before_it_commits_is_refused_and_found_later(
    spark: SparkSession, world: OwnWorld
) -> None:
    write, applied = recipe("sqlite_upsert", world.job.place)
    commits: list[Callable[[], None]] = []

    def later(df: DataFrame, token: Token) -> None:
        commits.append(lambda: write(df, token))

    world.add_files(1)
    with pytest.raises(StreamingQueryException, match="has returned, and the target does not have"):
        stream(spark, world, later, applied)
    assert len(commits) == 1
    rows = spark.read.schema("account bigint, amount bigint").json(world.job.input)
    # It takes effect after its query has ended, and before the next one begins.
    token = Token("own", 1 << 32)
    write(rows, token)
    stream(spark, world, write, applied)
    assert world.balances == world.expected


def test_a_target_that_is_put_back_is_refused_and_all_three_put_back_together_go_on(
    spark: SparkSession, world: OwnWorld
) -> None:
    world.add_files(2)
    world.run(spark)
    places = [Path(p) for p in (world.job.place, world.job.register, world.job.checkpoint)]
    kept = world.folder / "kept"
    kept.mkdir()
    for place in places:
        copy(place, kept / place.name)
    world.add_files(1)
    world.run(spark)
    target, register, _ = places
    world.add_files(1)
    copy(kept / target.name, target)
    with pytest.raises(StreamingQueryException, match="ABS-TARGET-WENT-BACK"):
        world.run(spark)
    assert target.read_bytes() == (kept / target.name).read_bytes()
    copy(kept / register.name, register)
    with pytest.raises(StreamingQueryException, match="ABS-REGISTER-LOST"):
        world.run(spark)
    for place in places:
        copy(kept / place.name, place)
    world.run(spark)
    assert world.balances == world.expected


def copy(of: Path, to: Path) -> None:
    if to.is_dir():
        shutil.rmtree(to)
    shutil.copytree(of, to) if of.is_dir() else shutil.copy(of, to)


def test_a_table_that_was_restored_by_delta_is_refused_and_by_consent_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = OwnWorld.of(tmp_path, "delta_merge", str(tmp_path / "target"))
    world.add_files(3)
    world.run(spark)
    DeltaTable(world.job.place).restore(1)
    lost = world.balances
    world.add_files(1)
    with pytest.raises(StreamingQueryException, match="ABS-TARGET-WENT-BACK") as refused:
        world.run(spark)
    assert world.balances == lost
    token = str(refused.value).partition("adopt=")[2].split()[0].strip(".,")
    before = Counter(lost)
    world.run(spark, adopt=token)
    newest = Counter(world.expected)
    for file in range(3):
        newest.subtract(amounts(world, file))
    assert Counter(world.balances) == before + newest
    world.add_files(1)
    world.run(spark)
    assert Counter(world.balances) == before + newest + amounts(world, 4)


def amounts(world: OwnWorld, file: int) -> Counter[int]:
    import json

    sums: Counter[int] = Counter()
    for line in (Path(world.job.input) / f"{file}.json").read_text().splitlines():
        row = json.loads(line)
        sums[row["account"]] += row["amount"]
    return sums


class Books:
    """A target in memory, whose first write stands still in its transaction's wake."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.versions: dict[str, int] = {}
        self.lock = threading.Lock()
        self.stands = threading.Event()
        self.goes_on = threading.Event()
        self.first = True

    def write(self, df: DataFrame, token: Token) -> None:
        rows = df.collect()
        with self.lock:
            first, self.first = self.first, False
        if first:
            self.stands.set()
            self.goes_on.wait(120)
        with self.lock:
            if self.versions.get(token.application, 0) < token.version:
                self.versions[token.application] = token.version
                for row in rows:
                    self.rows[row["account"]] += row["amount"]

    def applied(self, application: str) -> int | None:
        return self.versions.get(application)


def test_two_programs_that_write_one_day_at_the_same_time_write_it_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    books = Books()
    day = spark.createDataFrame([(1, 10), (2, 20)], "account bigint, amount bigint")
    errors: list[AbsError] = []

    def program() -> None:
        try:
            abs_spark.once(
                books.write,
                applied=books.applied,
                job="days",
                register=str(tmp_path / "register"),
                epoch="monday",
            )(day)
        except AbsError as error:
            errors.append(error)

    older = threading.Thread(target=program)
    older.start()
    assert books.stands.wait(120)
    program()
    assert books.rows == {1: 10, 2: 20}
    books.goes_on.set()
    older.join(120)
    assert books.rows == {1: 10, 2: 20}
    assert [error.code for error in errors] in ([], ["ABS-FENCED"])


@pytest.mark.parametrize("answer", [True, 0, -5])
def test_an_answer_that_is_no_version_is_told_before_anything_is_written(
    spark: SparkSession, world: OwnWorld, answer: Any
) -> None:
    write, _ = recipe("sqlite_upsert", world.job.place)
    world.add_files(1)
    with pytest.raises(StreamingQueryException, match="None for an application that the target"):
        stream(spark, world, write, lambda application: answer)
    with closing(sqlite3.connect(world.job.place)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
