"""The parent record of a batch job: which of its tokens have begun. The rules; all of them are pure.

Each token of a batch job has a register of its own (``job@token``). A register that is lost would be
minted anew, and its batch written twice; a batch write has no checkpoint that could tell. So the token
is noted in the job's parent record (``job@``) before its first decision, with the id of its register:
for a token the record is the birth certificate.

The record keeps the newest ``TOKENS_MAX`` tokens. The loss of an older one's register goes unseen, and
so does the loss of registers and parent together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from abs_core.model import JobState, NotedToken
from abs_core.protocol import Changed, Unchanged, Verdict

TOKENS_MAX = 4096
"""How many tokens a parent record keeps: some hundred kilobytes at most."""

_SEPARATOR = "@"
_LINEAGE = "tokens"


def parent_key(job: str) -> str:
    """The key of the parent record of ``job`` or ``job@token``; no job's and no token's."""
    return job.partition(_SEPARATOR)[0] + _SEPARATOR


def token_of(job: str) -> str | None:
    """The token in a register key, as it stands there; None where it is no batch write's."""
    return job.partition(_SEPARATOR)[2] or None


def is_parent(job: str) -> bool:
    """Whether the key is that of a parent record."""
    return job.endswith(_SEPARATOR)


def noted(state: JobState | None, token: str) -> NotedToken | None:
    """What the parent record knows of a token."""
    known = () if state is None else state.tokens
    return next((entry for entry in known if entry.token == token), None)


def note(
    state: JobState | None, job: str, entry: NotedToken, target: str, register: str
) -> Verdict:
    """Add a token, or what is new of it; where there are too many the oldest goes.

    Args:
        job: any key of the batch job.
        target: of the write.
        register: the id to mint where there is no parent record yet.
    """
    if state is None:
        state = JobState(register, parent_key(job), target, _LINEAGE, 1, _LINEAGE)
    known = noted(state, entry.token)
    if known is not None and replace(known, at=entry.at) == entry:
        return Unchanged(state)
    others = [other for other in state.tokens if other.token != entry.token]
    return Changed(replace(state, tokens=(*others, entry)[-TOKENS_MAX:]))


def without(state: JobState, tokens: Collection[str]) -> Verdict:
    """Forget tokens, by a person's word only."""
    left = tuple(entry for entry in state.tokens if entry.token not in tokens)
    return Unchanged(state) if left == state.tokens else Changed(replace(state, tokens=left))


def before(state: JobState, moment: datetime) -> list[NotedToken]:
    """The tokens that were noted last before a moment, oldest first."""
    return [entry for entry in state.tokens if datetime.fromisoformat(entry.at) < moment]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What the registers of one place hold of a batch job.

    Args:
        parent: its record; None where only older releases have written it.
        states: of its tokens, by key.
    """

    job: str
    parent: JobState | None
    states: tuple[JobState, ...]

    @property
    def missing(self) -> list[NotedToken]:
        """Tokens that the parent record knows, and whose register is not there."""
        there = {token_of(state.job) for state in self.states}
        known = () if self.parent is None else self.parent.tokens
        return [entry for entry in known if entry.token not in there]


def batch_jobs(states: Iterable[JobState]) -> tuple[list[JobState], list[BatchJob]]:
    """States parted into those of streams, and batch jobs with all their tokens; both by name."""
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
    """The present moment as ``NotedToken.at`` has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
