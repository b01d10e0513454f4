"""Which kill did it, as far as the checkpoint tells: by the epoch of each row that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from abs_audit import AuditSettings, Files, Relation, Report, audit
from abs_audit.checkpoint import epochs_in
from abs_chaos.killing import Killed
from abs_core.errors import AbsError


@dataclass(frozen=True, slots=True)
class Blame:
    """An epoch with too few or too many rows.

    Args:
        kills: numbers of the kills that hit it, or failing that the epoch beside it; from 1 on.
    """

    epoch: int
    expected: int
    actual: int
    kills: tuple[int, ...]

    @property
    def story(self) -> str:
        """For people."""
        rows = self.actual - self.expected
        difference = f"{rows} rows too many" if rows > 0 else f"{-rows} rows missing"
        numbers = " or ".join(f"#{number}" for number in self.kills)
        return f"epoch {self.epoch}: {difference}, after {numbers}"


def blame(
    checkpoint: Path | None,
    expected: Relation,
    actual: Relation,
    compared: AuditSettings,
    report: Report,
    events: Sequence[Killed],
) -> tuple[Blame, ...]:
    """The epochs near a kill that have too few or too many rows.

    Takes a further audit if there is something to explain. Nothing is told without the checkpoint of
    a query that reads one folder of files, the one that holds the expected records.
    """
    if checkpoint is None or not (report.differences.missing or report.differences.duplicate):
        return ()
    try:
        near = epochs_in(str(checkpoint)) if isinstance(expected, Files) else {}
    except AbsError:
        return ()  # another source, or no Spark: the audit's own figures stand
    suspects = {epoch: _suspects(epoch, events) for epoch in near}
    asked = {epoch: near[epoch] for epoch, kills in suspects.items() if kills}
    by_epoch = audit(expected, actual, replace(compared, settle=0.0), epochs=asked)
    return tuple(
        Blame(epoch, held.expected, held.actual, suspects[epoch])
        for epoch, held in sorted(by_epoch.epochs.items())
        if held.expected != held.actual
    )


def _suspects(epoch: int, events: Sequence[Killed]) -> tuple[int, ...]:
    """Kills in this epoch; else those after it, which lose what a lagging sink had not written."""
    for hit in (epoch, epoch + 1):
        if numbers := tuple(n for n, event in enumerate(events, 1) if event.epoch == hit):
            return numbers
    return ()
