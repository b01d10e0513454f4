"""A target of ``losses`` that goes back by itself: what the register notes of it, and who is told.

The rules are the real ones (``births.targets``, ``lookback``). A mark names the epoch; it is there if
handles of the epoch are. Whatever goes back, no run may start, and none decide, while rows of a
finished epoch are missing of which no error has told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from abs_core.births import targets
from abs_core.errors import TargetWentBackError
from abs_core.lookback import LookedBack, Past, compared, newest_of, past_of, sinks_of
from abs_core.model import Decision, HandleName, JobState, Shown
from abs_core.protocol import RunIdentity, Verdict
from abs_core.sinkmap import number_of
from tests.model.exhaustive.book import Violated
from tests.model.exhaustive.loss import Loss, Ways


def marks_of(decision: Decision, visible: Collection[HandleName]) -> list[Shown]:
    """What is noted of an epoch: its own number, whatever the targets hold at that moment."""
    first = min(decision.handles)
    return [
        Shown(sink, 1, f"{first.generation} {first.epoch}")
        for sink in sinks_of(decision.committables)
    ]


def each_epoch(past: Past, visible: Collection[HandleName]) -> Sequence[LookedBack]:
    """As Kafka and the lake look: each epoch's mark is there or not."""
    return _looked(past, visible, hidden=False)


def newest_epoch(past: Past, visible: Collection[HandleName]) -> Sequence[LookedBack]:
    """As PostgreSQL looks: a later epoch's marker is all that is left, and counts for those before."""
    return _looked(past, visible, hidden=True)


def _looked(past: Past, visible: Collection[HandleName], *, hidden: bool) -> Sequence[LookedBack]:
    looks: list[LookedBack] = []
    for sink in sorted({note.sink for note in past.noted}):
        there = {(h.generation, h.epoch) for h in visible if number_of(h) == sink}
        top = max(there, default=(0, -1))

        def is_there(mark: str, there: set[tuple[int, int]] = there, top: object = top) -> bool:
            generation, epoch = map(int, mark.split())
            return (generation, epoch) in there or (hidden and (generation, epoch) < top)  # type: ignore[operator]

        looks += compared(past.of([sink]), is_there, "Its handles are not there.", every=not hidden)
    return looks


def steps(ways: Ways, world: Loss) -> Iterator[tuple[str, Loss]]:
    """One of the targets goes back to what it held at any earlier time."""
    if not world.backs:
        return
    for old in world.held_rows:
        for sink in sorted({number_of(handle) for handle in world.visible}):
            others = {handle for handle in world.visible if number_of(handle) != sink}
            kept = frozenset(others | {handle for handle in old if number_of(handle) == sink})
            if kept != world.visible:
                shown = sorted({handle.epoch for handle in kept if number_of(handle) == sink})
                what = f"target {sink} goes back to epochs {shown}"
                # What was prepared later is gone, too, where it lies in the target.
                stale = ways.vanish and world.register is not None and bool(world.register.open)
                less = world._replace(backs=world.backs - 1, visible=kept, lost=True)
                yield what, less._replace(stale=world.stale or stale)


def at_start(ways: Ways, world: Loss, who: RunIdentity, verdict: Verdict) -> Verdict:
    """The verdict of a start that has compared the targets.

    Raises:
        TargetWentBackError: by the rules.
        Violated: it is not told, and rows of a finished epoch are missing.
    """
    state = targets.continues(world.register, verdict)
    looks: Sequence[LookedBack] = ()
    if state is not None:
        looks = ways.looks(past_of(state), world.visible)
        error = targets.refused(state, who, world.noted, looks)
        if error is not None:
            raise error
        _check(world, state, "starts")
    return ways.consented(world.register, verdict, looks)


def before_a_decision(ways: Ways, world: Loss, who: RunIdentity, state: JobState) -> None:
    """Compare the newest epochs, as the run's commit process does.

    Raises:
        TargetWentBackError, Violated: as ``at_start``.
    """
    newest = newest_of(state, ())
    on_the_way = newest is not None and ways.on_the_way
    if newest is not None and on_the_way and ways.looks(newest, world.visible):
        error = targets.refused(state, who, world.noted, ways.looks(past_of(state), world.visible))
        if error is not None:
            raise error
    _check(world, state, "decides")


def _check(world: Loss, state: JobState, what: str) -> None:
    for epoch in range(0 if state.frontier is None else state.frontier + 1):
        there = {number_of(handle) for handle in world.visible if handle.epoch == epoch}
        once = {number_of(handle) for handle in world.ever if handle.epoch == epoch}
        if epoch not in world.given_up and once - there:
            raise Violated(f"a run {what} without rows of epoch {epoch}, and nobody was told")


def told(error: TargetWentBackError) -> frozenset[int]:
    """The epochs that an error names."""
    spans = re.findall(r"finished epoch\(s\) ([0-9 ,to]+)", error.what)
    found: set[int] = set()
    for span in ",".join(spans).split(","):
        first, _, last = span.strip().partition(" to ")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def ways_out(ways: Ways, world: Loss, error: TargetWentBackError) -> Iterator[tuple[str, Loss]]:
    """What the operator does: brings the rows back, or gives them up by the token."""
    epochs = told(error)
    # From then on nobody is refused, unless the register or what is decided was lost, too.
    world = world._replace(lost=world.stale or bool(ways.losses))
    again = frozenset(handle for handle in world.ever if handle.epoch in epochs)
    yield "the operator writes them again", world._replace(visible=world.visible | again)
    if world.consents:
        token = error.remedy.partition("adopt=")[2][:12]
        given = world.given_up | epochs
        less = world._replace(consents=world.consents - 1, adopt=token, given_up=given)
        yield "the operator gives them up", less
