"""Pure rules for a start whose targets do not show what the register recorded.

Either a target went back: rows of finished epochs are gone there, and no replay brings them. Or the
register did, together with the checkpoint: then its generations are counted again, and the target would
take new epochs for those of the lost time line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from abs_core import consent
from abs_core.certificate import Origin
from abs_core.errors import ProtocolError, RegisterLostError, TargetWentBackError
from abs_core.lookback import LookedBack, Position
from abs_core.model import JobState
from abs_core.protocol import Changed, RunIdentity, Verdict


def continues(before: JobState | None, verdict: Verdict) -> JobState | None:
    """The state to compare with: not of a new job, nor of one that goes elsewhere by consent."""
    if before is None or not isinstance(verdict, Changed):
        return None
    after = verdict.state
    same = after.lineage == before.lineage and (after.target == before.target or after.sinks)
    return before if same and after.recent == before.recent else None


def refused(
    state: JobState, who: RunIdentity, epoch: int, looks: Sequence[LookedBack]
) -> ProtocolError | None:
    """The error if a target does not show what is recorded, unless that was consented to."""
    wrong = [look for look in looks if look.gone or look.ahead is not None]
    if not wrong:
        return None
    token = consent.to_take_as_it_is(state, who, epoch, wrong)
    if who.adopt == token:
        return None
    ahead = [look for look in wrong if look.ahead is not None]
    return (_ahead if ahead else _gone)(state, epoch, ahead or wrong, token)


def lost(
    who: RunIdentity, origin: Origin, epoch: int, newest: Position, place: str
) -> RegisterLostError | None:
    """The error if a job without a register has left something in its target; None by consent.

    Args:
        newest: the last decision that the target shows.
    """
    token = consent.to_begin_above(newest, who, epoch)
    # Beside a certificate there is a verdict only by consent, see ``rules.start``.
    if origin.certificate is not None or who.adopt == token:
        return None
    return RegisterLostError(
        f"Job {who.job} has no register at {place}, but its target has epoch {newest[1]} of it (begun "
        f"in generation {newest[0]}). The register was lost, or its place was changed; nothing was "
        "written: epochs that are there would be written again.",
        job=who.job,
        epoch=epoch,
        remedy="restore the register, or name its old place. Or, if the target was cleaned so that "
        "the job may begin anew, delete its version from the target, too. Or, if all that this "
        f"query will read is new to the target, set the option adopt={token} for one start.",
    )


def consented(before: JobState | None, verdict: Verdict, looks: Sequence[LookedBack]) -> Verdict:
    """The start's verdict with what was consented to: gone epochs are no longer compared.

    Nor are those of a target that the job has left. The generation exceeds all that the targets have
    seen, so that no new epoch counts as committed.
    """
    if not isinstance(verdict, Changed):
        return verdict
    if before is not None and verdict.state.target != before.target and not verdict.state.sinks:
        noted = {(r.epoch, s.sink) for r in verdict.state.recent for s in r.shown}
        return Changed(replace(without(verdict.state, noted), older=()))
    gone = {(epoch, look.sink) for look in looks for epoch in look.gone}
    above = max((look.ahead[0] for look in looks if look.ahead is not None), default=0)
    state = without(verdict.state, gone)
    return Changed(replace(state, generation=max(state.generation, above + 1)))


def without(state: JobState, gone: set[tuple[int, int]]) -> JobState:
    """The state without the marks of these epochs and sinks."""
    recent = tuple(
        replace(record, shown=tuple(s for s in record.shown if (record.epoch, s.sink) not in gone))
        for record in state.recent
    )
    sinks = {sink for _, sink in gone}
    older = tuple(
        record for record in state.older if sinks.isdisjoint(s.sink for s in record.shown)
    )
    return replace(state, recent=recent, older=older)


def target_of(state: JobState, sink: int) -> str:
    """The sink of that number, for people."""
    named = next((entry for entry in state.sinks if entry.number == sink), None)
    return state.target if named is None else f"{named.target} (sink {named.name})"


def spans(epochs: Sequence[int]) -> str:
    """Ascending epochs for people: ``4 to 7, 9``."""
    ranges: list[list[int]] = []
    for epoch in epochs:
        if ranges and epoch == ranges[-1][-1] + 1:
            ranges[-1][1:] = [epoch]
        else:
            ranges.append([epoch])
    return ", ".join(" to ".join(map(str, span)) for span in ranges)


def _gone(
    state: JobState, epoch: int, looks: Sequence[LookedBack], token: str
) -> TargetWentBackError:
    texts = []
    for look in looks:
        noted = [(r.epoch, s.rows) for r in state.recent for s in r.shown if s.sink == look.sink]
        rows = sum(rows for number, rows in noted if number in look.gone)
        before = (
            f"; of epochs before {look.gone[0]} nothing is recorded that would tell"
            if look.gone[0] == noted[0][0] and look.gone[0] > 0
            else ""
        )
        part = f" Of epoch(s) {spans(look.partly)} a part may be there." if look.partly else ""
        texts.append(
            f"{target_of(state, look.sink)} no longer has {f'the {rows} rows of ' if rows else ''}the "
            f"finished epoch(s) {spans(look.gone)}{before}. {look.why}{part}"
        )
    return TargetWentBackError(
        f"{' '.join(texts)} It was restored from a backup, rolled back, failed over or made again. The "
        "job would go on without these rows; nothing was written.",
        job=state.job,
        epoch=epoch,
        remedy="bring the target back to its newest state; or write these epochs to it again by a "
        f"repair run (`abs register repair {state.job}`); or, if it was restored on purpose and may go "
        f"without these rows, set the option adopt={token} for one start.",
    )


def _ahead(
    state: JobState, epoch: int, looks: Sequence[LookedBack], token: str
) -> RegisterLostError:
    last = "nothing" if state.last_decided is None else f"epoch {state.last_decided}"
    texts = []
    for look in looks:
        assert look.ahead is not None
        generation, number = look.ahead
        more = f" and epoch {number}" if number >= 0 else ""
        texts.append(f"{target_of(state, look.sink)} has rows of generation {generation}{more}.")
    return RegisterLostError(
        f"The job's register is older than it was (generation {state.generation}, {last} was decided): "
        f"{' '.join(texts)} Register and checkpoint were restored from an older backup. Their epochs "
        "would be numbered again, and new ones would count as those that the target has; nothing was "
        "written.",
        job=state.job,
        epoch=epoch,
        remedy="restore the register and the checkpoint of the newest state; or restore the target, "
        f"too, so that it has nothing from epoch {epoch} on, and set the option adopt={token} for one "
        "start: what is there from later epochs would be there twice.",
    )
