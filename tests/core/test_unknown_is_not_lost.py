"""A handle of unknown outcome is not told as lost: who writes its rows again may double them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from abs_core.errors import HandleLostError
from abs_core.model import Committable, HandleName, Outcome
from abs_testing.case import LEFT, Case, raises
from abs_testing.cuts import Cut
from abs_testing.fakes.sink import HandleCommitter
from tests.kit.fake_harness import open_fake

Patch = pytest.MonkeyPatch


@pytest.fixture
def case() -> Iterator[Case]:
    with open_fake("2pc", "append", own_register=False) as harness, closing(Case(harness)) as case:
        case.halted(Cut("commit"), LEFT)
        yield case


def answers(patch: Patch, *outcomes: Outcome) -> list[Outcome]:
    """What the target says, call by call; the rest is true."""
    left = list(outcomes)
    right = HandleCommitter.commit

    def commit(
        self: HandleCommitter, committables: Sequence[Committable]
    ) -> Mapping[HandleName, Outcome]:
        found = right(self, committables)
        return dict.fromkeys(found, left.pop(0)) if left else found

    patch.setattr(HandleCommitter, "commit", commit)
    return left


def test_an_unknown_outcome_says_where_to_look_before_anything_is_written_again(
    case: Case, monkeypatch: Patch
) -> None:
    answers(monkeypatch, *[Outcome.UNKNOWN] * 2)
    error = raises(HandleLostError, lambda: case.run().epoch(0, LEFT))
    assert "does not tell whether they were committed" in error.what
    assert "not in the target" not in error.what
    assert error.remedy.startswith("look by the keys of the epoch's rows which are there")
    assert "double" in error.remedy


def test_an_aborted_handle_is_told_as_lost(case: Case, monkeypatch: Patch) -> None:
    answers(monkeypatch, Outcome.ABORTED)
    error = raises(HandleLostError, lambda: case.run().epoch(0, LEFT))
    assert "their rows are not in the target" in error.what
    assert error.remedy.startswith("write rows that are not there again")
    assert "may be there" not in error.what


def test_an_answer_that_was_cut_short_once_is_asked_for_again(
    case: Case, monkeypatch: Patch
) -> None:
    left = answers(monkeypatch, Outcome.UNKNOWN)
    case.run().epoch(0, LEFT)
    assert not left
    case.finished(LEFT, when="after a second look")
