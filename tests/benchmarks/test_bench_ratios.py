"""Statistics of the benchmarks: what is compared with what, and when a bar counts as reached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pairs import Side, interleave, order
from benchmarks.ratios import NO_BAR, Bar, Sample, Verdict, cpu_ratios, speed_ratios, spread
from benchmarks.report import Comparison, Result, as_json

POSITIVE = st.floats(min_value=1e-3, max_value=1e3)


def sample(wall: float, amount: int = 1000) -> Sample:
    return Sample(wall_s=wall, cpu_s=wall, amount=amount)


def test_a_spread_has_the_inclusive_quartiles_and_the_extremes() -> None:
    found = spread([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found.least, found.q1, found.median, found.q3, found.most) == (1, 2, 3, 4, 5)
    assert found.count == 5


def test_the_spread_of_one_value_is_that_value() -> None:
    found = spread([7.0])
    assert {found.least, found.q1, found.median, found.q3, found.most} == {7.0}


def test_a_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        spread([])


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1))
def test_drift_that_hits_both_sides_of_a_pair_does_not_move_its_ratio(
    pairs: list[tuple[float, float]],
) -> None:
    ours = [sample(0.5 * drift) for drift, _ in pairs]
    theirs = [sample(1.0 * drift) for drift, _ in pairs]
    assert speed_ratios(ours, theirs) == pytest.approx([2.0] * len(pairs))


def test_speed_counts_what_was_done_in_the_time() -> None:
    assert speed_ratios([sample(1.0, amount=3000)], [sample(2.0, amount=2000)]) == [3.0]


def test_cpu_too_little_to_measure_gives_no_ratio() -> None:
    idle = Sample(wall_s=1.0, cpu_s=0.0, amount=1000)
    assert cpu_ratios([sample(1.0), sample(1.0)], [idle, sample(2.0)]) == [0.5]


def test_samples_that_do_not_pair_up_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        speed_ratios([sample(1.0)], [])


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.95, 0.96, 0.97], Verdict.MET),
        ([0.80, 0.91, 0.99], Verdict.UNCLEAR),
        ([0.80, 0.89, 0.99], Verdict.MISSED),
        ([0.90, 0.90, 0.90], Verdict.MET),
    ],
)
def test_the_median_decides_and_the_worse_quartile_tells_if_it_is_clear(
    values: list[float], verdict: Verdict
) -> None:
    assert Bar(low=0.9).judge(spread(values)) is verdict


def test_without_a_bar_there_is_nothing_to_miss() -> None:
    assert NO_BAR.judge(spread([0.1])) is Verdict.NONE


def test_an_upper_bar_is_missed_from_above() -> None:
    assert Bar(high=1.1).judge(spread([1.2])) is Verdict.MISSED


@given(st.integers(1, 8), st.integers(0, 50))
def test_every_round_runs_every_side_once_and_each_is_first_in_its_turn(
    count: int, turn: int
) -> None:
    assert sorted(order(count, turn)) == list(range(count))
    assert order(count, turn)[0] == turn % count


def test_rounds_are_interleaved_and_warm_up_does_not_count() -> None:
    ran: list[str] = []

    def side(name: str) -> Side:
        def run() -> Sample:
            ran.append(name)
            return sample(float(len(ran)))

        return Side(name, run)

    told: list[str] = []
    found = interleave(
        [side("a"), side("b")],
        pairs=2,
        warm_up=1,
        tell=lambda label, name, _: told.append(f"{label} {name}"),
    )
    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert [s.wall_s for s in found["a"]] == [4.0, 5.0]
    assert [s.wall_s for s in found["b"]] == [3.0, 6.0]
    assert told[:3] == ["warm-up 1 a", "warm-up 1 b", "1 of 2 b"]


def test_the_json_has_ratios_with_their_spread_and_every_sample() -> None:
    result = Result(
        name="x",
        unit="rows",
        samples={"a": [sample(1.0), sample(2.0)], "b": [sample(2.0), sample(6.0)]},
        comparisons=[Comparison("a", "b", Bar(low=2.0))],
    )
    document = as_json(result)
    assert document["ratios"] == [
        {
            "speed of": "a",
            "over": "b",
            "median": 2.5,
            "q1": 2.25,
            "q3": 2.75,
            "least": 2.0,
            "most": 3.0,
            "count": 2,
            "cpu": pytest.approx(5 / 12),
            "bar": ">= 2",
            "verdict": Verdict.MET,
        }
    ]
    samples = document["samples"]
    assert isinstance(samples, dict)
    assert [s["wall_s"] for s in samples["b"]] == [2.0, 6.0]
