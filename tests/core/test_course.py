"""What a register notes of the last epochs for readers: bounded, and never wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core import codec, protocol
from abs_core.births import targets
from abs_core.model import (
    MAX_RECENT,
    Committable,
    Course,
    HandleName,
    JobState,
    NamedSink,
    Recent,
    Shown,
)
from abs_core.protocol import Changed, RunIdentity
from abs_core.sinkmap import STRIDE
from abs_spark.epochs.record import Epoch, epochs_of

STATE = JobState("0" * 16, "job", "kafka:c/a + kafka:c/b", "lineage", 1, "run")
WAYS = ("no rows", "marked", "unmarked")
History = list[tuple[str, ...]]


def written(epoch: int, sink: int) -> Committable:
    name = HandleName(STATE.register, "job", 1, epoch, sink * STRIDE, "aa")
    return Committable(name, 10 + sink, "rows")


def mark_of(epoch: int, sink: int) -> str:
    return f"mark of sink {sink} at epoch {epoch}"


def after(state: JobState, epoch: int, ways: tuple[str, ...], full: str = "") -> JobState:
    """The state with one more finished epoch: how each sink took part in it."""
    made = [written(epoch, sink) for sink, way in enumerate(ways) if way != "no rows"]
    course = Course(epoch, epoch + 1000)
    more = {"fingerprint": None, "rows": 21, "course": course}
    decided = protocol.decide(state, 1, epoch, made, **more)  # type: ignore[arg-type]
    assert isinstance(decided, Changed)
    if (decision := decided.state.decision(epoch)) is None:
        return decided.state
    marked = [sink for sink, way in enumerate(ways) if way == "marked"]
    shown = [Shown(sink, 10 + sink, mark_of(epoch, sink), full) for sink in marked]
    finished = protocol.finish(decided.state, decision, shown, epoch + 2000)
    assert isinstance(finished, Changed)
    return finished.state


def two(state: JobState) -> JobState:
    """The same as a job with two sinks."""
    named = (NamedSink(0, "a", "kafka:c/a", 0), NamedSink(1, "b", "kafka:c/b", 0))
    return replace(state, sinks=named)


def true_mark(history: list[tuple[str, ...]], epoch: int, sink: int) -> str | None:
    """By the whole history: of the last epoch up to this one with rows, unless it has none."""
    for number in range(epoch, -1, -1):
        if history[number][sink] != "no rows":
            return mark_of(number, sink) if history[number][sink] == "marked" else None
    return None


Told = Callable[[JobState], list[Epoch]]


def wrong_marks(history: History, told: Told = epochs_of) -> list[str]:
    """What the record tells otherwise than the whole history, and where it is not bounded."""
    state = two(STATE)
    for epoch, ways in enumerate(history):
        state = after(state, epoch, ways)
        state = codec.state_from_text(codec.state_to_text(state), "here")
    assert len(state.recent) <= MAX_RECENT
    assert len(state.older) <= 2, "one for each sink at most"
    targets_of = ((each.number, at) for each in told(state) for at in each.targets)
    return [
        f"epoch {number}: {at.mark}"
        for number, at in targets_of
        if at.mark != true_mark(history, number, at.sink.number)
        or (at.mark is None) != bool(at.why)
    ]


@given(st.lists(st.tuples(*[st.sampled_from(WAYS)] * 2), min_size=1, max_size=60))
def test_the_mark_of_an_epoch_is_that_of_the_last_one_with_rows_however_long_ago(
    history: History,
) -> None:
    assert wrong_marks(history) == []


Planted = Callable[[Shown], str]
"""What full mark is kept of what was shown."""


def wrong_full_marks(history: History, planted: Planted = lambda shown: shown.full) -> list[str]:
    """Full marks that are kept, and are not those of their sinks' last marked epochs; or missing."""
    state, last, wrong = two(STATE), dict[int, str](), list[str]()
    for epoch, ways in enumerate(history):
        state = after(state, epoch, ways, f"all at {epoch}")
        state = codec.state_from_text(codec.state_to_text(state), "here")
        last |= {sink: f"all at {epoch}" for sink, way in enumerate(ways) if way == "marked"}
        shown = [s for r in (*state.older, *state.recent) for s in r.shown]
        newest = {s.sink: s for s in shown}
        for s in shown:
            expected = last[s.sink] if s is newest[s.sink] else ""
            wrong += [f"epoch {epoch}: {s}"] if planted(s) != expected else []
    return wrong


