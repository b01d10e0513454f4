"""For random multisets the report equals what a naive count in Python says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from abs_audit import Report

pytestmark = pytest.mark.long

NAN = float("nan")
Row = tuple[int | None, str | None, float | None]

ROWS = st.tuples(
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, "", "a", 'a"', "a,b", "\0"]),
    st.sampled_from([None, 0.0, -0.0, 1.5, NAN]),
)


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Expected, and a copy of it in which some rows are lost, doubled, changed or new."""
    expected = draw(st.lists(ROWS, max_size=12))
    actual: list[Row] = []
    for row in expected:
        fate = draw(st.sampled_from(["kept", "kept", "kept", "lost", "doubled", "changed"]))
        actual += {
            "kept": [row],
            "lost": [],
            "doubled": [row, row],
            "changed": [(row[0], *draw(ROWS)[1:])],
        }[fate]
    actual += draw(st.lists(ROWS, max_size=3))
    return expected, draw(st.permutations(actual))


def canonical(row: Row) -> tuple[Any, ...]:
    key, text, number = row
    if number is None:
        return (key, text, None)
    return (key, text, "nan" if number != number else number + 0.0)


def oracle(
    expected: list[Row], actual: list[Row], identity: Callable[[tuple[Any, ...]], Any]
) -> dict[str, int]:
    """The definition, identity by identity."""
    wanted = [canonical(row) for row in expected]
    there = [canonical(row) for row in actual]
    counts: Counter[str] = Counter()
    known = {identity(row) for row in wanted}
    for key in known | {identity(row) for row in there}:
        one = Counter(row for row in wanted if identity(row) == key)
        other = Counter(row for row in there if identity(row) == key)
        short, over = (one - other).total(), (other - one).total()
        corrupted = min(short, over)
        counts["corrupted"] += corrupted
        counts["missing"] += short - corrupted
        counts["duplicate" if key in known else "unexpected"] += over - corrupted
    one, other = Counter(wanted), Counter(there)
    counts["absent"], counts["surplus"] = (one - other).total(), (other - one).total()
    return dict(counts)


def table(rows: list[Row]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) or [[], [], []]
    types = [pa.int64(), pa.string(), pa.float64()]
    return pa.table({n: pa.array(c, t) for n, c, t in zip("ktv", columns, types, strict=True)})


def check(report: Report, truth: dict[str, int]) -> None:
    figures = report.differences.figures()
    assert {name: figures[name] for name in truth} == truth
    assert report.clean == (not any(truth.values()))
    for kind, samples in report.differences.samples.items():
        assert sum(sample.records for sample in samples) == figures[kind]


SETTINGS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SETTINGS
@given(sides=two_sides())
def test_with_a_key_the_report_equals_the_oracle(
    compare: Any, sides: tuple[list[Row], list[Row]]
) -> None:
    truth = oracle(*sides, lambda row: row[0])
    event(f"kinds of differences: {sum(map(bool, truth.values()))}")
    check(compare(table(sides[0]), table(sides[1]), key=["k"], samples=100), truth)


@SETTINGS
@given(sides=two_sides())
def test_without_a_key_the_report_equals_the_oracle(
    compare: Any, sides: tuple[list[Row], list[Row]]
) -> None:
    truth = oracle(*sides, lambda row: row)
    check(compare(table(sides[0]), table(sides[1]), samples=100), truth)
