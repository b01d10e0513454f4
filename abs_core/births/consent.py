"""A person's consent to go on where a rule refuses: a token, which the refusal names.

It is valid for what it was given for only: one job, lineage, target and epoch, and what the rule looked
at. So one that is left in the options, or copied into another query's, allows nothing there.
"""

from __future__ import annotations

from hashlib import sha256

from abs_core._verdicts import Identity
from abs_core.births.certificate import Origin, to_text
from abs_core.model import JobState


def to_adopt(state: JobState, who: Identity, epoch: int) -> str:
    """Consent to take this register over from another lineage, or for another target.

    It holds until the next run starts: a consent to take over from one run is none to take over from
    a later one, least of all from one that has taken the job back.
    """
    overridden = state.register, state.lineage, state.target, str(state.generation)
    return _token("adopt", who, epoch, *overridden)


def to_go_on_without(origin: Origin, who: Identity, epoch: int) -> str:
    """Consent to go on without the register that the certificate names."""
    certificate = "" if origin.certificate is None else to_text(origin.certificate)
    return _token("lost", who, epoch, certificate)


def to_begin_again(before: list[JobState], who: Identity, epoch: int) -> str:
    """Consent to write beside jobs whose checkpoint was deleted."""
    return _token(
        "again", who, epoch, *(f"{state.register} {state.generation}" for state in before)
    )


def to_pass_over(failed: int, who: Identity, epoch: int) -> str:
    """Consent to go on without an epoch that failed, and all after it."""
    return _token("passed over", who, epoch, str(failed))


def _token(what: str, who: Identity, epoch: int, *more: str) -> str:
    named = "\n".join((what, who.job, who.lineage, who.target, str(epoch), *more))
    return sha256(named.encode()).hexdigest()[:12]
