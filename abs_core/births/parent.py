"""Pure rules of the parent record of a batch job, which lists the tokens that have begun.

Each token of a batch job has a register of its own (``job@token``). If it were lost, it would be minted
again and its batch written twice, as a batch write has no checkpoint to detect this. So the token and
its register's id are recorded in the job's parent record (``job@``) before the first decision: this is
the token's birth certificate.

The record keeps the newest ``MAX_TOKENS`` tokens. The loss of an older token's register is not
detected, nor the loss of registers and parent together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from abs_core.model import JobState, NotedToken
from abs_core.protocol import Changed, Unchanged, Verdict

MAX_TOKENS = 4096
"""Largest number of tokens in a parent record, which keeps it below some hundred kilobytes."""

_SEPARATOR = "@"
_LINEAGE = "tokens"


def parent_key(job: str) -> str:
    """The key of the parent record of ``job`` or ``job@token``; no job or token has this key."""
    return job.partition(_SEPARATOR)[0] + _SEPARATOR


def token_of(job: str) -> str | None:
    """The encoded token in a register key; None if the key is not a batch write's."""
    return job.partition(_SEPARATOR)[2] or None


def is_parent(job: str) -> bool:
    """Whether the key is that of a parent record."""
    return job.endswith(_SEPARATOR)


def noted(state: JobState | None, token: str) -> NotedToken | None:
    """The token's entry in the parent record."""
    tokens = () if state is None else state.tokens
    return next((entry for entry in tokens if entry.token == token), None)


def note(
    state: JobState | None, job: str, entry: NotedToken, target: str, register: str
) -> Verdict:
    """Add or update a token's entry; drop the oldest if there are too many.

    Args:
        job: any key of the batch job.
        register: the id for a parent record that does not exist yet.
    """
    if state is None:
        state = JobState(register, parent_key(job), target, _LINEAGE, 1, _LINEAGE)
    old_entry = noted(state, entry.token)
    if old_entry is not None and replace(old_entry, at=entry.at) == entry:
        return Unchanged(state)
    others = [other for other in state.tokens if other.token != entry.token]
    return Changed(replace(state, tokens=(*others, entry)[-MAX_TOKENS:]))


def without(state: JobState, tokens: Collection[str]) -> Verdict:
    """Remove tokens; only at a person's request."""
    left = tuple(entry for entry in state.tokens if entry.token not in tokens)
    return Unchanged(state) if left == state.tokens else Changed(replace(state, tokens=left))


def before(state: JobState, moment: datetime) -> list[NotedToken]:
    """The tokens last recorded before a moment, oldest first."""
    return [entry for entry in state.tokens if datetime.fromisoformat(entry.at) < moment]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """All registers of a batch job in one store.

    Args:
        parent: None if only older releases have written the job.
        states: of its tokens, by key.
    """

    job: str
    parent: JobState | None
    states: tuple[JobState, ...]

    @property
    def missing(self) -> list[NotedToken]:
        """Tokens in the parent record whose register is missing."""
        there = {token_of(state.job) for state in self.states}
        entries = () if self.parent is None else self.parent.tokens
        return [entry for entry in entries if entry.token not in there]


def batch_jobs(states: Iterable[JobState]) -> tuple[list[JobState], list[BatchJob]]:
    """Split states into streaming jobs, and batch jobs with their tokens; both by name."""
    streams: list[JobState] = []
    parents: dict[str, JobState] = {}
    tokens: dict[str, list[JobState]] = {}
    for state in sorted(states, key=lambda state: state.job):
        name = state.job.partition(_SEPARATOR)[0]
        if is_parent(state.job):
            parents[name] = state
        elif token_of(state.job) is not None:
            tokens.setdefault(name, []).append(state)
        else:
            streams.append(state)
    names = sorted({*parents, *tokens})
    return streams, [BatchJob(n, parents.get(n), tuple(tokens.get(n, ()))) for n in names]


def now() -> str:
    """The present time in the format of ``NotedToken.at``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
