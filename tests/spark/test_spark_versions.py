"""The same job on other releases of Spark: killed, replayed, and exact."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abs_core.crash import CrashPoint
from tests.spark.drivers import Driver, killed_at
from tests.spark.other_sparks import search_path
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1500)]

VERSIONS = [
    "3.5.7",
    pytest.param("4.0.1", marks=pytest.mark.campaign),
    pytest.param("4.1.1", marks=pytest.mark.campaign),
    pytest.param("4.2.0", marks=pytest.mark.campaign),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_and_replayed_query_is_exact_on_this_release(
    tmp_path: Path, new_world: Callable[[str], World], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", search_path(version))
    world = new_world("2pc")
    sinks: list[dict[str, Any]] = [{"format": "abs-postgres", "options": {"dbtable": "t"}}]
    job = world.epoch_job(sinks)
    expected = world.add_files(range(3))
    killed_at(CrashPoint.AFTER_DECIDE, 2, job, tmp_path / "killed", world.url)
    for number in range(2):
        with Driver(job, tmp_path / f"run{number}", world.url) as driver:
            assert driver.end() == 0
            said = driver.log
        if number == 0:
            assert "was decided and is committed now" in said
            world.forget_commits(1)
    assert "committed before; its 40 rows were read and not written again" in said
    assert re.search(rf"PySpark {re.escape(version)}\b", said)
    world.holds(expected)
    assert world.left_behind() == []
