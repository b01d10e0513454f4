"""States, handles and decisions of one job, for tests of the protocol's rules."""

from __future__ import annotations

from dataclasses import replace

from abs_core import consent, protocol
from abs_core.errors import ProtocolError
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Verdict

REGISTER = "a" * 16
WHO = RunIdentity("job", "lineage", "run1", "target")


def state(**fields: object) -> JobState:
    first = JobState(REGISTER, "job", "target", "lineage", 1, "run1")
    return replace(first, **fields)  # type: ignore[arg-type]


def adopting(given: JobState, who: RunIdentity, epoch: int = 0) -> RunIdentity:
    """The same run, with the consent that the refusal names."""
    return replace(who, adopt=consent.to_adopt(given, who, epoch))


def handle(epoch: int = 0, *, generation: int = 1, partition: int = 0) -> HandleName:
    return HandleName(REGISTER, "job", generation, epoch, partition, "0")


def one(epoch: int = 0, *, generation: int = 1, partition: int = 0) -> Committable:
    return Committable(handle(epoch, generation=generation, partition=partition), 5, "none:")


def decision(epoch: int, *, generation: int = 1, lineage: str = "lineage") -> Decision:
    return Decision(lineage, epoch, generation, (one(epoch, generation=generation),))


def decide(given: JobState, epoch: int, *named: Committable, gaps: bool = False) -> Verdict:
    return protocol.decide(
        given,
        given.generation,
        epoch,
        list(named),
        fingerprint=f"input {epoch}",
        rows=5 * len(named),
        gaps_allowed=gaps,
    )


def changed(verdict: Verdict) -> JobState:
    assert isinstance(verdict, Changed), verdict
    return verdict.state


def refused(verdict: object) -> ProtocolError:
    assert isinstance(verdict, Refused), verdict
    return verdict.error
