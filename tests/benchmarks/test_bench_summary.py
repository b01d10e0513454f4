"""The figures in the pages are those of the results: none is typed in, and none is left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import benchmarks
from benchmarks import ages, renew
from benchmarks.__main__ import Name
from benchmarks.readme import brought_up
from benchmarks.summary import FIGURES, documents_in, figures_page, summary

RESULTS = Path(benchmarks.__file__).parent / "results"
README = RESULTS.parents[1] / "README.md"
HINT = "python -m benchmarks.summary writes the figures of the results there"


def test_the_page_of_figures_is_that_of_the_results() -> None:
    page, _, aged = FIGURES.read_text().partition(f"\n{ages.HEAD}\n")
    assert page == figures_page(documents_in(RESULTS)), HINT
    # What has changed since is as of the day when the page was made; no commit makes it wrong.
    assert [name for name in documents_in(RESULTS) if f"| {name} |" not in aged] == [], HINT


def test_every_benchmark_says_what_code_it_is_about() -> None:
    assert set(ages.ABOUT) == set(Name)
    assert [
        path for room in ages._ROOMS.values() for path in room if not (ages.ROOT / path).exists()
    ] == []


def test_an_age_counts_what_changed_and_not_what_was_moved(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(files: dict[str, str]) -> str:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        git("add", "-A")
        git("commit", "-qm", "more")
        return git("rev-parse", "--short", "HEAD")

    git("init", "-q")
    source, lines = "sources/abs_sources/one.py", "".join(f"line {n}\n" for n in range(30))
    measured = commit({source: lines, "engine/abs_embedded/two.py": "two\n"})
    documents = {"files_source": {"environment": {"commit": measured}}}
    assert f"| files_source | {measured} | 0 | 0 | +0 -0 |" in ages.ages(documents, tmp_path)
    (tmp_path / "sources/abs_sources/files").mkdir()
    git("mv", source, "sources/abs_sources/files/one.py")
    commit({"engine/abs_embedded/two.py": "other\n"})
    assert f"| {measured} | 1 | 0 | +0 -0 |" in ages.ages(documents, tmp_path)
    commit({"sources/abs_sources/files/one.py": lines.replace("line 7\n", "seven\n7\n")})
    assert f"| {measured} | 2 | 1 | +2 -1 |" in ages.ages(documents, tmp_path)
    unknown = {"files_source": {"environment": {"commit": "0" * 8}}}
    assert "not in this clone" in ages.ages(unknown, tmp_path)


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


def test_the_short_run_fits_25_minutes_and_names_what_it_left_out() -> None:
    assert sum(short.seconds for short in renew.SHORT) <= 25 * 60
    assert len({short.name for short in renew.SHORT}) == len(renew.SHORT)
    left_out = list(renew.renew(renew.SHORT, 10, []))
    assert [line.split(":")[0] for line in left_out] == [short.name for short in renew.SHORT]


def test_files_of_another_shape_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "points.json").write_text(
        '{"points": {"bytes": 1}, "started": "now", "seconds": 3}'
    )
    assert documents_in(tmp_path) == {}
