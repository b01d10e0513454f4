"""Determines the moment of the next kill: by the job's phases, by the clock, or by both. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from abs_chaos.moments import Moment, Sight
from abs_chaos.schedule import MAX_DELAY_S, Kill

PATIENCE_EPOCHS = 3
"""After so many epochs without its moment, a kill takes any other."""


class Aim:
    """The remaining planned kills, and whether the next one is due.

    Only the kill between ``commit()`` and ``commits/N`` is repeated until it has hit. One while tasks
    write comes at its share of the time that they took in the last epoch: a job may note an epoch
    before it writes it, and how long after its beginning is not known.
    """

    def __init__(self, planned: Sequence[Kill]) -> None:
        self._left = list(planned)
        self._began: float | None = None
        self._seen_at: float | None = None
        self._writing: tuple[int | None, float] | None = None
        self._wrote_s: float | None = None
        self._redone: int | None = None
        self._killed_generation: int | None = None

    @property
    def next(self) -> Kill | None:
        return self._left[0] if self._left else None

    def pause(self, sight: Sight) -> float:
        """Seconds until the next look: phases may last a few milliseconds."""
        kill = self.next
        if kill is not None and (kill.after_s or kill.moment is Moment.ANY):
            return 0.02
        if kill is None or sight.epoch is None or sight.epoch < kill.epoch:
            return 0.05
        return 0.005 if kill.moment in (Moment.WRITING, Moment.RECOVERING) else 0.0005

    def due(self, sight: Sight, now: float) -> bool:
        """Whether to kill now (seconds of any clock)."""
        self._clock(sight, now)
        kill = self.next
        if kill is None:
            return False
        if self._began is None:
            self._began = now
        if now < self._began + kill.after_s:
            return False
        if kill.moment is Moment.ANY:
            return True
        if kill.after_s:  # from this epoch on it waits for its phase
            kill = self._left[0] = replace(kill.later(sight.planned or 0), after_s=0.0)
        if sight.planned is None or sight.planned < kill.epoch:
            return False
        if (sight.epoch is None) != (kill.moment is Moment.BETWEEN):
            return False
        if self._seen_at is None and self._is_there(kill, sight):
            self._seen_at = now
        return self._seen_at is not None and now >= self._seen_at + self._delay(kill, sight)

    def _clock(self, sight: Sight, now: float) -> None:
        """Take the time while tasks write; with a new epoch the wait for a share of it begins anew."""
        epoch = sight.epoch if sight.moment is Moment.WRITING else None
        if self._writing is not None and self._writing[0] != epoch:
            self._wrote_s = now - self._writing[1]
            self._writing = self._seen_at = None
        # Where an epoch is done again, the job's start counts as a part of it.
        if self._writing is None and epoch not in (None, self._redone):
            self._writing = (epoch, now)

    def _delay(self, kill: Kill, sight: Sight) -> float:
        if kill.moment is not Moment.WRITING or self._wrote_s is None:
            return kill.delay_s
        return 0.0 if _is_late(kill, sight) else kill.delay_s / MAX_DELAY_S * self._wrote_s

    def killed(self, sight: Sight) -> None:
        """Note that the kill was carried out, and what it hit."""
        kill = self._left.pop(0)
        self._began = self._seen_at = self._writing = None
        self._killed_generation = sight.generation
        self._redone = sight.epoch
        at = max(sight.planned or 0, kill.epoch)
        if kill.moment is Moment.COMMITTED and sight.moment is not Moment.COMMITTED:
            self._left.insert(0, kill)
        self._left = [
            one if one.moment is Moment.RECOVERING else one.later(at + 1) for one in self._left
        ]

    def _is_there(self, kill: Kill, sight: Sight) -> bool:
        if kill.moment in (Moment.COMMITTED, Moment.BETWEEN):
            return sight.moment is kill.moment
        late = _is_late(kill, sight)
        if kill.moment is Moment.RECOVERING:
            return late or sight.generation not in (None, self._killed_generation)
        return late or sight.moment is kill.moment


def _is_late(kill: Kill, sight: Sight) -> bool:
    return sight.planned is not None and sight.planned > kill.epoch + PATIENCE_EPOCHS
