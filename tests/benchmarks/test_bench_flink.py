"""PyFlink's steady rate is what a longer job has more; a wrong count is no sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.keyed_count import expected_digest, keys
from benchmarks.keyed_count_flink import FILES, KINDS, SHORT_ROWS, FlinkJob, _job, run, steady
from benchmarks.other_spark import Session
from benchmarks.ratios import UNMETERED, Sample


class Answering(Session):
    """A session that counts what is in the folder, in Python."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(question)
        lines = [
            line
            for path in sorted(Path(question["folder"]).iterdir())
            for line in path.read_text().splitlines()
        ]
        return {"seconds": 2.0, "digest": expected_digest(pa.array(lines))}


def test_the_start_of_a_job_is_not_in_the_steady_rate() -> None:
    start, each = 3.0, 1e-5
    short, whole = (Sample(start + each * n, 1.0 + n / 1e5, n) for n in (40_000, 1_000_000))
    found = steady(short, whole)
    assert found.speed == pytest.approx(1 / each)
    assert found.cpu_us_each == pytest.approx(10)
    assert found.amount == 960_000
    assert dict(found.parts) == {"start": pytest.approx(start)}


@pytest.mark.parametrize("whole", [Sample(2.9, 1.0, 1_000_000), Sample(4.0, 1.0, 40_000)])
def test_a_whole_job_that_is_not_longer_has_no_steady_rate(whole: Sample) -> None:
    with pytest.raises(ValueError, match="give more rows"):
        steady(Sample(3.0, 1.0, 40_000), whole)


def test_pyflink_reads_the_keys_that_ours_counts_in_a_file_for_each_worker() -> None:
    data, peer = keys(10_001), Answering()
    with _job(peer, KINDS[0], data) as job:
        assert len(list(job.folder.iterdir())) == FILES
        sample = job.run(2)
    assert (sample.wall_s, sample.amount) == (2.0, 10_001)
    assert sample.cpu_s == UNMETERED
    assert [(asked["form"], asked["workers"]) for asked in peer.asked] == [("function", 2)]


def test_a_count_of_pyflink_that_is_wrong_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a\nb\n")
    job = FlinkJob(Answering(), "sql", tmp_path, 2, expected_digest(pa.array(["a", "a"])))
    with pytest.raises(AssertionError, match="something else"):
        job.run(1)


def test_as_many_rows_as_the_short_job_has_are_refused() -> None:
    with pytest.raises(ValueError, match="no longer"):
        list(run(Path("python"), pairs=1, rows=SHORT_ROWS, tell=lambda *_: None))
