"""Consent tokens, by which a person overrides a refusal that names the token.

A token is valid only for one job, lineage, target and epoch, and the state that the rule checked. So a
token that is left in the options, or copied to another query, has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from abs_core._verdicts import RunIdentity
from abs_core.certificate import Origin, to_text
from abs_core.lookback import LookedBack
from abs_core.model import JobState


def to_adopt(state: JobState, who: RunIdentity, epoch: int) -> str:
    """Consent to take over this register from another lineage, or for another target.

    Valid until the next run starts, as the token includes the generation.
    """
    overridden = state.register, state.lineage, state.target, str(state.generation)
    return _token("adopt", who, epoch, *overridden)


def to_go_on_without(
    origin: Origin, who: RunIdentity, epoch: int, left_out: int | None = None
) -> str:
    """Consent to continue without the register that the certificate names.

    Args:
        left_out: the first of the epochs before ``epoch`` that the register does not have and that will
            never be written; None if there is none.
    """
    certificate = "" if origin.certificate is None else to_text(origin.certificate)
    more = () if left_out is None else (str(left_out),)
    return _token("lost", who, epoch, certificate, *more)


def to_begin_again(before: list[JobState], who: RunIdentity, epoch: int) -> str:
    """Consent to write beside jobs whose checkpoint was deleted."""
    return _token(
        "again", who, epoch, *(f"{state.register} {state.generation}" for state in before)
    )


def to_take_as_it_is(
    state: JobState, who: RunIdentity, epoch: int, looks: Sequence[LookedBack]
) -> str:
    """Consent to go on with targets that do not show what the register recorded.

    Valid until the next run starts, as the token includes the generation.
    """
    details = (f"{look.sink} {look.gone} {look.ahead}" for look in looks)
    return _token("as it is", who, epoch, state.register, str(state.generation), *details)


def to_begin_above(newest: tuple[int, int], who: RunIdentity, epoch: int) -> str:
    """Consent to begin without a register beside what a lost one has left in the target."""
    return _token("above", who, epoch, str(newest))


def to_leave_begun(begin: str, who: RunIdentity, epoch: int) -> str:
    """Consent to go on without an epoch that was begun, and is not known to be written."""
    return _token("begun", who, epoch, begin)


def to_pass_over(failed: int, who: RunIdentity, epoch: int) -> str:
    """Consent to continue without a failed epoch and all epochs after it."""
    return _token("passed over", who, epoch, str(failed))


def _token(purpose: str, who: RunIdentity, epoch: int, *more: str) -> str:
    named = "\n".join((purpose, who.job, who.lineage, who.target, str(epoch), *more))
    return sha256(named.encode()).hexdigest()[:12]
