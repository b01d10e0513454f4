"""A handle's name is read exactly, and what only looks like one is not ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.errors import OptionError, ProtocolError
from abs_core.model import MAX_JOB_KEY, Committable, HandleName, job_key

NAME = HandleName("0123456789abcdef", "job", 12, 34, 5, "00ff")
TEXT = "abs1:0123456789abcdef:job:12:34:5:00ff"

LOOK_ALIKES = [
    "",
    "abs1",
    TEXT[:-5],
    TEXT + ":",
    TEXT + ":0",
    TEXT + " ",
    TEXT + "\n",
    " " + TEXT,
    TEXT.replace("abs1", "abs2"),
    TEXT.replace("abs1", "ABS1"),
    TEXT.replace("0123456789abcdef", "0123456789ABCDEF"),
    TEXT.replace("0123456789abcdef", "0123456789abcde"),
    TEXT.replace(":job:", "::"),
    TEXT.replace(":job:", ":j b:"),
    TEXT.replace(":job:", ":jöb:"),
    TEXT.replace(":12:", ":012:"),
    TEXT.replace(":12:", ":+12:"),
    TEXT.replace(":12:", ":-12:"),
    TEXT.replace(":12:", ":1_2:"),
    TEXT.replace(":12:", ":\u0661\u0662:"),
    TEXT.replace(":12:", ":1\uff12:"),
    TEXT.replace(":12:", ":1000000000000000000:"),
    TEXT.replace(":5:", ":10000000000:"),
    TEXT.replace("00ff", "00FF"),
    TEXT.replace("00ff", "xyz"),
    TEXT.replace("00ff", "0" * 25),
]


def test_a_name_prints_and_parses_itself() -> None:
    assert str(NAME) == TEXT
    assert HandleName.parse(TEXT) == NAME


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_look_alike_is_no_name(text: str) -> None:
    assert HandleName.parse(text) is None


@given(st.text(st.sampled_from("abs1:0123456789cdefjob\u0660\uff11-+ \n"), max_size=80))
def test_only_a_text_that_prints_the_same_is_a_name(text: str) -> None:
    found = HandleName.parse(text)
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    "part",
    [
        {"register": "x"},
        {"job": ""},
        {"job": "a b"},
        {"job": "a:b"},
        {"job": "x" * (MAX_JOB_KEY + 1)},
        {"generation": -1},
        {"epoch": -1},
        {"epoch": 10**18},
        {"attempt": "XY"},
        {"attempt": ""},
    ],
    ids=str,
)
def test_a_name_that_no_sweep_would_find_is_refused(part: dict[str, Any]) -> None:
    parts = {field: getattr(NAME, field) for field in HandleName.__slots__} | part
    with pytest.raises(ProtocolError, match="not a valid handle name"):
        HandleName(**parts)


def test_a_name_fits_the_longest_gid_of_postgres() -> None:
    longest = HandleName("f" * 16, "x" * MAX_JOB_KEY, 10**18 - 1, 10**18 - 1, 10**10 - 1, "f" * 24)
    assert len(str(longest)) < 200


SHORT = st.text(min_size=1, max_size=4)


@given(SHORT, SHORT)
def test_every_job_key_makes_a_name_and_no_two_jobs_share_one(job: str, other: str) -> None:
    key = job_key(job)
    name = HandleName("0" * 16, key, 1, 0, 0, "0")
    assert HandleName.parse(str(name)) == name
    assert (key == job_key(other)) == (job == other)
    assert job_key(job, other) not in (key, job_key(other), job_key(job + other))


@pytest.mark.parametrize(
    ("job", "token"), [("", None), ("job", ""), ("x" * 101, None), ("\ud800", None)]
)
def test_a_job_name_that_makes_no_key_is_refused(job: str, token: str | None) -> None:
    with pytest.raises(OptionError):
        job_key(job, token)


@pytest.mark.parametrize("extra", [(("b", ""), ("a", "")), (("a", ""), ("a", "x"))])
def test_extra_fields_that_would_change_as_text_are_refused(extra: Any) -> None:
    with pytest.raises(ProtocolError, match="sorted and unique"):
        Committable(NAME, 1, "none:", extra)
