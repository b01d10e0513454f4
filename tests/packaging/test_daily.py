"""What ``tests/daily.py`` leaves out on one day comes on another day."""

from __future__ import annotations

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
    @pytest.mark.campaign
    def test_never(): ...
"""


def of_the_day(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str, seed: int
) -> set[str]:
    """The names of what runs on this day."""
    monkeypatch.setenv("ABS_TEST_SEED", str(seed))
    pytester.makeini("[pytest]\nmarkers =\n  cases\n  tests\n  campaign")
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


def test_a_module_of_long_tests_runs_some_of_them_with_all_their_cases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for seed in range(20):
        today = of_the_day(pytester, monkeypatch, MODULE, seed)
        assert today in (
            {"test_ways[a]", "test_ways[b]", "test_first"},
            {"test_ways[a]", "test_ways[b]", "test_second"},
            {"test_first", "test_second"},
        )
        seen |= today
    assert len(seen) == 4


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
