"""A job in a process of its own, killed with SIGKILL again and again, commits each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import psycopg
import pytest

from abs_core.crash import VARIABLE, CrashPoint
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_testing.fakes import FakeTarget
from tests import sample
from tests.embedded.bench import until
from tests.embedded.jobs.counting import expected

pytestmark = pytest.mark.long

JOB = Path(__file__).parent / "jobs" / "counting.py"


def start(
    folder: Path, strategy: str, *more: str, crash: str = "", parallelism: str = "2"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(JOB), str(folder), strategy, *more],
        env={**os.environ, VARIABLE: crash, "PARALLELISM": parallelism},
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_again_and_again(folder: Path, strategy: str, kills: int, *more: str) -> int:
    """Kill the job soon after its next snapshot, then let it end; how often it was killed."""
    chance, killed = Random(strategy), 0
    for _ in range(kills):
        before = newest_snapshot(folder)
        process = start(folder, strategy, *more)
        until(lambda: process.poll() is not None or newest_snapshot(folder) > before)  # noqa: B023
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=chance.random() / 20)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    finish(folder, strategy, *more)
    return killed


def newest_snapshot(folder: Path) -> int:
    return max(LocalSnapshotStore(folder / "snapshots").completed(), default=-1)


def finish(folder: Path, strategy: str, *more: str) -> None:
    process = start(folder, strategy, *more)
    out, _ = process.communicate(timeout=100)
    assert out == "done\n"


def rows_of(folder: Path) -> list[tuple[int, str]]:
    target = FakeTarget(folder / "target.db")
    with target.transaction() as db:
        assert db.execute("SELECT count(*) FROM prepared").fetchone() == (0,)
        found: list[tuple[int, str]] = db.execute("SELECT id, value FROM data").fetchall()
    target.close()
    return found


def check(found: list[tuple[int, str]]) -> None:
    ids, values = expected()
    assert sorted(id_ for id_, _ in found) == ids
    assert sorted(value for _, value in found) == values


@pytest.mark.parametrize("strategy", sample.members(["aligned", "unaligned"], 1, "random kills"))
def test_a_job_that_is_killed_commits_each_row_once(tmp_path: Path, strategy: str) -> None:
    assert killed_again_and_again(tmp_path, strategy, 3) > 0
    check(rows_of(tmp_path))


POINTS = [
    CrashPoint.AFTER_START,
    CrashPoint.BEFORE_PRE_COMMIT,
    CrashPoint.AFTER_PRE_COMMIT,
    CrashPoint.AFTER_INSPECT,  # the first record is written, and nothing is decided yet
    CrashPoint.AFTER_DECIDE,
    CrashPoint.BETWEEN_COMMITS,
    CrashPoint.AFTER_FINISH,
]


DOUBTFUL = [CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE]


@pytest.mark.parametrize("point", sample.members(POINTS, 2, "the runtime's kills"))
def test_a_job_that_dies_between_two_durable_effects_commits_each_row_once(
    tmp_path: Path, point: CrashPoint
) -> None:
    process = start(tmp_path, "aligned", crash=str(point))
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    finish(tmp_path, "aligned")
    check(rows_of(tmp_path))


@pytest.mark.parametrize("point", sample.members(DOUBTFUL, 1, "rescaled in doubt"))
def test_a_job_is_rescaled_with_handles_in_doubt(tmp_path: Path, point: CrashPoint) -> None:
    for parallelism in ("2", "3", "1"):
        process = start(tmp_path, "aligned", crash=str(point), parallelism=parallelism)
        process.communicate(timeout=100)
        assert process.returncode == -signal.SIGKILL
    finish(tmp_path, "aligned")
    check(rows_of(tmp_path))


@pytest.mark.services
def test_a_killed_job_commits_each_row_once_to_postgresql(tmp_path: Path, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE counted (id bigint, value text)")
        assert killed_again_and_again(tmp_path, "aligned", 2, database) > 0
        check(connection.execute("SELECT id, value FROM counted").fetchall())
        in_doubt = connection.execute(
            "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
        )
        assert in_doubt.fetchone() == (0,)
