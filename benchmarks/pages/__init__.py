"""Figures in the pages, taken from results/: ``python -m benchmarks.summary`` writes them there."""

from __future__ import annotations

from benchmarks.pages.explanation import in_abs, in_state
from benchmarks.pages.figures import Results, Sentence, brought_up
from benchmarks.pages.how_to import in_operations, in_small_epochs
from benchmarks.pages.readme import in_readme, in_text_of_readme
from benchmarks.pages.reference import in_files_source, in_kafka_source, in_s3

SENTENCES: list[Sentence] = [
    *in_readme(),
    *in_text_of_readme(),
    *in_abs(),
    *in_state(),
    *in_small_epochs(),
    *in_operations(),
    *in_files_source(),
    *in_kafka_source(),
    *in_s3(),
]

__all__ = ["SENTENCES", "Results", "Sentence", "brought_up"]
