"""The audit does not stop at the expected count: what comes late, or can still come, is seen."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from abs_audit import LeftBehind
from abs_audit.report import Lock, OpenDecision, Prepared, Staging

EXPECTED = pa.table({"id": [1, 2, 3]})
LATE = pa.table({"id": [1, 2, 3, 3]})
QUIET = LeftBehind()

IN_DOUBT = {
    "a prepared transaction on the table": LeftBehind(prepared=(Prepared("abs1:x", 1.0, True),)),
    "a staging table with rows": LeftBehind(staging=(Staging('"abs"."s_x"', 3),)),
    "an open decision": LeftBehind(decisions=(OpenDecision("job", 7, "t"),)),
    "a writer's lock": LeftBehind(locks=(Lock("RowExclusiveLock", "process 1", True),)),
}
NOT_IN_DOUBT = {
    "nothing": QUIET,
    "a prepared transaction on another table": LeftBehind(
        prepared=(Prepared("abs1:x", 1.0, False),)
    ),
    "a foreign prepared transaction": LeftBehind(foreign_prepared=1),
    "an empty staging table": LeftBehind(staging=(Staging('"abs"."s_x"', 0),)),
    "a reader's lock": LeftBehind(locks=(Lock("AccessShareLock", "process 1", False),)),
}


def test_a_duplicate_after_the_first_read_is_found(compare: Any, records_of: Any) -> None:
    report = compare(EXPECTED, records_of(EXPECTED, later=[LATE]), key=["id"])
    assert not report.clean
    assert report.differences.duplicate == 1
    assert report.moved == 1


def test_a_record_that_vanishes_after_the_first_read_is_found(
    compare: Any, records_of: Any
) -> None:
    report = compare(EXPECTED, records_of(EXPECTED, later=[EXPECTED.slice(1)]), key=["id"])
    assert report.differences.missing == 1
    assert report.moved == 1


def test_two_reads_that_differ_are_not_clean_even_if_the_last_is_right(
    compare: Any, records_of: Any
) -> None:
    report = compare(EXPECTED, records_of(LATE, later=[EXPECTED]), key=["id"])
    assert report.differences.none
    assert not report.clean
    assert "changed by 1 record" in report.reasons[0]


def test_settling_reads_on_until_two_reads_agree(compare: Any, records_of: Any) -> None:
    moving = records_of(EXPECTED.slice(2), later=[EXPECTED.slice(1), EXPECTED])
    report = compare(EXPECTED, moving, key=["id"], settle=60)
    assert report.clean
    assert report.reads == 4


def test_settling_ends_with_time_and_says_what_moves(compare: Any, records_of: Any) -> None:
    moving = records_of(EXPECTED, later=[LATE, EXPECTED] * 500)
    report = compare(EXPECTED, moving, key=["id"], settle=0.5)
    assert not report.clean
    assert report.moved == 1


@pytest.mark.parametrize("doubt", IN_DOUBT)
def test_the_audit_is_not_clean_while_there_is(doubt: str, compare: Any, records_of: Any) -> None:
    actual = records_of(EXPECTED, left=[IN_DOUBT[doubt]])
    report = compare(EXPECTED, actual, key=["id"], left_behind=actual.look)
    assert report.differences.none
    assert not report.clean
    assert report.reasons == IN_DOUBT[doubt].doubts


@pytest.mark.parametrize("doubt", IN_DOUBT)
def test_settling_waits_for_the_end_of(doubt: str, compare: Any, records_of: Any) -> None:
    actual = records_of(
        EXPECTED.slice(1), later=[EXPECTED], left=[IN_DOUBT[doubt], IN_DOUBT[doubt], QUIET]
    )
    report = compare(EXPECTED, actual, key=["id"], left_behind=actual.look, settle=60)
    assert report.clean
    assert report.left_behind == QUIET


@pytest.mark.parametrize("doubt", IN_DOUBT)
def test_settling_goes_on_while_the_reads_agree_beside(
    doubt: str, compare: Any, records_of: Any
) -> None:
    actual = records_of(EXPECTED, left=[QUIET, IN_DOUBT[doubt], QUIET])
    report = compare(EXPECTED, actual, key=["id"], left_behind=actual.look, settle=60)
    assert report.clean
    assert report.reads == 3


@pytest.mark.parametrize("seen", NOT_IN_DOUBT)
def test_the_audit_is_clean_beside(seen: str, compare: Any, records_of: Any) -> None:
    actual = records_of(EXPECTED, left=[NOT_IN_DOUBT[seen]])
    report = compare(EXPECTED, actual, key=["id"], left_behind=actual.look)
    assert report.clean
    assert report.left_behind == NOT_IN_DOUBT[seen]


@pytest.mark.parametrize("place", [0, 1])
def test_what_was_in_doubt_on_either_side_of_the_last_read_counts(
    place: int, compare: Any, records_of: Any
) -> None:
    looks = [QUIET, QUIET]
    looks[place] = IN_DOUBT["an open decision"]
    actual = records_of(EXPECTED, left=[*looks])
    assert not compare(EXPECTED, actual, key=["id"], left_behind=actual.look).clean


def test_an_audit_with_a_blind_spot_is_not_clean(compare: Any, records_of: Any) -> None:
    actual = records_of(EXPECTED, left=[LeftBehind(unchecked=("abs.register: denied",))])
    report = compare(EXPECTED, actual, key=["id"], left_behind=actual.look)
    assert report.reasons == ("not checked: abs.register: denied",)


def test_a_target_that_cannot_tell_is_said_to_be_one(compare: Any) -> None:
    report = compare(EXPECTED, EXPECTED, key=["id"])
    assert report.left_behind is None
    assert any("not checked" in note for note in report.notes)
