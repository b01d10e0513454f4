"""Planted bugs: each is found, named rightly, and counted; a clean target is clean."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_audit import Differences, Report
from abs_core.errors import CorruptionError

EXPECTED = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "name": ["ann", "bob", "cy", None, "eve of the long name"],
        "amount": pa.array([1.5, float("nan"), 2.5, -3.0, None], pa.float64()),
        "at": pa.array([0, 3_600_000_000, 2, 3, None], pa.timestamp("us", "UTC")),
    }
)
KINDS = ("missing", "duplicate", "unexpected", "corrupted")


def found(report: Report) -> dict[str, int]:
    return {kind: n for kind, n in report.differences.figures().items() if kind in KINDS and n}


def with_value(column: str, row: int, value: Any) -> pa.Table:
    values = EXPECTED[column].to_pylist()
    values[row] = value
    place = EXPECTED.schema.get_field_index(column)
    return EXPECTED.set_column(place, column, pa.array(values, EXPECTED[column].type))


def rows(*numbers: int) -> pa.Table:
    return EXPECTED.take(pa.array(numbers))


SWAPPED = with_value("name", 0, "bob").set_column(
    1, "name", pa.array(["bob", "ann", "cy", None, "eve of the long name"])
)

PLANTED: dict[str, tuple[pa.Table, dict[str, int]]] = {
    "a duplicate": (rows(0, 1, 2, 3, 4, 2), {"duplicate": 1}),
    "a loss": (rows(0, 1, 3, 4), {"missing": 1}),
    "an unexpected record": (
        pa.concat_tables([EXPECTED, with_value("id", 0, 9).slice(0, 1)]),
        {"unexpected": 1},
    ),
    "two values swapped between rows": (SWAPPED, {"corrupted": 2}),
    "a duplicate that a loss makes up for": (rows(0, 1, 2, 4, 4), {"missing": 1, "duplicate": 1}),
    "a pair written twice, a pair lost": (
        rows(0, 0, 1, 1, 4),
        {"missing": 2, "duplicate": 2},
    ),
    "a value that became null": (with_value("name", 0, None), {"corrupted": 1}),
    "a null that became empty": (with_value("name", 3, ""), {"corrupted": 1}),
    "a null that became zero": (with_value("amount", 4, 0.0), {"corrupted": 1}),
    "truncated text": (with_value("name", 4, "eve of the long"), {"corrupted": 1}),
    "text with a blank more": (with_value("name", 0, "ann "), {"corrupted": 1}),
    "a NaN that became null": (with_value("amount", 1, None), {"corrupted": 1}),
    "a NaN that became a number": (with_value("amount", 1, 0.0), {"corrupted": 1}),
    "the last bit of a float": (with_value("amount", 0, 1.5000000000000002), {"corrupted": 1}),
    "a timestamp shifted by an hour": (
        with_value("at", 0, 3_600_000_000),
        {"corrupted": 1},
    ),
    "everything twice": (rows(*range(5), *range(5)), {"duplicate": 5}),
    "nothing at all": (EXPECTED.slice(0, 0), {"missing": 5}),
    "one key for two records": (with_value("id", 1, 1), {"missing": 1, "duplicate": 1}),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_named(bug: str, compare: Any) -> None:
    actual, expected_findings = PLANTED[bug]
    report = compare(EXPECTED, actual, key=["id"])
    assert found(report) == expected_findings
    assert not report.clean
    assert set(report.differences.samples) == set(expected_findings)


@pytest.mark.parametrize("bug", PLANTED)
def test_without_a_key_no_planted_bug_passes(bug: str, compare: Any) -> None:
    actual, by_key = PLANTED[bug]
    report = compare(EXPECTED, actual)
    # A corrupted record is one that is missing and one that nobody expected.
    assert report.differences.corrupted == 0
    assert report.differences.missing == by_key.get("missing", 0) + by_key.get("corrupted", 0)
    assert not report.clean
    assert any("no key" in note for note in report.notes)


@pytest.mark.parametrize("key", [["id"], [], ["id", "name"]])
def test_the_same_records_in_another_order_are_clean(key: list[str], compare: Any) -> None:
    report = compare(EXPECTED, rows(4, 2, 0, 3, 1), key=key)
    assert report.clean
    assert report.reasons == ()
    assert report.differences.expected == report.differences.actual == 5


def test_nothing_expected_and_nothing_there_is_clean(compare: Any) -> None:
    assert compare(EXPECTED.slice(0, 0), EXPECTED.slice(0, 0), key=["id"]).clean


def test_a_sample_names_the_record_and_what_changed_in_it(compare: Any) -> None:
    report = compare(EXPECTED, SWAPPED, key=["id"])
    first, second = report.differences.samples["corrupted"]
    assert (first.identity, first.changed) == ({"id": "1"}, {"name": ("ann", "bob")})
    assert (second.identity, second.changed) == ({"id": "2"}, {"name": ("bob", "ann")})


def test_a_sample_of_long_text_shows_the_place_where_it_differs(compare: Any) -> None:
    long = "x" * 5000
    report = compare(
        {"id": [1], "t": [long + "a" + long]}, {"id": [1], "t": [long + "b"]}, key=["id"]
    )
    before, after = report.differences.samples["corrupted"][0].changed["t"]
    assert before.startswith("…xx")
    assert "xax" in before
    assert after.endswith("xb")
    assert len(before) < 300


def test_no_more_samples_are_given_than_asked_for(compare: Any) -> None:
    report = compare({"id": list(range(100))}, {"id": [0]}, key=["id"], samples=3)
    assert [s.identity["id"] for s in report.differences.samples["missing"]] == ["1", "2", "3"]
    assert report.differences.missing == 99


def test_a_null_in_the_key_is_an_identity_like_any_other(compare: Any) -> None:
    expected = {"id": pa.array([None, None, 1]), "v": [1, 2, 3]}
    actual = {"id": pa.array([None, None, 1]), "v": [1, 7, 3]}
    report = compare(expected, actual, key=["id"])
    assert found(report) == {"corrupted": 1}
    assert report.differences.samples["corrupted"][0].identity == {"id": None}


def test_with_a_key_that_is_not_unique_records_are_matched_by_content_first(compare: Any) -> None:
    expected = {"k": [1, 1, 1, 2], "v": [10, 11, 12, 20]}
    actual = {"k": [1, 1, 1, 1, 2], "v": [10, 12, 99, 12, 20]}
    report = compare(expected, actual, key=["k"])
    assert found(report) == {"corrupted": 1, "duplicate": 1}
    assert report.differences.ambiguous == 1
    assert any("not unique" in note for note in report.notes)


def test_a_duplicate_with_other_content_is_a_duplicate_of_its_identity(compare: Any) -> None:
    report = compare({"k": [1], "v": [1]}, {"k": [1, 1], "v": [1, 2]}, key=["k"])
    assert found(report) == {"duplicate": 1}


def test_columns_are_matched_by_name_not_by_place(compare: Any) -> None:
    assert compare(EXPECTED, EXPECTED.select(["at", "amount", "name", "id"]), key=["id"]).clean


def test_only_the_named_columns_are_compared(compare: Any) -> None:
    report = compare(EXPECTED, SWAPPED, key=["id"], columns=["amount", "at"])
    assert report.clean
    assert report.columns == ("id", "amount", "at")


def test_figures_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(CorruptionError, match="contradict"):
        Differences(
            expected=5,
            actual=5,
            missing=1,
            duplicate=0,
            unexpected=0,
            corrupted=0,
            absent=1,
            surplus=0,
        )


def test_many_differences_are_counted_without_sampling_them_all(compare: Any) -> None:
    ids = pa.array(range(100_000), pa.int64())
    report = compare(
        pa.table({"id": ids, "v": ids}),
        pa.table({"id": ids, "v": pc.add(ids, 1)}),
        key=["id"],
    )
    assert found(report) == {"corrupted": 100_000}
    assert report.differences.absent == report.differences.surplus == 100_000
