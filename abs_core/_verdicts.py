"""Results and arguments of the rules in ``protocol``; import them from there."""

from __future__ import annotations

from dataclasses import dataclass

from abs_core.errors import ProtocolError
from abs_core.model import JobState


@dataclass(frozen=True, slots=True)
class Changed:
    """The rule yields this new state."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The state already satisfies the rule."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule forbids the change; the state must stay as it is."""

    error: ProtocolError


Verdict = Changed | Unchanged | Refused


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One run of a job, with its target and the lineage of its epoch numbers.

    Args:
        adopt: a consent token that a refusal named, see ``consent``.
        checkpoint: location of the engine's checkpoint, see ``JobState``.
        sinks: (name, target) of each sink of a multi-sink job; ``target`` then joins all of them.
    """

    job: str
    lineage: str
    run: str
    target: str
    adopt: str | None = None
    checkpoint: str | None = None
    sinks: tuple[tuple[str, str], ...] = ()
