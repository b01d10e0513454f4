"""Rows that pass = rows written + rows dead, from the tasks' counts to the decision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from abs_core.deadletters import Count, check_held, check_kept, counts_of, noted, with_dead
from abs_core.errors import MiscountError
from abs_core.model import Committable, HandleName, Share, Wrote
from abs_testing.case import Case, raises, rows
from tests.core.composing_sink import ComposingCommitter, ComposingSink
from tests.kit.fake_harness import open_fake

HANDLE = HandleName("0123456789abcdef", "job", 1, 4, 0, "ab")


def made(rows_: int, *counts: Count) -> Committable:
    return Committable(HANDLE, rows_, "d", noted(counts))


def test_dead_letters_that_were_found_replace_those_that_were_told() -> None:
    told = made(10, Count(0, 10, 1, 0.5))
    assert counts_of([with_dead(told, 3)]) == [Count(0, 10, 3, 0.5)]
    assert with_dead(told, 1) == told


def test_what_is_held_is_what_was_counted() -> None:
    told = made(10, Count(0, 10, 3, 0.5))
    check_held(told, 7, 3)
    for held in ((10, 3), (7, 2), (8, 3), (10, 0), (6, 4)):
        with pytest.raises(MiscountError, match="7 rows to write and 3 dead letters") as caught:
            check_held(told, *held)
        assert f"the target holds {held[0]} and {held[1]}." in caught.value.what
        assert (caught.value.job, caught.value.epoch) == ("job", 4)
    check_held(made(10), 10, 0)


@pytest.mark.parametrize(
    ("kept", "is_kept"),
    [
        ((Count(0, 10, 1, 0.5), Count(1, 5, 0, 0.5)), True),
        ((Count(0, 10, 4, 0.5), Count(1, 5, 0, 0.5)), True),  # rows became dead letters
        ((Count(0, 10, 0, 0.5), Count(1, 5, 0, 0.5)), False),
        ((Count(0, 9, 1, 0.5), Count(1, 6, 0, 0.5)), False),
        ((Count(0, 10, 1, 0.5),), False),
        ((), False),
    ],
)
def test_what_is_composed_counts_what_it_was_composed_of(
    kept: tuple[Count, ...], *, is_kept: bool
) -> None:
    given = [made(10, Count(0, 10, 1, 0.5)), made(5, Count(1, 5, 0, 0.5))]
    if is_kept:
        check_kept(given, [made(15, *kept)])
    else:
        raises(MiscountError, lambda: check_kept(given, [made(15, *kept)]))


def test_an_epoch_whose_compose_has_lost_counts_is_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compose = ComposingCommitter.compose

    def counted(self: ComposingCommitter, given: Sequence[Committable]) -> list[Committable]:
        return [replace(one, extra=noted(counts_of(given))) for one in compose(self, given)]

    def told(share: Share) -> Share:
        assert isinstance(share, Wrote)
        assert share.committable is not None
        count = Count(0, share.rows, 1, 1.0)
        return replace(share, committable=replace(share.committable, extra=noted([count])))

    with open_fake("wal", "append") as harness, closing(Case(harness)) as case:
        harness.new_sink = lambda: ComposingSink(harness._target)
        run = case.run()
        shares = [told(share) for share in run.tasks(0, rows(0, 3))]
        raises(MiscountError, lambda: run.commit(0, shares))
        assert run.state().last_decided is None
        monkeypatch.setattr(ComposingCommitter, "compose", counted)
        run.commit(0, shares)
        assert [(dead.rows, dead.dead) for dead in run.state().recent[-1].dead] == [(3, 1)]
