"""The rules of a start on targets that do not show what is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import sinkmap
from abs_core.births import targets
from abs_core.lookback import LookedBack, Past, compared, past_of
from abs_core.model import Committable, HandleName, JobState, Recent, Shown
from abs_core.protocol import Changed, RunIdentity, Unchanged

WHO = RunIdentity("job", "lineage", "run", "target")
NOTED = tuple(Recent(n, f"input {n}", 10, shown=(Shown(0, 10, f"mark {n}"),)) for n in (3, 4, 6))
STATE = JobState("0" * 16, "job", "target", "lineage", 2, "before", frontier=6, recent=NOTED)
GONE = LookedBack(0, (4, 6), "They are not there.")


def test_what_is_gone_is_named_and_consented_to_once() -> None:
    error = targets.refused(STATE, WHO, 7, [GONE])
    assert error is not None
    assert "the 20 rows of the finished epoch(s) 4, 6. They are not there." in error.what
    token = error.remedy.rpartition("adopt=")[2].partition(" ")[0]
    assert targets.refused(STATE, replace(WHO, adopt=token), 7, [GONE]) is None
    # Not for other epochs, nor for a later run.
    for state, looks in (
        (STATE, [replace(GONE, gone=(3, 4, 6))]),
        (replace(STATE, generation=3), [GONE]),
    ):
        assert targets.refused(state, replace(WHO, adopt=token), 7, looks) is not None


def test_if_everything_that_is_recorded_is_gone_what_was_before_is_unknown() -> None:
    error = targets.refused(STATE, WHO, 7, [replace(GONE, gone=(3, 4, 6))])
    assert error is not None
    assert "of epochs before 3 nothing is recorded" in error.what


def test_consent_ends_the_comparison_and_raises_the_generation_above_what_was_seen() -> None:
    ahead = LookedBack(0, ahead=(7, 1))
    verdict = targets.consented(STATE, Changed(replace(STATE, generation=3)), [GONE, ahead])
    assert isinstance(verdict, Changed)
    assert verdict.state.generation == 8
    assert [note.epoch for note in past_of(verdict.state).noted] == [3]
    assert targets.consented(STATE, Unchanged(STATE), [GONE]) == Unchanged(STATE)


def test_another_target_is_not_compared_with_what_the_one_before_showed() -> None:
    moved = Changed(replace(STATE, target="another"))
    assert targets.continues(STATE, moved) is None
    verdict = targets.consented(STATE, moved, ())
    assert isinstance(verdict, Changed)
    assert past_of(verdict.state).noted == ()


@pytest.mark.parametrize(
    ("there", "every", "gone", "unsure"),
    [
        ({3, 4, 6}, False, (), ""),
        ({3}, False, (4, 6), ""),
        ({4, 6}, False, (), ""),
        ({4, 6}, True, (3,), ""),
        ({3, None}, False, (), "?"),
        ({3, None}, True, (4,), "?"),
    ],
)
def test_marks_are_compared_newest_first(
    there: set[int | None], every: bool, gone: tuple[int, ...], unsure: str
) -> None:
    def is_there(mark: str) -> bool | None:
        epoch = int(mark.removeprefix("mark "))
        return None if epoch == 6 and None in there else epoch in there

    [look] = compared(past_of(STATE), is_there, "!", "?", every=every) or [LookedBack(0)]
    assert (look.gone, look.unsure) == (gone, unsure)


def test_a_sink_is_shown_what_is_decided_of_its_own_rows_alone() -> None:
    """An epoch without rows of a sink was not inspected by it: nothing that it saw is of now."""
    first, second = (
        Committable(HandleName("0" * 16, "job", 1, 3, place, "abcdefabcdef"), 1, "")
        for place in (0, sinkmap.STRIDE)
    )
    past = Past("r", "job", (1, 2), sinks=(0, 1), own=(first, second))
    assert past.of((1,)).own == (second,)
    assert replace(past, own=(first,)).of((1,)).own == ()