@given(st.lists(st.tuples(*[st.sampled_from(WAYS)] * 2), min_size=1, max_size=60))
def test_a_full_mark_is_kept_of_the_last_marked_epoch_of_each_sink_alone(history: History) -> None:
    assert wrong_full_marks(history) == []


@pytest.mark.parametrize("planted", [lambda s: s.full or s.mark, lambda s: ""])
def test_the_check_of_full_marks_finds_planted_bugs(planted: Planted) -> None:
    assert wrong_full_marks([("marked", "marked"), ("marked", "no rows")], planted) != []


RARE: History = [("marked", "marked"), *[("no rows", "marked")] * (MAX_RECENT + 4)]


def next_epochs(state: JobState) -> list[Epoch]:
    told = epochs_of(state)
    return [replace(a, targets=b.targets) for a, b in pairwise(told)]


def without_older(state: JobState) -> list[Epoch]:
    return epochs_of(replace(state, older=()))


def without_unmarked(state: JobState) -> list[Epoch]:
    """As if an epoch without a mark had no rows."""
    recent = tuple(replace(each, course=Course()) for each in state.recent)
    return epochs_of(replace(state, recent=recent))


@pytest.mark.parametrize(
    ("planted", "history"),
    [
        (next_epochs, RARE),
        (without_older, RARE),
        (without_unmarked, [("marked", "no rows"), ("unmarked", "no rows")]),
    ],
)
def test_the_check_finds_planted_bugs(planted: Told, history: History) -> None:
    assert wrong_marks(history) == []
    assert wrong_marks(history, planted) != []


def test_the_course_comes_back() -> None:
    state = after(two(STATE), 0, ("marked", "no rows"))
    read = codec.state_from_text(codec.state_to_text(state), "here")
    assert read.recent[0].course == Course(0, 1000, 2000, (0,))
    undecided = replace(STATE, recent=(Recent(0, None, 5, course=Course()),), frontier=0)
    read = codec.state_from_text(codec.state_to_text(undecided), "here")
    assert read.recent[0].course == Course()


def test_an_epoch_that_an_older_release_decided_tells_no_times_and_no_older_mark() -> None:
    state = after(two(STATE), 0, ("marked", "marked"))
    text = codec.state_to_text(state).replace('"course"', '"unknown to that release"')
    state = codec.state_from_text(text, "here")
    for epoch in range(1, MAX_RECENT + 1):
        state = after(state, epoch, ("no rows", "marked"))
    assert epochs_of(state)[0].number == 1
    assert state.older[0].shown[0].mark == mark_of(0, 0), "it showed it itself"
    # But not what was before: whether it had rows is not known.
    lost = replace(state, recent=(replace(state.recent[0], course=None), *state.recent[1:]))
    lost = after(lost, MAX_RECENT + 1, ("no rows", "marked"))
    assert lost.older == ()


def test_what_is_gone_by_consent_has_no_older_mark() -> None:
    state = two(STATE)
    for epoch in range(MAX_RECENT + 1):
        state = after(state, epoch, ("marked" if epoch == 0 else "no rows", "marked"))
    assert state.older != ()
    assert targets.without(state, {(3, 0)}).older == ()
    assert targets.without(state, {(3, 1)}).older == state.older
    moved = Changed(replace(state, target="another", sinks=()))
    verdict = targets.consented(state, moved, ())
    assert isinstance(verdict, Changed)
    assert verdict.state.older == ()
    adopted = protocol.start(state, RunIdentity("job", "other", "run 2", state.target), "1" * 16)
    assert not isinstance(adopted, Changed), "it asks for consent"
