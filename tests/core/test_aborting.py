"""Handles are aborted each on its own: those that stay are named, and stop none of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from abs_core.aborting import MAX_SHOWN, abort_each, attempt_all
from abs_core.errors import ContentionError, RefusedError, TargetError, UnavailableError
from abs_core.model import HandleName

HANDLES = [HandleName("0123456789abcdef", "job", 1, 0, task, "aa") for task in range(8)]


def _failing(errors: dict[int, TargetError], seen: list[int]) -> Callable[[HandleName], None]:
    def abort(handle: HandleName) -> None:
        seen.append(handle.partition)
        if handle.partition in errors:
            raise errors[handle.partition]

    return abort


def test_all_are_tried_and_the_error_names_those_that_stay() -> None:
    seen: list[int] = []
    errors: dict[int, TargetError] = {
        0: RefusedError("It is another's.", remedy="ask them."),
        5: RefusedError("It is old."),
    }
    with pytest.raises(RefusedError, match="2 of 8 handles") as caught:
        abort_each(HANDLES, _failing(errors, seen))
    assert seen == list(range(8))
    for number, why in ((0, "It is another's"), (5, "It is old")):
        assert f"{HANDLES[number]} ({why})" in str(caught.value)
    assert caught.value.remedy == "ask them."
    assert str(HANDLES[1]) not in str(caught.value)


def test_what_may_pass_makes_the_whole_worth_another_try() -> None:
    errors: dict[int, TargetError] = {1: RefusedError("No."), 2: ContentionError("Not now.")}
    with pytest.raises(ContentionError):
        abort_each(HANDLES, _failing(errors, []))


def test_a_system_that_is_away_is_not_asked_for_every_handle() -> None:
    seen: list[int] = []
    away: dict[int, TargetError] = {n: UnavailableError("Nobody answers.") for n in range(2, 8)}
    with pytest.raises(UnavailableError, match="6 of 8 handles") as caught:
        abort_each(HANDLES, _failing(away, seen))
    assert seen == [0, 1, 2, 3], "two in a row are enough"
    assert "not tried" in str(caught.value)
    assert f"{6 - MAX_SHOWN} more" in str(caught.value)


def test_one_that_does_not_answer_is_not_taken_for_a_system_that_is_away() -> None:
    seen: list[int] = []
    errors: dict[int, TargetError] = {n: UnavailableError("Its leader is away.") for n in (1, 3, 5)}
    with pytest.raises(UnavailableError):
        abort_each(HANDLES, _failing(errors, seen))
    assert seen == list(range(8))


def test_the_error_of_a_single_handle_is_its_own() -> None:
    error = RefusedError("It is another's.", handle=str(HANDLES[0]))
    with pytest.raises(RefusedError) as caught:
        abort_each(HANDLES[:1], _failing({0: error}, []))
    assert caught.value is error


def test_of_several_parts_all_are_called_and_all_reasons_told() -> None:
    called: list[str] = []

    def part(name: str, error: TargetError | None = None) -> Callable[[], None]:
        def call() -> None:
            called.append(name)
            if error is not None:
                raise error

        return call

    parts = [part("a", RefusedError("A.")), part("b"), part("c", UnavailableError("C."))]
    with pytest.raises(UnavailableError, match=r"A\. C\."):
        attempt_all(parts)
    assert called == ["a", "b", "c"]
    attempt_all([part("d")])
