"""What a register knows of its targets, and what a sink finds when it compares a target with it.

When an epoch is finished, each target's sink tells a **mark**: by what its system shows later whether
these rows are still there (``Shown``). At a start a sink compares: a target may have been restored,
rolled back, failed over or made again while the register lay elsewhere. It decides no commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from abs_core.model import MAX_RECENT, Committable, Course, Decision, JobState, Recent, Shown
from abs_core.rowdigest import shortened
from abs_core.sinkmap import number_of
from abs_core.strictjson import reading

Position = tuple[int, int]
"""Generation and epoch of a decision: of two decisions of a register the later one has the higher."""

EPOCHS = 1 << 32
"""Of one generation, at most: generation x EPOCHS + epoch is a position in one number."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The mark of an epoch that is finished, in the targets of one sink."""

    epoch: int
    sink: int
    mark: str


@dataclass(frozen=True, slots=True)
class Past:
    """What a register knows of a job's targets.

    Args:
        register: its id.
        decided: its last decision; the epoch is -1 if this generation has made none.
        noted: oldest first.
        sinks: numbers of the sinks that these targets are of.
        own: what a run that is under way decides next, as it was inspected a moment ago; empty where
            the epoch has no rows of these sinks; None at a start.
        apart: each epoch is compared by its own mark alone, as for a repair run.
    """

    register: str
    job: str
    decided: Position
    noted: tuple[Noted, ...] = ()
    sinks: tuple[int, ...] = (0,)
    own: tuple[Committable, ...] | None = None
    apart: bool = False

    @property
    def running(self) -> bool:
        """Whether the run is under way: later decisions are not looked for."""
        return self.own is not None

    def of(self, sinks: Collection[int]) -> Past:
        """The same for some sinks only."""
        noted = tuple(note for note in self.noted if note.sink in sinks)
        past = replace(self, noted=noted, sinks=tuple(sorted(sinks)))
        if self.own is None:
            return past
        return replace(past, own=tuple(c for c in self.own if number_of(c.handle) in sinks))


@dataclass(frozen=True, slots=True)
class LookedBack:
    """A sink's targets, compared with what they showed before.

    Args:
        gone: the noted epochs whose rows are not there, ascending.
        partly: of them, those of which a part may be there, so that to write them again doubles it.
        why: what shows it, as a sentence.
        unsure: why the newest noted epoch cannot be compared, as a sentence; empty if it can.
        ahead: a decision of this register that is committed there, and which the register does not
            know; None if there is none.
        unprepared: why rows of ``Past.own`` are no longer there, as a sentence; empty if nothing
            tells that.
        untold: with ``Past.apart``: the noted epochs of which nothing tells whether they are there.
    """

    sink: int
    gone: tuple[int, ...] = ()
    why: str = ""
    unsure: str = ""
    ahead: Position | None = None
    unprepared: str = ""
    untold: tuple[int, ...] = ()
    partly: tuple[int, ...] = ()


def remembered(state: JobState, epoch: Recent) -> JobState:
    """The state with one more decided epoch; the oldest goes, but for what no later one tells."""
    recent = tuple(
        replace(entry, fingerprint=shortened(entry.fingerprint)) for entry in state.recent
    )
    gone, kept = (*recent, epoch)[:-MAX_RECENT], (*recent, epoch)[-MAX_RECENT:]
    older = state.older
    first = kept[0].course or Course()
    for record in gone:
        # Where an epoch has rows and no mark, or may have, an older mark tells of too few.
        wrote = None if record.course is None else record.course.sinks
        older = tuple(one for one in older if wrote is not None and _sink(one) not in wrote)
        older += tuple(Recent(record.epoch, None, s.rows, shown=(s,)) for s in record.shown)
    older = tuple(one for one in older if _sink(one) not in first.sinks)
    return replace(state, recent=kept, older=older)


def _sink(older: Recent) -> int:
    return older.shown[0].sink


