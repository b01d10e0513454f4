"""``abs chaos`` on a job with a write of its own; for the audit see ``test_cli_own_write``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark.drivers import interpreter
from tests.spark.jobs import own_write
from tests.spark.jobs.own_write import RECIPES
from tests.spark.own_world import OwnWorld

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]

FILES, KILLS = 12, 3


def compared(world: OwnWorld) -> list[str]:
    """Both sides for ``abs``: the target as it is, and what it should have, by the input alone."""
    expected = world.folder / "expected.json"
    rows = ({"account": account, "amount": amount} for account, amount in world.expected.items())
    expected.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    place = world.job.place
    actual = [place, "--table", "balances"] if "://" in place else [f"delta:{place}"]
    return ["--expected", str(expected), "--key", "account", "--actual", *actual]


def chaos(world: OwnWorld, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of ``abs chaos`` on the job."""
    settings, report = world.folder / "settings.json", world.folder / "report.json"
    settings.write_text(world.job.to_json())
    kills = ["--checkpoint", str(world.checkpoint), "--kills", str(KILLS), "--seed", "7"]
    files = ["--report", str(report), "--log", str(world.folder / "log")]
    job = ["--", interpreter(), own_write.__file__, str(settings)]
    done = abs_("chaos", *compared(world), *kills, *files, *words, *job)
    return done.returncode, json.loads(report.read_text()) if report.exists() else {}


def abs_(*words: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (sys.executable, "-m", "abs_cli", *words)
    environment = {**os.environ, "PYSPARK_PYTHON": interpreter(), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, env=environment
    )


def test_a_job_that_is_killed_again_and_again_is_found_exact(tmp_path: Path) -> None:
    """Of the page's own, into PostgreSQL, see ``test_spark_once_page``."""
    world = OwnWorld.of(tmp_path, "delta_merge", str(tmp_path / "target"))
    world.add_files(FILES)
    code, report = chaos(world)
    assert code == 0, report.get("shortcomings", (tmp_path / "log").read_text()[-3000:])
    assert len(report["kills"]) == KILLS
    assert world.balances == world.expected


def test_rows_and_version_in_two_transactions_are_found(database: str, tmp_path: Path) -> None:
    text = (RECIPES / "postgresql_merge.py").read_text()
    for good, planted in (
        ("psycopg.connect(url) as db:  # ", "psycopg.connect(url, autocommit=True) as db:  # "),
        ("ON COMMIT DROP", ""),
    ):
        assert text.count(good) == 1
        text = text.replace(good, planted)
    (tmp_path / "planted.py").write_text(text)
    world = OwnWorld.of(tmp_path, str(tmp_path / "planted"), database)
    world.add_files(FILES)
    code, report = chaos(world, "--at", "writing")
    assert (code, report["clean"]) == (1, False)
    assert report["changed"] + report["missing"] > 0, report
