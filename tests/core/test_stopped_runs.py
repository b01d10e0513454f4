"""A run that stands still at any of its calls while a newer run does its work, and then goes on.

As a driver does that is stopped (SIGSTOP) and continued: it is fenced, or finds its epoch done, and it
leaves nothing behind.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from abs_core.certificate import MemoryCertificates
from abs_core.errors import FencedError
from abs_testing.case import JOB, Case, rows
from abs_testing.engine import Run
from tests.kit.fake_harness import FakeHarness
from tests.kit.stopped import Pause, Stopped, StoppedSink

BEFORE, OWN, SAME, MORE = rows(0, 2), rows(10, 2), rows(20, 2), rows(30, 2)


@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_run_that_is_stopped_at_any_call_is_fenced_and_leaves_nothing(
    protocol: str, begun: bool, own: bool
) -> None:
    """For each of its calls, in a job of its own.

    Args:
        begun: the job has an epoch of an earlier run.
        own: the run has finished an epoch before it is stopped.
    """
    for at in count():
        case = Case(FakeHarness(protocol, "upsert" if protocol == "idempotent" else "append"))
        try:
            if not stop_and_go_on(case, at, begun=begun, own=own):
                break
        finally:
            case.close()
    assert at > 5, "it makes so many calls at least"


def stop_and_go_on(case: Case, at: int, *, begun: bool, own: bool) -> bool:
    """Whether the run makes so many calls that it was stopped."""
    certificates, pause = MemoryCertificates(), Pause()
    earlier = [BEFORE] * begun + [OWN] * own
    if begun:
        case.run(certificates=certificates, gaps=True).epoch(0, BEFORE)
    kept: Any = Stopped(certificates, pause)
    sink: Any = StoppedSink(case.sink(), pause)
    old = Run(sink, JOB, certificates=kept, gaps=True)
    if own:
        old.epoch(len(earlier) - 1, OWN)
    epoch = len(earlier)
    new = case.run(certificates=certificates, gaps=True)

    def meanwhile() -> None:
        new.epoch(epoch, SAME)
        new.epoch(epoch + 1, MORE)

    pause.at, pause.meanwhile = pause.calls + at, meanwhile
    try:
        old.epoch(epoch, SAME)
    except FencedError:
        old.coordinator.end()
    if pause.calls <= pause.at:
        return False
    case.finished(*earlier, SAME, MORE, when=f"after a stop at call {at}")
    case.is_clean(when=f"after a stop at call {at}")
    return True
