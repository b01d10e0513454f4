"""A folder that goes back is told at a start; objects that a reader removes are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import TargetWentBackError
from abs_core.events import Event, NotCompared
from abs_core.lookback import past_of
from abs_sinks.s3.layout import handle_of
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import Case, consent_in, raises, rows

pytestmark = pytest.mark.services
FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


def remove(harness: FolderHarness, *epochs: int) -> None:
    there = harness.keys()
    keys = [key for key in there if (name := handle_of(key)) and name.epoch in epochs]
    assert keys
    Objects(harness.options.bucket).delete(keys)


def started(case: Case, epoch: int) -> list[str]:
    """What a start says that it cannot tell."""
    events: list[Event] = []
    run = case.run()
    run._tasks._lookout._observe = events.append
    run.begin(epoch)
    return [event.why for event in events if isinstance(event, NotCompared)]


def test_a_folder_without_the_objects_of_its_last_epochs_went_back(
    harness: FolderHarness,
) -> None:
    with Case(harness) as case:
        run = case.run()
        for epoch, some in enumerate((FIRST, SECOND, THIRD)):
            run.epoch(epoch, some)
        remove(harness, 0)  # as a lifecycle rule does
        assert started(case, 3) == []
        remove(harness, 2)
        error = raises(TargetWentBackError, lambda: case.run().begin(3))
        assert "the 4 rows of the finished epoch(s) 2." in error.what
        case.run(adopt=consent_in(error)).epoch(3, LAST)
        assert started(case, 4) == []
        remove(harness, 1, 3)
        [why] = started(case, 4)
        assert "No object of its last epochs is there" in why


def test_an_epoch_of_which_objects_are_left_is_told_apart(harness: FolderHarness) -> None:
    with Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        run.epoch(1, SECOND, THIRD, LAST)
        there = harness.keys()
        left = sorted(key for key in there if (name := handle_of(key)) and name.epoch == 1)
        objects = Objects(harness.options.bucket)
        left.append(left.pop(0))  # the mark names the first and the last one: the last goes first
        while left:
            objects.delete([left.pop()])
            [look] = run.committer.look_back(replace(past_of(run.state()), apart=True))
            assert (look.gone, look.partly) == ((1,), (1,) if left else ())
