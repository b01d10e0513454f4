"""The figures in the pages are those of the results: none is typed in, and none is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks.pages import SENTENCES, Results, Sentence, brought_up
from benchmarks.summary import documents_in

FOLDER = Path(benchmarks.__file__).parent
PAGE = "One takes 1.5 s\nof three, the other 2,000 ms (10 rounds)."


def _sentence(text: str, *figures: str) -> Sentence:
    return Sentence("page.md", text, lambda _: figures)


@pytest.fixture
def results() -> Results:
    def compared(median: float) -> dict[str, Any]:
        return {"speed of": "a", "over": "b", "median": median, "q1": 1, "q3": 1.375}

    result = {
        "name": "r",
        "ratios": [compared(1.25)],
        "facts": {"fit": "-40.1 ms + 2,000 x, R2 = 0.5"},
        "samples": {"a": [{"wall_s": s, "cpu_s": 1, "amount": 6e6} for s in (9.0, 2.0, 3.0)]},
    }
    return Results({"benchmark": {"results": [result]}})


def test_every_figure_of_a_page_is_that_of_the_results() -> None:
    pages = {each.page: (FOLDER.parent / each.page).read_text() for each in SENTENCES}
    found = brought_up(pages, Results(documents_in(FOLDER / "results")), SENTENCES)
    changed = [page for page in pages if found[page] != pages[page]]
    assert not changed, "python -m benchmarks.summary writes the figures of the results there"


def test_figures_are_replaced_and_the_page_stays_as_it_is(results: Results) -> None:
    given = _sentence("takes {} s of three, the other {} ms", "12", "-3.25")
    found = given.brought_up(PAGE, results)
    assert found == PAGE.replace("1.5", "12").replace("2,000", "-3.25")


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        pytest.param("takes {} minutes", ["1"], id="not there"),
        pytest.param("takes one s", [], id="without figures"),
        pytest.param("{}", ["1"], id="several times"),
        pytest.param("takes {} s", ["1", "2"], id="more figures than places"),
    ],
)
def test_a_sentence_that_a_page_does_not_have_once_is_an_error(
    text: str, figures: list[str], results: Results
) -> None:
    with pytest.raises(ValueError, match=r"page\.md"):
        _sentence(text, *figures).brought_up(PAGE, results)


def test_results_are_found_by_the_names_in_them(results: Results) -> None:
    assert results.median("r", "a", "b") == 1.25
    assert list(results.spread("r", "a", "b")) == ["1.25", "1.00", "1.38"]
    assert results.numbers("r", "fit") == [-40.1, 2000, 2, 0.5]
    assert results.speed("r", "a") == 2, "of the median run, in million rows a second"
    with pytest.raises(ValueError):
        results.median("r", "b", "a")
    with pytest.raises(KeyError):
        results.fact("r", "unknown")
