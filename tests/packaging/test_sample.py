"""``make test`` runs the same sample each time; together with the campaign it is everything."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests import sample
from tests.campaign import Minutes

pytest_plugins = ["pytester"]

CASES = """
    import pytest
    from tests import sample

    @sample.cases(1, of="protocol")
    @pytest.mark.parametrize("fault", ["lost", "late", "doubled"])
    @pytest.mark.parametrize("protocol", ["2pc", "wal"])
    def test_by_protocol(protocol, fault): ...

    @sample.cases(2)
    @pytest.mark.parametrize("way", ["a", "b", "c", pytest.param("d", marks=pytest.mark.campaign)])
    def test_ways(way): ...

    def test_alone(): ...
"""
MODULE = """
    import pytest
    from tests import sample

    pytestmark = sample.tests(2)

    @pytest.mark.parametrize("way", ["a", "b"])
    def test_ways(way): ...
    def test_first(): ...
    def test_second(): ...
    @pytest.mark.always
    def test_always(): ...
    @pytest.mark.campaign
    def test_never(): ...
"""


def sampled(pytester: pytest.Pytester, source: str) -> set[str]:
    """The names of what ``make test`` runs."""
    pytester.makeini("[pytest]\nmarkers =\n  cases\n  tests\n  always\n  campaign")
    items = pytester.getitems(source)
    sample.deal(items)
    return {item.name for item in items if item.get_closest_marker("campaign") is None}


def test_a_sample_does_not_depend_on_the_day_or_the_seed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = set()
    for seed in ("", "7", "20261127"):
        monkeypatch.setenv("ABS_TEST_SEED", seed)
        drawn.add(
            (
                *sample.cut(range(100), 5, "a product"),
                *sample.hand(range(10), 1, 3, "rules"),
                *sorted(sampled(pytester, CASES)),
            )
        )
    assert len(drawn) == 1


def drawn() -> list[tuple[int, str]]:
    """What hypothesis draws for one seed."""
    values = []

    @hypothesis.seed(sample.SEED)
    @settings(database=None, max_examples=200)
    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        values.append((number, text))

    draw()
    return values


@pytest.fixture
def kept_constants(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What hypothesis knows of constants, as it was."""
    monkeypatch.setattr(providers, "_get_local_constants", providers._get_local_constants)
    yield
    providers.CONSTANTS_CACHE.cache.clear()


@pytest.mark.long
@pytest.mark.parametrize("planted", [False, True])
def test_what_hypothesis_draws_does_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_constants: None, planted: bool
) -> None:
    providers._get_local_constants = sample.CONSTANTS_OF_MODULES
    if not planted:
        sample.draw_no_constants_of_loaded_modules()
    before = drawn()
    path = tmp_path / f"loaded_{planted}.py"
    path.write_text("\n".join(f"A{n} = {n * 7919}, 'text {n}'" for n in range(99)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    monkeypatch.setitem(sys.modules, path.stem, importlib.util.module_from_spec(spec))

    assert (drawn() != before) is planted


def test_two_products_of_one_length_are_cut_differently() -> None:
    assert sample.cut(range(100), 5, "one") != sample.cut(range(100), 5, "another")


def test_each_rule_is_dealt_to_exactly_one_way() -> None:
    dealt = [rule for way in range(3) for rule in sample.hand(range(10), way, 3, "rules")]
    assert sorted(dealt) == list(range(10))


def test_each_fault_is_sampled_under_one_protocol(pytester: pytest.Pytester) -> None:
    chosen = sampled(pytester, CASES)
    by_protocol = [name for name in chosen if name.startswith("test_by_protocol")]
    assert sorted(name.split("-")[1] for name in by_protocol) == ["doubled]", "late]", "lost]"]
    assert len([name for name in chosen if name.startswith("test_ways")]) == 2
    assert "test_alone" in chosen
    assert "test_ways[d]" not in chosen


def test_of_a_module_of_long_tests_some_run_with_all_their_cases_and_those_that_always_do(
    pytester: pytest.Pytester,
) -> None:
    assert sampled(pytester, MODULE) in (
        {"test_always", "test_ways[a]", "test_ways[b]", "test_first"},
        {"test_always", "test_ways[a]", "test_ways[b]", "test_second"},
        {"test_always", "test_first", "test_second"},
    )


def test_an_argument_that_a_test_does_not_have_is_an_error(pytester: pytest.Pytester) -> None:
    with pytest.raises(AssertionError, match="has no argument place"):
        sampled(pytester, CASES.replace('of="protocol"', 'of="place"'))


@pytest.mark.parametrize(
    ("minutes", "passed", "share"),
    [(10, 3, "3 of 3 tests began (100%)"), (0, 0, "0 of 3 tests began (0%)")],
)
def test_a_campaign_of_some_minutes_says_what_share_of_it_ran(
    pytester: pytest.Pytester, minutes: float, passed: int, share: str
) -> None:
    pytester.makeini("[pytest]")
    pytester.makepyfile(
        test_one="def test_a(): ...\ndef test_b(): ...", test_two="def test_c(): ..."
    )
    result = pytester.runpytest_inprocess(plugins=[Minutes(minutes)])
    result.assert_outcomes(passed=passed, skipped=3 - passed)
    assert any(line.startswith(share) for line in result.outlines)
