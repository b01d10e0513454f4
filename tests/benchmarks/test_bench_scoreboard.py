"""The scoreboard's page and the README's rows are those of the result file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from abs_chaos.killing import Killed
from abs_chaos.moments import Moment
from benchmarks.scoreboard.__main__ import PAGE, README, RESULT, ROOT, earlier, stated
from benchmarks.scoreboard.contestants import CONTESTANTS, States
from benchmarks.scoreboard.job import WAYS
from benchmarks.scoreboard.measure import Row, Sizes, rate
from benchmarks.scoreboard.table import SHORT, in_readme, page

HINT = "run python -m benchmarks.scoreboard --pages"


def document() -> dict[str, Any]:
    return stated(json.loads(RESULT.read_text()))


def test_the_page_is_made_from_the_result() -> None:
    assert PAGE.read_text() == page(document()), HINT


def test_the_readmes_rows_are_made_from_the_result() -> None:
    text = README.read_text()
    assert in_readme(text, document()) == text, HINT


def test_a_figure_that_is_changed_by_hand_is_found() -> None:
    result = document()
    text = README.read_text()
    result["rows"][0]["plain"] *= 10
    assert in_readme(text, result) != text


def test_the_result_tells_commit_machine_seed_and_sizes() -> None:
    result = document()
    assert {"commit", "cpu", "cores", "pyspark"} <= set(result["environment"])
    assert {"seed", "kills", "every_s", "rows", "epochs"} <= set(result["sizes"])


def test_a_row_of_an_earlier_run_says_its_commit() -> None:
    rows = earlier(RESULT)
    newer = document() | {"environment": {**document()["environment"], "commit": "0a0a0a0a"}}
    newer["rows"] = list(rows.values())
    told = [line for line in page(newer).splitlines() if line.startswith("| [")]
    assert [
        line.split(" | ")[0].endswith(f" at {row['commit']}")
        for line, row in zip(told, rows.values(), strict=True)
    ] == [True] * len(rows)


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times the marks"):
        in_readme("# Nothing", document())


def test_every_contestant_has_a_driver_and_the_readme_compares_ours_with_some() -> None:
    names = [one.name for one in CONTESTANTS]
    assert len({*names}) == len(names)
    assert {one.way for one in CONTESTANTS} == {*WAYS}
    assert {*SHORT, *SHORT.values()} <= {*names}


def differ(compared: str) -> list[str]:
    """Contestants of which the page of comparisons states something else than the scoreboard."""
    cells = [line.split(" | ") for line in compared.splitlines() if line.startswith("| ")]
    promises = {cell[0].removeprefix("| "): cell[2] for cell in cells if len(cell) > 3}
    return [
        one.name
        for one in CONTESTANTS
        if not one.protocol and not promises.get(one.compared, "").startswith(one.states.value)
    ]


def test_what_a_contestant_states_is_the_same_on_the_page_of_comparisons() -> None:
    text = (ROOT / "docs" / "explanation" / "compared.md").read_text()
    assert differ(text) == []
    planted = text.replace("exactly once, for readers", "at least once, for readers")
    assert differ(planted) == ["Spark's file sink"]


@pytest.mark.parametrize(
    ("states", "figures", "kept"),
    [
        (States.EXACTLY, {}, True),
        (States.EXACTLY, {"doubled": 1}, False),
        (States.IDEMPOTENT, {"doubled": 1}, False),
        (States.AT_LEAST, {"doubled": 1}, True),
        (States.AT_LEAST, {"missing": 1}, False),
        (States.AT_LEAST, {"wrong": 1}, False),
        (States.EXACTLY, {"left_behind": 1}, True),
        (States.EXACTLY, {"kills": 1}, None),
        (States.EXACTLY, {"kills": 1, "doubled": 1}, False),
        (States.AT_LEAST, {"between": 0}, None),
    ],
)
def test_each_is_judged_by_what_it_states(
    states: str, figures: dict[str, int], kept: bool | None
) -> None:
    ran = {"asked": 2, "kills": 2, "between": 1, **figures}
    assert Row("one", states, "page", **ran).kept is kept  # type: ignore[arg-type]


def test_a_rate_under_kills_is_of_right_rows_until_the_first_epoch_after_the_last_kill() -> None:
    ended = [(10.0, 0), (12.0, 4), (30.0, 5), (90.0, 50)]
    struck = Killed(13.0, Moment.ANY, Moment.WRITING, 5, 0, 3, "at epoch 5", 17.0)
    assert rate(ended, [struck], Sizes(rows=100)) == 25.0
    assert rate(ended, [struck], Sizes(rows=100), right=0.9) == 22.5
    assert rate(ended, [], Sizes(rows=100)) == 62.5
    assert rate(ended[:1], [], Sizes(rows=100)) is None


def test_a_job_that_does_not_end_keeps_nothing() -> None:
    assert not Row("one", States.AT_LEAST, "page", failed="The job ended by itself.").kept


def test_a_busy_machine_is_told_beside_its_rates() -> None:
    quiet, busy = ({**document(), "load before": load} for load in ("0.10 1 1", "9.50 1 1"))
    assert "The machine was busy" not in page(quiet)
    assert "The machine was busy" in page(busy)


def test_a_run_with_kills_has_input_for_each_of_them_and_a_page_says_if_they_are_few() -> None:
    assert Sizes(epochs=48, kills=8).with_kills().epochs == 128
    assert Sizes(epochs=48, kills=2).with_kills().epochs == 48
    few, many = ({**document(), "sizes": {**document()["sizes"], "kills": n}} for n in (2, 8))
    assert "2 kills for each are few" in page(few)
    assert "are few" not in page(many)
