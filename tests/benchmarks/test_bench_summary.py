"""The summary of results: every file that a benchmark has left can be shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks.summary import summary

RESULTS = Path(benchmarks.__file__).parent / "results"


def test_every_file_of_results_can_be_summed_up() -> None:
    documents: dict[str, Any] = {}
    for path in sorted(RESULTS.glob("*.json")):
        documents |= json.loads(path.read_text())
    text = summary(documents)
    assert "### spark_jdbc" in text
    for name, document in documents.items():
        assert (f"### {name}" in text) == ("results" in document)
