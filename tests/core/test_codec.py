"""What registers keep comes back as it was, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.codec import (
    VERSION,
    committable_from_json,
    committable_to_json,
    state_from_text,
    state_to_text,
)
from abs_core.errors import CorruptionError
from abs_core.model import Committable, Decision, HandleName, JobState, NotedToken, Recent
from abs_core.release import RELEASE
from abs_core.rowdigest import RowDigest

HEX = "0123456789abcdef"
NUMBER = st.integers(0, 10**17)
TEXT = st.text(max_size=20)
HANDLES = st.builds(
    HandleName,
    st.text(HEX, min_size=16, max_size=16),
    st.text("abcXYZ09_.~%@-", min_size=1, max_size=100),
    NUMBER,
    NUMBER,
    st.integers(0, 10**9),
    st.text(HEX, min_size=1, max_size=24),
)
EXTRA = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda d: tuple(sorted(d.items())))
COMMITTABLES = st.builds(Committable, HANDLES, NUMBER, TEXT, EXTRA)
DECISIONS = st.builds(Decision, TEXT, NUMBER, NUMBER, st.lists(COMMITTABLES, max_size=3).map(tuple))
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
TOKENS = st.builds(NotedToken, TEXT, TEXT, NUMBER, MOMENTS)
STATES = st.builds(
    JobState,
    st.text(HEX, min_size=16, max_size=16),
    TEXT,
    TEXT,
    TEXT,
    NUMBER,
    TEXT,
    st.lists(TEXT, max_size=3).map(tuple),
    st.none() | NUMBER,
    st.lists(DECISIONS, max_size=3).map(tuple),
    st.lists(st.builds(Recent, NUMBER, st.none() | TEXT, NUMBER), max_size=3).map(tuple),
    st.lists(NUMBER, max_size=3).map(tuple),
    st.none() | TEXT.filter(bool),
    st.lists(TOKENS, max_size=3).map(tuple),
)
WRONG: list[Any] = [None, True, 1.5, "text", [], {}, [1], {"a": 1}, -1]


@given(STATES)
def test_a_state_comes_back_from_its_text(state: JobState) -> None:
    text = state_to_text(state)
    assert "\n" not in text
    assert state_from_text(text, "here") == state
    assert state_to_text(state_from_text(text, "here")) == text


@given(COMMITTABLES)
def test_a_committable_comes_back_from_its_json(committable: Committable) -> None:
    written = json.loads(json.dumps(committable_to_json(committable)))
    read = committable_from_json(written)
    assert (read, read.release) == (committable, committable.release)


@given(HANDLES)
def test_a_handle_name_comes_back_from_its_text(handle: HandleName) -> None:
    assert HandleName.parse(str(handle)) == handle


@given(STATES, st.data())
def test_a_field_of_another_type_is_refused_or_means_the_same(
    state: JobState, data: st.DataObject
) -> None:
    value = json.loads(state_to_text(state))
    field = data.draw(st.sampled_from(sorted(value)))
    value[field] = data.draw(st.sampled_from(WRONG))
    try:
        read = state_from_text(json.dumps(value), "here")
    except CorruptionError:
        return
    # Where it is let in, nothing was guessed: the same text would be written again, by this release.
    value["release"] = RELEASE
    assert json.loads(state_to_text(read)) == value
    assert type(json.loads(state_to_text(read))[field]) is type(value[field])


@pytest.mark.parametrize("version", [0, -1, VERSION + 1, 10**6, None, "1", 1.5])
def test_a_version_of_another_release_is_refused(version: object) -> None:
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run")
    value = json.loads(state_to_text(state)) | {"version": version}
    with pytest.raises(CorruptionError) as raised:
        state_from_text(json.dumps(value), "table abs.register, job x")
    assert "table abs.register, job x" in raised.value.what
    assert "do not delete it" in raised.value.remedy
    if isinstance(version, int) and version > VERSION:
        assert f"version {version}, of a newer release" in raised.value.what


@pytest.mark.parametrize("field", ["generation", "frontier"])
@pytest.mark.parametrize("number", [-1, 10**18 - 1, 10**18, 2**63])
def test_a_number_that_no_handle_can_bear_is_refused(field: str, number: int) -> None:
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run", frontier=3)
    value = json.loads(state_to_text(state)) | {field: number}
    with pytest.raises(CorruptionError, match=r"not (a number from|fit into 64 bits)"):
        state_from_text(json.dumps(value), "here")


@pytest.mark.parametrize(
    ("where", "value"),
    [("recent", [[-1, None, 1]]), ("recent", [[1, None, -1]]), ("abandoned", [-2])],
)
def test_a_negative_epoch_or_row_count_is_refused(where: str, value: object) -> None:
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run")
    written = json.loads(state_to_text(state)) | {where: value}
    with pytest.raises(CorruptionError, match="is not a number from 0"):
        state_from_text(json.dumps(written), "here")


def test_a_negative_row_count_of_a_handle_is_refused() -> None:
    handle = HandleName("0" * 16, "job", 1, 0, 0, "a")
    written = committable_to_json(Committable(handle, 3, "digest")) | {"rows": -3}
    with pytest.raises(ValueError, match="-3 is not a number from 0"):
        committable_from_json(written)


def test_a_digest_of_rows_that_is_damaged_is_refused() -> None:
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run")
    whole = replace(state, recent=(Recent(0, RowDigest(1, (("a", 1),)).to_text(), 5),))
    text = state_to_text(whole)
    assert state_from_text(text, "here") == whole
    with pytest.raises(CorruptionError, match="not a digest of rows"):
        state_from_text(text.replace("0000000000000001", "1"), "here")


@pytest.mark.parametrize(
    ("tokens", "why"),
    [([], "an empty list of tokens"), ([["a", "b", 1, "2026-01-01T00:00:00"]], "has no time zone")],
)
def test_tokens_that_are_never_written_so_are_refused(tokens: list[object], why: str) -> None:
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run")
    written = json.loads(state_to_text(state)) | {"tokens": tokens}
    with pytest.raises(CorruptionError, match=why):
        state_from_text(json.dumps(written), "here")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '"x"', "{}", '{"version": 1}'])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(CorruptionError):
        state_from_text(text, "here")


@given(st.text(max_size=60))
def test_any_text_is_a_state_or_a_corruption_error(text: str) -> None:
    with pytest.raises(CorruptionError):
        state_from_text(text, "here")


def test_a_version_that_only_equals_the_number_is_refused() -> None:
    text = state_to_text(JobState("0" * 16, "job", "target", "lineage", 1, "run"))
    value = json.loads(text)
    assert value["version"] == 2  # a state with several sinks is of version 3
    with pytest.raises(CorruptionError):
        state_from_text(json.dumps({**value, "version": True}), "here")
