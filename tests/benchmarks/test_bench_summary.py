"""The summary of results: every file that a benchmark has left can be shown."""

from __future__ import annotations

from pathlib import Path

import benchmarks
from benchmarks.summary import documents_in, summary

RESULTS = Path(benchmarks.__file__).parent / "results"


def test_every_benchmark_of_ratios_is_summed_up() -> None:
    documents = documents_in(RESULTS)
    assert {"spark_jdbc", "kafka_source", "files_source"} <= set(documents)
    text = summary(documents)
    assert [name for name in documents if f"### {name}" not in text] == []


def test_files_of_another_shape_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "points.json").write_text(
        '{"points": {"bytes": 1}, "started": "now", "seconds": 3}'
    )
    assert documents_in(tmp_path) == {}
