"""The benchmarks of the embedded runtime: what they compare is the same, what they fit is a line."""

from __future__ import annotations

import pytest

from benchmarks import alignment, keyed_count, snapshot_ways, state_snapshots
from benchmarks.ratios import Sample


def sample(seconds: float) -> Sample:
    return Sample(seconds, 0.0, 1)


def test_a_fit_finds_the_line_that_samples_are_on() -> None:
    found = alignment.fit({n: [sample((5 + 20 * n) / 1e3)] * 2 for n in (1, 2, 4)})
    assert (found.start, found.slope, found.r2) == pytest.approx((5, 20, 1))


def test_a_power_finds_the_exponent_that_samples_grow_by() -> None:
    found = alignment.power({n: [sample(0.008 * n**1.7)] * 2 for n in (1, 2, 4, 8)})
    assert found.text("parallelism") == "8.0 ms x parallelism ^ 1.70, R2 of logarithms = 1.000"
    assert "p ^ 1.7" in found.title()


def test_samples_off_the_line_show_in_the_fit() -> None:
    found = alignment.fit({n: [sample(s)] for n, s in ((1, 0.01), (2, 0.09), (3, 0.02))})
    assert found.r2 < 0.5


@pytest.mark.parametrize("form", ["arrow", "rows"])
@pytest.mark.parametrize("workers", [1, 2])
def test_each_form_of_the_keyed_count_counts_all_rows(form: str, workers: int) -> None:
    data = keyed_count.keys(20_000)
    expected = keyed_count.digest(_counts(data.to_pylist()))
    assert keyed_count.ours(form, data, workers, expected).amount == 20_000


def test_a_count_that_is_wrong_is_no_sample() -> None:
    data = keyed_count.keys(20_000)
    fewer = keyed_count.digest(_counts(data.to_pylist()[:-1]))
    with pytest.raises(AssertionError, match="something else"):
        keyed_count.ours("arrow", data, 1, fewer)


def test_a_run_of_the_ways_says_how_many_checkpoints_it_had() -> None:
    found = snapshot_ways.once(snapshot_ways.tables(100_000), "aligned", 0.01)
    assert found.amount == 100_000
    assert dict(found.parts)["checkpoints"] >= 1


@pytest.mark.long
def test_alignment_is_measured_when_the_state_has_its_size() -> None:
    found = alignment.once(alignment.Setting(shuffles=2, parallelism=2))
    assert 0 < found.wall_s < 60


def test_increments_are_smaller_than_whole_snapshots() -> None:
    told: list[str] = []
    results = state_snapshots.run(
        pairs=1, entries=100_000, tell=lambda label, side, sample: told.append(side), picture=None
    )
    for result in results:
        sizes = result.facts["bytes, 100,000"]
        assert isinstance(sizes, dict)
        assert sizes["increment"] < sizes["whole"]
    assert "whole, 100,000" in told


def _counts(keys: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return counts
