"""The figures in the pages are those of the results: none is typed in, and none is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import Name
from benchmarks.readme import brought_up
from benchmarks.summary import FIGURES, documents_in, figures_page, summary

RESULTS = Path(benchmarks.__file__).parent / "results"
README = RESULTS.parents[1] / "README.md"
HINT = "python -m benchmarks.summary writes the figures of the results there"


def test_the_page_of_figures_is_that_of_the_results() -> None:
    assert FIGURES.read_text() == figures_page(documents_in(RESULTS)), HINT


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    page = README.read_text()
    assert brought_up(page, documents_in(RESULTS)) == page, HINT


def test_a_typed_in_figure_of_the_readme_is_replaced_and_a_row_that_is_gone_is_an_error() -> None:
    page, documents = README.read_text(), documents_in(RESULTS)
    [row] = [line for line in page.splitlines() if "one for each target" in line]
    typed = page.replace(row, row.replace(row.split(" | ")[2].removesuffix(" |"), "9.99"))
    assert typed != page
    assert brought_up(typed, documents) == page
    with pytest.raises(ValueError, match="one for each target"):
        brought_up(page.replace(row, ""), documents)


def test_every_benchmark_of_ratios_is_summed_up() -> None:
    documents = documents_in(RESULTS)
    assert {"spark_jdbc", "kafka_source", "files_source"} <= set(documents)
    text = summary(documents)
    assert [name for name in documents if f"### {name}" not in text] == []


def test_the_page_of_benchmarks_has_a_row_for_each() -> None:
    page = (RESULTS.parent / "README.md").read_text()
    assert without_row(page, [name.value for name in Name]) == []
    assert without_row(page.replace("spark_s3", ""), ["s3_upload", "spark_s3"]) == ["spark_s3"]


def without_row(page: str, names: list[str]) -> list[str]:
    first = {row.split(" | ")[0] for row in page.splitlines() if row.startswith("| ")}
    told = {name for cell in first for name in cell.removeprefix("| ").split(", ")}
    return [name for name in names if name not in told]


def test_files_of_another_shape_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "points.json").write_text(
        '{"points": {"bytes": 1}, "started": "now", "seconds": 3}'
    )
    assert documents_in(tmp_path) == {}
