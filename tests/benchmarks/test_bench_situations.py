"""Verdicts are what a reader finds in a target; the page says what the result file says."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from abs_services import services
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.measure import Servers
from benchmarks.scoreboard.situation_job import SITUATIONS
from benchmarks.scoreboard.situations import PAGE, RESULT, TITLES, page, reason, tried
from benchmarks.scoreboard.trial import Row, judge
from tests.packaging.venvs import CLIENTS, python_with

HINT = "run python -m benchmarks.scoreboard.situations --page"


def document() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(RESULT.read_text())
    return result


@pytest.mark.parametrize(
    ("rows", "error", "verdict"),
    [
        ({(1, 0.1): 1, (2, 0.2): 1}, "", "passed"),
        ({(1, 0.1): 2, (2, 0.2): 1}, "", "doubled 1"),
        ({(1, 0.1): 1}, "", "lost 1"),
        ({(1, 0.1): 1, (2, 0.7): 1}, "", "stale 1"),
        ({(1, 0.1): 2}, "", "doubled 1, lost 1"),
        ({(1, 0.1): 1, (2, 0.2): 1, (2, 0.7): 1}, "", "doubled 1"),
        ({(1, 0.1): 1}, "FencedError", "refused"),
        ({(1, 0.1): 2}, "FencedError", "doubled 1"),
        ({(1, 0.1): 1, (2, 0.2): 1}, "FencedError", "refused"),
    ],
)
def test_a_verdict_is_what_is_in_the_target(rows: dict[Row, int], error: str, verdict: str) -> None:
    assert judge(Counter({(1, 0.1): 1, (2, 0.2): 1}), Counter(rows), error) == verdict


def test_the_page_is_made_from_the_result_and_a_changed_verdict_is_found() -> None:
    result = document()
    assert PAGE.read_text() == page(result), HINT
    first = next(iter(result["rows"][0]["verdicts"].values()))
    first["verdict"] = "lost 7"
    assert PAGE.read_text() != page(result)


def test_the_page_tells_date_and_commit_and_the_reason_of_each_refusal() -> None:
    result, text = document(), PAGE.read_text()
    for row in result["rows"]:
        assert row["commit"] in text
        for case in row["verdicts"].values():
            assert case["verdict"] != "refused" or reason(case["error"]) in text


def test_each_situation_has_a_title_and_each_contestant_a_row() -> None:
    assert [*TITLES] == [*SITUATIONS]
    rows = re.findall(r"^\| \[(.+?)\]", PAGE.read_text(), re.MULTILINE)
    assert rows == [one.name for one in CONTESTANTS]


def test_a_reason_is_the_first_sentence_without_names_of_one_run() -> None:
    error = (
        "pyspark.errors.X: abs_core.errors.FencedError: [ABS-F] It is at /tmp/a b. What to do: no."
    )
    assert reason(error) == "abs_core.errors.FencedError: [ABS-F] It is at ... b"


@pytest.mark.campaign
@pytest.mark.services
@pytest.mark.spark
def test_a_recipe_that_doubles_is_found_and_a_sink_that_does_not_passes() -> None:
    """The planted bug is a recipe that notes nothing: JDBC's append."""
    from benchmarks.scoreboard.__main__ import LAKE, SPARK

    python = python_with(*SPARK, *CLIENTS, *LAKE, of="scoreboard")
    named = {one.name: one for one in CONTESTANTS}
    found = services()
    with found.postgres() as postgres, found.kafka() as kafka, found.s3() as s3:
        servers = Servers(python, postgres, kafka, s3)
        verdicts = []
        for name in ("JDBC append in foreachBatch", "abs-postgres, 2pc"):
            row, failed = tried(named[name], servers, ["killed_between"])
            assert failed == "", failed
            verdicts.append(row["verdicts"]["killed_between"]["verdict"])
    assert verdicts == ["doubled 100", "passed"]
