"""What is kept and was damaged, cut short, or written by a newer release: a typed error, or accepted.

About 9,000 damaged registers, manifests, segments, winners records, snapshots and offsets.
Each is read as the product reads it. Accepted means: what was read can be written and read
again. Else there is one of the project's own errors, with a remedy, and nothing was written.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from abs_core.codec import state_from_text, state_to_text
from abs_core.errors import AbsError
from tests import sample
from tests.badinput.damage import applied, cases, smallest
from tests.badinput.kept import ALL, EACH, Kept, golden, read_as_segment

LONGEST = 12_000
"""Characters of an error: a damaged text of megabytes must not be all of it."""


def problem(kept: Kept, content: bytes, folder: Path) -> str | None:
    """What is wrong with the way this content is read; None: accepted, or a typed error."""
    try:
        kept.read(content, folder)
    except AbsError as error:
        if not error.remedy:
            return f"{type(error).__name__} has no remedy: {str(error)[:300]}"
        if len(str(error)) > LONGEST:
            return f"{type(error).__name__} is {len(str(error))} characters long"
        if str(pickle.loads(pickle.dumps(error))).encode() != str(error).encode():
            return f"{type(error).__name__} is another one once it was pickled"
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


@pytest.mark.parametrize("kept", ALL, ids=lambda kept: kept.name)
def test_what_is_kept_and_damaged_is_a_typed_error_with_a_remedy_or_accepted(
    kept: Kept, tmp_path: Path
) -> None:
    chance = Random(f"{sample.seed()}:{kept.name}")
    count = EACH // 3 if kept.slow else EACH
    assert problem(kept, kept.content, tmp_path) is None, "what is whole is not read"
    for names, steps, content in cases(kept.content, count, chance):
        wrong = problem(kept, content, tmp_path)
        if wrong is not None:
            least = smallest(
                kept.content, names, steps, lambda c: problem(kept, c, tmp_path) is not None
            )
            raise AssertionError(f"{kept.name}, {least}: {wrong} (ABS_TEST_SEED={sample.seed()})")


def test_there_are_nine_thousand_cases_a_day() -> None:
    assert sum(EACH // 3 if kept.slow else EACH for kept in ALL) >= 9_000


@pytest.mark.parametrize("kept", [k for k in ALL if k.newer], ids=lambda kept: kept.name)
def test_a_newer_version_is_refused_by_its_number(kept: Kept, tmp_path: Path) -> None:
    (field,) = kept.newer
    for number in (99, 10**6):
        newer = json.dumps(json.loads(kept.content) | {field: number}).encode()
        with pytest.raises(AbsError, match=f"{field} {number}, of a newer release") as raised:
            kept.read(newer, tmp_path)
        assert "newer one" in raised.value.remedy


def test_a_segment_of_a_newer_release_is_refused_by_its_version(tmp_path: Path) -> None:
    newer = golden("segment-plain.arrows")[:-8] + b"ABSWAL07"
    with pytest.raises(AbsError, match="ABSWAL07, of a newer release") as raised:
        read_as_segment(newer, tmp_path)
    assert "newer one" in raised.value.remedy


def test_a_failing_case_is_made_smaller() -> None:
    steps = [lambda c: c + b"1", lambda c: c + b"2", lambda c: c + b"3"]
    names = ["one", "two", "three"]
    assert smallest(b"", names, steps, lambda c: b"2" in c) == "two"
    assert applied(b"", steps) == b"123"


@pytest.mark.parametrize("readers", [json.loads])
def test_the_cases_find_a_reader_without_a_guard(
    readers: Callable[[bytes], object], tmp_path: Path
) -> None:
    """The planted bug: a register that is read by plain ``json.loads``."""

    def careless(content: bytes, _: Path) -> None:
        try:
            state_to_text(state_from_text(json.dumps(readers(content)), "here"))
        except ValueError as error:
            raise AbsError("damaged", remedy="restore it") from error

    kept = replace(ALL[0], read=careless)
    chance = Random(f"{sample.seed()}:planted")
    found = [
        problem(kept, content, tmp_path) for _, _, content in cases(kept.content, EACH, chance)
    ]
    assert any(wrong and "RecursionError" in wrong for wrong in found)
