"""The tasks' report on an epoch to the commit process, and for observers what it wrote to each sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from abs_core.effort import Effort, take_changed, together
from abs_core.events import Written
from abs_core.model import Committable, Decision, JobState, Share, Wrote
from abs_core.rowdigest import RowDigest, is_row_digest
from abs_core.sinkmap import number_of


@dataclass(frozen=True, slots=True)
class Report:
    """The shares of all tasks of one epoch.

    Args:
        fingerprint: digest of the epoch's input description; None if it cannot be read.
        gaps_allowed: whether epochs may be left out before this one.
        trusted: an already committed epoch counts as this one without a comparison of rows.
        alone: no task of a later epoch begins before the commit of this one has returned.
        asked: see ``Course.input``.
    """

    epoch: int
    shares: Sequence[Share]
    fingerprint: str | None
    gaps_allowed: bool = False
    trusted: bool = False
    alone: bool = False
    asked: int | None = None

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.shares)

    @property
    def committables(self) -> list[Committable]:
        return [s.committable for s in self.shares if isinstance(s, Wrote) and s.committable]

    @property
    def digest(self) -> RowDigest | None:
        """The digest of all rows; None if a task made none."""
        made = [share.digest for share in self.shares if share.digest is not None]
        return reduce(add, made) if made and len(made) == len(self.shares) else None

    @property
    def effort(self) -> Effort:
        """What all tasks took."""
        return together(s.effort for s in self.shares if isinstance(s, Wrote) and s.effort)

    def with_letters(self, committables: Sequence[Committable]) -> Report:
        """The report with these in place of those of the same handles."""
        new = {committable.handle: committable for committable in committables}
        shares = [
            replace(share, committable=new.get(share.committable.handle, share.committable))
            if isinstance(share, Wrote) and share.committable
            else share
            for share in self.shares
        ]
        return replace(self, shares=shares)

    def known_by(self, state: JobState) -> tuple[str | None, int]:
        """Fingerprint and row count, of the same kind as the epoch's record if there is one."""
        recorded = state.record(self.epoch)
        if recorded is not None and self.trusted:
            return recorded.fingerprint, recorded.rows
        by_rows = recorded is not None and is_row_digest(recorded.fingerprint)
        digest = self.digest
        if digest is not None and (by_rows or self.fingerprint is None):
            return digest.to_text(), self.rows
        return self.fingerprint, self.rows


def epoch_id(state: JobState, lineage: str, epoch: int) -> str:
    """Names an epoch's commit, the same in every run that tells it."""
    return f"{state.register}:{lineage}:{epoch}"


def written(state: JobState, epoch: int, effort: Effort) -> tuple[Written, ...]:
    """What a finished epoch wrote to each sink; nothing if its tasks said nothing."""
    if not effort.amounts:
        return ()
    record, changed = state.record(epoch), take_changed(state.job, epoch)
    dead = {one.sink: one.dead for one in record.dead} if record else {}
    made = []
    for number, (name, target) in _sinks(state, epoch).items():
        amounts = [(rows, size) for sink, rows, size in effort.amounts if sink == number]
        refused = dead.get(number, 0)
        rows, size = (sum(column) for column in zip(*amounts, strict=True)) if amounts else (0, 0)
        of_changes = changed.get(number)
        made.append(Written(name, rows - refused, size, target, dead=refused, changed=of_changes))
    return tuple(made)


def decided(state: JobState, decision: Decision) -> tuple[Written, ...]:
    """The same by the decision's handles alone: rows are known only if each sink has handles."""
    rows: dict[int, int] = {}
    for one in decision.committables:
        number = number_of(one.handle)
        rows[number] = rows.get(number, 0) + one.rows
    sinks = _sinks(state, decision.epoch)
    # Sinks that share transactions have handles in common, under the number of the first. A handle
    # without rows is of a write of the user's own, which nobody counted.
    complete = rows.keys() == sinks.keys() and all(rows.values())
    return tuple(
        Written(name, rows[number] if complete else None, None, target)
        for number, (name, target) in sinks.items()
    )


def _sinks(state: JobState, epoch: int) -> Mapping[int, tuple[str, str]]:
    """Name and target of each sink of an epoch, by number."""
    return {
        sink.number: (sink.name, sink.target)
        for sink in state.sinks
        if sink.since <= epoch and (sink.until is None or epoch <= sink.until)
    } or {0: ("", state.target)}
