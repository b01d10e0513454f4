"""What ``tests/daily.py`` leaves out on one day comes on another day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests import daily

pytest_plugins = ["pytester"]

CASES = """
    import pytest
    from tests import daily

    @daily.cases(1, of="protocol")
    @pytest.mark.parametrize("fault", ["lost", "late", "doubled"])
    @pytest.mark.parametrize("protocol", ["2pc", "wal"])
    def test_by_protocol(protocol, fault): ...

    @daily.cases(2)
    @pytest.mark.parametrize("way", ["a", "b", "c", pytest.param("d", marks=pytest.mark.campaign)])
    def test_ways(way): ...

    def test_alone(): ...
"""
MODULE = """
    import pytest
    from tests import daily

    pytestmark = daily.tests(2)

    @pytest.mark.parametrize("way", ["a", "b"])
    def test_ways(way): ...
    def test_first(): ...
    def test_second(): ...
    @daily.turn("long", ["long"], of="alone")
    def test_in_its_turn(): ...
    @pytest.mark.campaign
    def test_never(): ...
"""


@pytest.mark.parametrize(("size", "of_all", "days"), [(1, 3, 3), (2, 10, 5), (3, 10, 4), (4, 3, 1)])
def test_all_of_a_product_runs_in_a_round_of_as_many_days_as_it_has_parts(
    size: int, of_all: int, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(20):  # a month's end is among the days
        seen: list[int] = []
        # Whenever one begins to look: so many days at most until a new round begins.
        for number in range(2 * days - 1):
            monkeypatch.setenv("ABS_TEST_SEED", later("20261120", start + number))
            seen += daily.cut(range(of_all), size, "a product")
        assert set(seen) == set(range(of_all))
        assert len(seen) == min(size, of_all) * (2 * days - 1)


def test_what_is_cut_within_a_turn_is_not_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for number in range(120):
        monkeypatch.setenv("ABS_TEST_SEED", later("20261126", number))
        if daily.cut(range(6), 1, "turns") == [0]:
            found |= set(daily.cut(range(6), 1, "within one"))
    assert len(found) > 4


def test_each_rule_is_dealt_to_one_way_each_day_and_in_time_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules, ways = range(10), range(3)
    seen = set()
    for number in range(2 * len(ways) - 1):
        monkeypatch.setenv("ABS_TEST_SEED", later("20261126", number))
        dealt = [(rule, way) for way in ways for rule in daily.hand(rules, way, len(ways), "rules")]
        assert sorted(rule for rule, _way in dealt) == list(rules)
        seen |= set(dealt)
    assert len(seen) == len(rules) * len(ways)


def later(date: str, days: int) -> str:
    first = datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC)
    return f"{first + timedelta(days):%Y%m%d}"


def of_the_day(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str, seed: int
) -> set[str]:
    """The names of what runs on this day."""
    monkeypatch.setenv("ABS_TEST_SEED", str(seed))
    pytester.makeini("[pytest]\nmarkers =\n  cases\n  tests\n  turn\n  campaign")
    items = pytester.getitems(source)
    daily.deal(items)
    return {item.name for item in items if item.get_closest_marker("campaign") is None}


def test_each_day_tries_each_fault_under_one_protocol_and_in_time_under_all(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    for seed in range(20):
        today = of_the_day(pytester, monkeypatch, CASES, seed)
        by_protocol = [name for name in today if name.startswith("test_by_protocol")]
        assert {name.split("-")[1] for name in by_protocol} == {"lost]", "late]", "doubled]"}
        assert len(by_protocol) == 3
        assert len([name for name in today if name.startswith("test_ways")]) == 2
        assert "test_alone" in today
        seen |= today
    assert len(seen) == 6 + 3 + 1, "all but what is always the campaign's"


def test_a_module_of_long_tests_runs_some_of_them_with_all_their_cases_and_what_has_its_turn(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for seed in range(20):
        today = of_the_day(pytester, monkeypatch, MODULE, seed)
        assert today in (
            {"test_in_its_turn", "test_ways[a]", "test_ways[b]", "test_first"},
            {"test_in_its_turn", "test_ways[a]", "test_ways[b]", "test_second"},
            {"test_in_its_turn", "test_first", "test_second"},
        )
        seen |= today
    assert len(seen) == 5


def test_one_day_draws_the_same_in_all_processes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (of_the_day(pytester, monkeypatch, CASES, 7) for _process in range(2))
    assert first == second


def test_an_argument_that_a_test_does_not_have_is_an_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="has no argument place"):
        of_the_day(pytester, monkeypatch, CASES.replace('of="protocol"', 'of="place"'), 1)