def recorded(
    state: JobState, decision: Decision, shown: Sequence[Shown], at: int | None = None
) -> JobState:
    """The state with what the targets showed when the epoch was finished, and when that was."""
    sinks = sinks_of(decision.committables)
    later = {mark.sink for mark in shown}
    state = replace(
        state,
        recent=tuple(_shortened(epoch, later) for epoch in state.recent),
        older=tuple(_shortened(epoch, later) for epoch in state.older),
    )
    recent = tuple(
        replace(
            record,
            shown=tuple(shown),
            course=replace(record.course or Course(sinks=sinks), finished=at),
        )
        if record.epoch == decision.epoch
        else record
        for record in state.recent
    )
    return replace(state, recent=recent)


def _shortened(epoch: Recent, sinks: Collection[int]) -> Recent:
    """The epoch without the full marks of these sinks."""
    shown = tuple(replace(s, full="") if s.sink in sinks else s for s in epoch.shown)
    return replace(epoch, shown=shown)


def sinks_of(committables: Sequence[Committable]) -> tuple[int, ...]:
    """The numbers of the sinks that have handles among these, ascending."""
    return tuple(sorted({number_of(committable.handle) for committable in committables}))


def past_of(state: JobState) -> Past:
    """What the state knows."""
    last = -1 if state.last_decided is None else state.last_decided
    noted = (Noted(r.epoch, s.sink, s.full or s.mark) for r in state.recent for s in r.shown)
    return Past(state.register, state.job, (state.generation, last), tuple(noted))


def newest_of(state: JobState, own: Sequence[Committable]) -> Past:
    """What a run that is under way compares: the two newest marks of each sink, and ``own``.

    Two, as a target may go back after a decision, and then take what was decided.

    Args:
        own: what it decides next.
    """
    past = past_of(state)
    of_sinks = {sink: [note for note in past.noted if note.sink == sink] for sink in _sinks(past)}
    newest = tuple(note for notes in of_sinks.values() for note in notes[-2:])
    return replace(past, noted=newest, own=tuple(own))


def _sinks(past: Past) -> list[int]:
    return sorted({note.sink for note in past.noted})


def reading_mark(system: str) -> AbstractContextManager[None]:
    """Raise ``CorruptionError`` for a ``ValueError``: the text of a mark cannot be read."""
    remedy = "do not delete the register: put its last state back"
    return reading(f"What the register notes of {system}", remedy)


def compared(
    past: Past,
    is_there: Callable[[str], bool | None],
    why: str,
    unsure: str = "",
    *,
    every: bool = False,
    has_part: Callable[[str], bool] = lambda mark: False,
) -> list[LookedBack]:
    """Compare mark by mark, for each sink.

    Args:
        is_there: whether the rows of an epoch with that mark are there; None: that cannot be told.
        why, unsure: see ``LookedBack``.
        every: compare each epoch even if the newest is there, as a target may go back between two.
        has_part: whether a part of the rows may be there, where not all are; no: an epoch of that
            target is there as a whole or not at all.
    """
    looks = []
    for sink in _sinks(past):
        notes = [note for note in past.noted if note.sink == sink]
        if past.apart:
            there = {note.epoch: is_there(note.mark) for note in notes}
            gone, untold = (
                [epoch for epoch, answer in there.items() if answer is kind]
                for kind in (False, None)
            )
            looks.append(LookedBack(sink, tuple(gone), why, untold=tuple(untold)))
        else:
            *before, last = notes
            gone = [note.epoch for note in before if is_there(note.mark) is False] if every else []
            newest = is_there(last.mark)
            if newest is False:
                gone = gone or [note.epoch for note in before if is_there(note.mark) is False]
                gone.append(last.epoch)
            if not gone and newest is not None:
                continue
            doubt = unsure if newest is None else ""
            looks.append(LookedBack(sink, tuple(gone), why if gone else "", doubt))
        partly = [note.epoch for note in notes if note.epoch in gone and has_part(note.mark)]
        looks[-1] = replace(looks[-1], partly=tuple(partly))
    return looks
