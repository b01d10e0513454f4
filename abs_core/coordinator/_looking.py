"""Compares a job's targets with what they showed when its last epochs were finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from abs_core.births import targets
from abs_core.certificate import Origin
from abs_core.contracts import Committer
from abs_core.coordinator.cell import RegisterCell, Rule
from abs_core.errors import NotPreparedError
from abs_core.events import NotCompared, Observer
from abs_core.lookback import LookedBack, Past, newest_of, past_of
from abs_core.model import Committable, JobState
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity


@dataclass(slots=True)
class Lookout:
    """For one run of a job in one of its processes."""

    _who: RunIdentity
    _cell: RegisterCell
    _committer: Committer
    _patience: Patience
    _observe: Observer

    def for_lost(self, origin: Origin, epoch: int) -> Sequence[LookedBack]:
        """Before a register is made: whether the target has something of one that is lost.

        Raises:
            RegisterLostError: it has, and nobody has consented.
        """
        newest = self._patience.retry(lambda: self._committer.left_by(self._who.job))
        if newest is None or self._cell.load() is not None:  # another run has made it meanwhile
            return ()
        error = targets.lost(self._who, origin, epoch, newest, self._cell.shown_place)
        if error is not None:
            raise error
        return (LookedBack(0, ahead=newest),)

    def at_start(self, before: JobState | None, rule: Rule, epoch: int) -> Sequence[LookedBack]:
        """Compare the targets at the start of a run.

        Args:
            before: the register's state.
            rule: starts the run.

        Raises:
            TargetWentBackError, RegisterLostError: they do not match, and nobody has consented.
        """
        while (state := targets.continues(before, rule(before))) is not None:
            looks = self._look(past_of(state))
            error = targets.refused(state, self._who, epoch, looks)
            if error is None:
                for look in looks:
                    if look.unsure:
                        why = f"{targets.target_of(state, look.sink)}: {look.unsure}"
                        self._observe(NotCompared(self._who.job, why))
                return looks
            before = self._cell.load()
            if (
                before == state
            ):  # else another run has gone on meanwhile: compare with what it knows
                raise error
        return ()

    def before_a_decision(self, epoch: int, own: Sequence[Committable]) -> None:
        """Compare the last epochs, as a target may fail over while the run goes on.

        Later marks would hide what is gone, so no start could tell it. The epoch's own handles are
        inspected before, so what they were written after is compared.

        Args:
            own: what is decided next.

        Raises:
            TargetWentBackError: rows of finished epochs are gone; nothing is decided.
            NotPreparedError: rows of this epoch are gone; nothing is decided.
            FencedError: a newer run has taken over.
        """
        last = self._cell.last
        if last is None:
            return
        newest = newest_of(last, own)
        if not newest.noted and not own:
            return
        looks = self._look(newest)
        if any(look.gone for look in looks):
            state = self._cell.mine(self._who)
            # All that is noted, to name it. What the run itself has written since hides nothing so.
            past = replace(past_of(state), own=newest.own)
            error = targets.refused(state, self._who, epoch, self._look(past))
            if error is not None:
                raise error
        if lost := [look.unprepared for look in looks if look.unprepared]:
            # A successor may have swept them: then being fenced is the reason to name.
            self._cell.mine(self._who)
            raise NotPreparedError(
                f"Rows that tasks of this epoch have written are gone. {' '.join(lost)}",
                job=self._who.job,
                epoch=epoch,
                remedy="restart the query: nothing is decided, and the epoch is written again.",
            )

    def _look(self, past: Past) -> Sequence[LookedBack]:
        return self._patience.retry(partial(self._committer.look_back, past))
