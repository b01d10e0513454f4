"""A list that a server never ends is refused, and a long one is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import pytest

from abs_clients.s3 import objects as listing
from abs_clients.s3.objects import OBJECTS, UPLOADS, pages
from abs_core.errors import CorruptionError


def answering(tokens: Callable[[], str]) -> Callable[..., Mapping[str, Any]]:
    def call(**_: object) -> Mapping[str, Any]:
        return {"IsTruncated": True, "NextContinuationToken": tokens()}

    return call


@pytest.mark.parametrize("circle", ["a", "ab", "abcdefg"])
def test_a_list_that_goes_round_in_a_circle_is_refused(circle: str) -> None:
    turning = cycle(circle)
    read = pages(answering(lambda: next(turning)), OBJECTS, "objects of s3://b/x")
    with pytest.raises(CorruptionError, match=r"objects of s3://b/x, and gave it without an end"):
        for _ in read:
            pass


def test_a_list_whose_answers_never_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_ANSWERS", 100)
    numbers = iter(range(1000))
    read = pages(answering(lambda: str(next(numbers))), OBJECTS, "objects")
    with pytest.raises(CorruptionError, match="without an end"):
        for _ in read:
            pass
    assert next(numbers) < 110


def test_uploads_of_one_key_go_on_by_the_second_marker() -> None:
    left = [{"IsTruncated": True, "NextKeyMarker": "k", "NextUploadIdMarker": n} for n in "abc"]
    found = list(pages(lambda **_: (left or [{}]).pop(0), UPLOADS, "uploads"))
    assert len(found) == 4
