"""What the rules of ``protocol`` answer, and who asks. Import them from there."""

from __future__ import annotations

from dataclasses import dataclass

from abs_core.errors import ProtocolError
from abs_core.model import JobState


@dataclass(frozen=True, slots=True)
class Changed:
    """The rule leads to this new state."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The state already is as the rule would make it."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule does not allow it; nothing may be changed."""

    error: ProtocolError


Verdict = Changed | Unchanged | Refused


@dataclass(frozen=True, slots=True)
class Identity:
    """Who starts: one run of a job, what it writes to, and whose epoch numbers it counts.

    Args:
        adopt: a token that a refusal named: consent, see ``consent``.
        checkpoint: where the engine's checkpoint lies, see ``JobState``.
        sinks: name and target of each sink of an epoch over several; ``target`` is all of theirs.
    """

    job: str
    lineage: str
    run: str
    target: str
    adopt: str | None = None
    checkpoint: str | None = None
    sinks: tuple[tuple[str, str], ...] = ()
