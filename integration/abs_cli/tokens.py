"""The tokens of batch jobs, for ``abs register``: listing and retirement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from abs_core.errors import AbsError, ConfigError, UnavailableError
from abs_core.model import JobState

if TYPE_CHECKING:
    from abs_cli.sites import Registers
    from abs_core.births.parent import BatchJob
    from abs_core.contracts import Inventory


def find(state: Registers, job: str) -> BatchJob | None:
    """The batch job of that name, with all its tokens; None if there is none, or a job or token."""
    return None if state.register.load(job) is not None else beside(state, job)


def beside(state: Registers, job: str) -> BatchJob | None:
    """The tokens of that name, also beside a job of the same name; None if there are none."""
    from abs_core.births.parent import batch_jobs

    batches = batch_jobs(stored.state for stored in state.jobs())[1]
    return next((one for one in batches if one.job == job), None)


def document(job: BatchJob) -> dict[str, Any]:
    """One batch job as ``--json`` shows it."""
    from abs_core.births.parent import token_of

    moments = {} if job.parent is None else {token.token: token.at for token in job.parent.tokens}
    there = [token_of(state.job) for state in job.states]
    return {
        "job": job.job,
        "targets": sorted({state.target for state in job.states}),
        "tokens": len(job.states),
        "noted": [
            {"token": token, "at": moments.get(token)}
            for token in sorted({*moments, *filter(None, there)})
        ],
        "open": sum(len(state.open) for state in job.states),
        "lost": [token.token for token in job.missing],
    }


def plan(job: BatchJob, moment: datetime) -> tuple[list[str], dict[str, str]]:
    """The tokens that were last noted before the moment: those to retire, and why others are kept.

    Raises ConfigError if the job has no parent record, which holds the tokens' times.
    """
    from abs_core.births.parent import before, token_of

    if job.parent is None:
        raise ConfigError(
            f"Only an older release has written batch job {job.job}; it recorded no dates.",
            remedy="retire its tokens one by one: `abs register retire JOB@TOKEN`.",
        )
    old = [token.token for token in before(job.parent, moment)]
    why = {token_of(state.job): _why_kept(state) for state in job.states}
    kept = {token: reason for token in old if (reason := why.get(token)) is not None}
    return [token for token in old if token not in kept], kept


def _why_kept(state: JobState) -> str | None:
    if state.open:
        return "it has a decided epoch that is not finished: run the batch once more"
    # Without this note, the batch could write the token once more here.
    return None if state.moved_to is None else f"its register was moved to {state.moved_to}"


def retire(register: Inventory, job: str, tokens: Sequence[str]) -> list[tuple[str, AbsError]]:
    """Delete the tokens' registers, then forget the tokens; returns those that stay, with reasons.

    If interrupted, this order leaves a known token without a register, which is refused until it is
    retired again, and never a token that could be written twice. Raises UnavailableError if the
    register does not answer; registers deleted before are forgotten.
    """
    kept: list[tuple[str, AbsError]] = []
    gone: set[str] = set()
    try:
        for token in tokens:
            try:
                register.retire(f"{job}@{token}")
            except UnavailableError:
                raise  # it is away for the others, too
            except AbsError as error:
                kept.append((token, error))
            else:
                gone.add(token)
    finally:
        if gone:
            _forget(register, job, gone)
    return kept


def _forget(register: Inventory, job: str, gone: set[str]) -> None:
    from abs_core.births.parent import parent_key, without
    from abs_core.coordinator.cell import RegisterCell
    from abs_core.patience import DEFAULT_PATIENCE
    from abs_core.protocol import Verdict

    key = parent_key(job)
    if register.load(key) is None:
        return

    def forget(state: JobState | None) -> Verdict:
        assert state is not None, "a parent record is never deleted"
        return without(state, gone)

    RegisterCell(register, key, DEFAULT_PATIENCE).change(forget)


def moment_of(text: str) -> datetime:
    """A date or a timestamp, in UTC if it has no zone; raises ConfigError for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r:.50} is not a date.", remedy="write it as 2026-11-20, or 2026-11-20T06:00."
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
